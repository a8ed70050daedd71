package volume

import "testing"

func TestParseMount(t *testing.T) {
	cases := map[string]mountPoint{
		`36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`: {"/mnt2", "ext3"},
		`36 35 98:0 / /a\040b\134c\012 rw - tmpfs t rw`:                  {"/a b\\c\n", "tmpfs"},
		`36 35 98:0 / /odd\9 rw - tmpfs t rw`:                            {`/odd\9`, "tmpfs"},
		`36 35 98:0 / /x rw no dash`:                                     {"/x", ""},
		`too short`:                                                      {},
		``:                                                               {},
	}
	for line, want := range cases {
		if got := parseMount(line); got != want {
			t.Errorf("parseMount(%q) = %q, want %q", line, got, want)
		}
	}
}

func FuzzParseMount(f *testing.F) {
	f.Add(`36 35 98:0 / /a\040b rw - tmpfs t rw`)
	f.Add(`1 2 3 4 \`)
	f.Fuzz(func(t *testing.T, line string) {
		if got := parseMount(line); len(got.at)+len(got.fstype) > len(line) {
			t.Errorf("parseMount(%q) = %q, longer than its line", line, got)
		}
	})
}

func TestMountsBelow(t *testing.T) {
	if found, err := (system{}).mountsBelow("/proc"); err != nil || len(found) == 0 || found[0] != (mountPoint{"/proc", "proc"}) {
		t.Errorf("mountsBelow(/proc) = %v, %v; want /proc first", found, err)
	}
	if found, err := (system{}).mountsBelow("/pro"); err != nil || len(found) != 0 {
		t.Errorf("mountsBelow(/pro) = %v, %v; want none: /proc is beside it, not below", found, err)
	}
	if is, err := (system{}).mountedAt("/proc"); err != nil || is != "" {
		t.Errorf("mountedAt(/proc) = %q, %v; it is a mount, but no memory", is, err)
	}
}
