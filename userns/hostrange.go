package userns

import (
	"fmt"
	"strconv"
	"strings"
)

// user is whose subordinate IDs are for pods.
const user = "kubelet"

// hostRange asks getsubids twice, for users and for groups.
func hostRange(getsubids func(args ...string) (string, error)) (first, length uint32, err error) {
	users, err := getsubids(user)
	if err != nil {
		return 0, 0, fmt.Errorf("read subordinate users of %s: %w", user, err)
	}
	groups, err := getsubids("-g", user)
	if err != nil {
		return 0, 0, fmt.Errorf("read subordinate groups of %s: %w", user, err)
	}
	if users != groups {
		return 0, 0, fmt.Errorf("subordinate users and groups of %s differ: %q and %q; make its lines in /etc/subuid and /etc/subgid alike", user, users, groups)
	}
	first, length, err = parseSubIDs(users)
	if err != nil {
		return 0, 0, fmt.Errorf("read subordinate users of %s: %w", user, err)
	}
	return first, length, nil
}

// parseSubIDs reads the one line that getsubids may print, "0: kubelet 65536 7208960":
// a number, the user, the first ID and how many.
func parseSubIDs(out string) (first, length uint32, err error) {
	line := strings.TrimSuffix(out, "\n")
	f := strings.Fields(line)
	if strings.Contains(line, "\n") || len(f) != 4 {
		return 0, 0, fmt.Errorf("getsubids says %q, want one range", out)
	}
	from, err1 := strconv.ParseUint(f[2], 10, 32)
	n, err2 := strconv.ParseUint(f[3], 10, 32)
	if err1 != nil || err2 != nil || from == 0 || n == 0 {
		return 0, 0, fmt.Errorf("getsubids says %q, want two numbers at the end", out)
	}
	return uint32(from), uint32(n), nil
}
