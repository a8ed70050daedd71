package podspec

import "strings"

// SysctlName is a sysctl's name with dots between its parts, as runtimes and lists
// of allowed ones have it. sysctl.d(5) lets slashes stand there, too: the first
// separator tells, and the other one is then a character of a part, as in the name
// of a network interface.
func SysctlName(name string) string {
	if i := strings.IndexAny(name, "./"); i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}
