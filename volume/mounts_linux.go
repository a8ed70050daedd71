package volume

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// mountsBelow returns the mount points at or below dir. The kernel's table is
// asked because a bind mount within one file system keeps the device number.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var found []string
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if at := mountPoint(lines.Text()); at == dir || strings.HasPrefix(at, dir+"/") {
			found = append(found, at)
		}
	}
	return found, lines.Err()
}

// mountPoint returns the fifth field of a mountinfo line (see proc(5)), in which
// the kernel writes blanks, newlines and backslashes as three octal digits.
func mountPoint(line string) string {
	fields := strings.SplitN(line, " ", 6)
	if len(fields) < 6 {
		return ""
	}
	raw := fields[4]
	if !strings.Contains(raw, `\`) {
		return raw
	}
	var b strings.Builder
	for i := 0; i < len(raw); i++ {
		if raw[i] == '\\' && i+4 <= len(raw) {
			if n, err := strconv.ParseUint(raw[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(raw[i])
	}
	return b.String()
}
