package podruntime

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// EnvVar is one variable of a container's environment, with its final value.
type EnvVar struct {
	Name, Value string
}

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

// Literal makes the part of a [ContainerSpec] that is written in the container
// itself: env values, and command and args expanded with them. A variable sees
// the ones before it. Mounts are left to the caller.
func Literal(c *corev1.Container) ContainerSpec {
	var spec ContainerSpec
	vars := make(map[string]string, len(c.Env))
	place := make(map[string]int, len(c.Env))
	for _, e := range c.Env {
		value := Expand(e.Value, vars)
		vars[e.Name] = value
		if i, ok := place[e.Name]; ok {
			spec.Env[i].Value = value // the last of two wins
			continue
		}
		place[e.Name] = len(spec.Env)
		spec.Env = append(spec.Env, EnvVar{Name: e.Name, Value: value})
	}
	for _, s := range c.Command {
		spec.Command = append(spec.Command, Expand(s, vars))
	}
	for _, s := range c.Args {
		spec.Args = append(spec.Args, Expand(s, vars))
	}
	return spec
}
