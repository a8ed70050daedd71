package podruntime

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/podspec"
)

// EnvVar is one variable of a container's environment, with its final value.
type EnvVar struct {
	Name, Value string
}

// Literal makes the part of a [ContainerSpec] that is written in the container
// itself: env values, and command and args expanded with them. A variable sees
// the ones before it. Mounts are left to the caller.
func Literal(c *corev1.Container) ContainerSpec {
	var spec ContainerSpec
	vars := make(map[string]string, len(c.Env))
	place := make(map[string]int, len(c.Env))
	for _, e := range c.Env {
		value := podspec.Expand(e.Value, vars)
		vars[e.Name] = value
		if i, ok := place[e.Name]; ok {
			spec.Env[i].Value = value // the last of two wins
			continue
		}
		place[e.Name] = len(spec.Env)
		spec.Env = append(spec.Env, EnvVar{Name: e.Name, Value: value})
	}
	for _, s := range c.Command {
		spec.Command = append(spec.Command, podspec.Expand(s, vars))
	}
	for _, s := range c.Args {
		spec.Args = append(spec.Args, podspec.Expand(s, vars))
	}
	return spec
}
