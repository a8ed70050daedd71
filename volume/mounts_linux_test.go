package volume

import "testing"

func TestMountPoint(t *testing.T) {
	cases := map[string]string{
		`36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`: "/mnt2",
		`36 35 98:0 / /a\040b\134c\012 rw - tmpfs t rw`:                  "/a b\\c\n",
		`36 35 98:0 / /odd\9 rw - tmpfs t rw`:                            `/odd\9`,
		`too short`:                                                      "",
		``:                                                               "",
	}
	for line, want := range cases {
		if got := mountPoint(line); got != want {
			t.Errorf("mountPoint(%q) = %q, want %q", line, got, want)
		}
	}
}

func FuzzMountPoint(f *testing.F) {
	f.Add(`36 35 98:0 / /a\040b rw - tmpfs t rw`)
	f.Add(`1 2 3 4 \`)
	f.Fuzz(func(t *testing.T, line string) {
		if got := mountPoint(line); len(got) > len(line) {
			t.Errorf("mountPoint(%q) = %q, longer than its line", line, got)
		}
	})
}

func TestMountsBelow(t *testing.T) {
	if found, err := mountsBelow("/proc"); err != nil || len(found) == 0 || found[0] != "/proc" {
		t.Errorf("mountsBelow(/proc) = %v, %v; want /proc first", found, err)
	}
	if found, err := mountsBelow("/pro"); err != nil || len(found) != 0 {
		t.Errorf("mountsBelow(/pro) = %v, %v; want none: /proc is beside it, not below", found, err)
	}
}
