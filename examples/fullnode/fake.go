package main

import (
	"slices"
	"strconv"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
)

// fakeImage answers for every image. A container on the fake runtime runs for
// ever, unless its command reads like one that ends: the word "exit" with a code
// at the end, or a single cat or append, as the demo manifests have them.
func fakeImage(ref string) (critest.Image, bool) {
	return critest.Image{Ref: ref, Behavior: critest.Behavior{For: pretend}}, true
}

func pretend(c *runtimeapi.ContainerConfig) critest.Behavior {
	words := append(slices.Clone(c.GetCommand()), c.GetArgs()...)
	b := critest.Behavior{CatchTERM: true}
	switch {
	case slices.Contains(words, "exit"):
		code, err := strconv.Atoi(words[len(words)-1])
		if err != nil {
			return b
		}
		b.Exits, b.ExitCode = true, int32(code)
		if i := slices.Index(words, "--message"); i >= 0 && i+1 < len(words) {
			b.TerminationMessage = words[i+1]
		}
	case len(words) > 0 && (words[0] == "append" || words[0] == "cat"):
		b.Exits = true
	}
	return b
}
