package podspec

import "strings"

// MaxExpanded bounds what [Expand] makes, in bytes. Linux takes no more than this
// as the arguments and environment of a new program (execve(2)), and without a
// bound a manifest of a kilobyte whose variables double each other fills memory.
const MaxExpanded = 6 << 20

// Expand replaces $(NAME) by the variable's value. $$ is a literal dollar sign; a
// name that vars does not have, and everything else, stays as it is. It is the
// API's syntax of command, args and env values, and no shell. A reference that
// would make the result longer than [MaxExpanded] stays as it is, too.
func Expand(s string, vars map[string]string) string {
	return ExpandFunc(s, func(name string) (string, bool) {
		value, ok := vars[name]
		return value, ok
	})
}

// ExpandFunc is [Expand] for a caller that wants to know which names are asked for.
func ExpandFunc(s string, value func(name string) (string, bool)) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
	lastClose := strings.LastIndexByte(s, ')')
	for i := 0; i < len(s); i++ {
		if s[i] != '$' || i+1 == len(s) {
			out.WriteByte(s[i])
			continue
		}
		switch s[i+1] {
		case '$':
			out.WriteByte('$')
			i++
		case '(':
			if lastClose < i {
				out.WriteByte('$') // an open bracket is just text
				continue
			}
			end := strings.IndexByte(s[i+2:], ')')
			name := s[i+2 : i+2+end]
			if v, ok := value(name); ok && out.Len()+len(v) <= MaxExpanded {
				out.WriteString(v)
			} else {
				out.WriteString("$(" + name + ")")
			}
			i += 2 + end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}
