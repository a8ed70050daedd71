package podspec

import "strings"

// Expand replaces $(NAME) by the variable's value. $$ is a literal dollar sign; a
// name that vars does not have, and everything else, stays as it is. It is the
// API's syntax of command, args and env values, and no shell.
func Expand(s string, vars map[string]string) string {
	if !strings.Contains(s, "$") {
		return s
	}
	var out strings.Builder
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
			end := strings.IndexByte(s[i+2:], ')')
			if end < 0 {
				out.WriteByte('$') // an open bracket is just text
				continue
			}
			name := s[i+2 : i+2+end]
			if value, ok := vars[name]; ok {
				out.WriteString(value)
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
