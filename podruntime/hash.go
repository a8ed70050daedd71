package podruntime

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Hash answers "must a running instance of c be replaced?". It covers the name
// and the image, nothing else: a change of any other field never restarts a
// container by itself.
//
// The bytes that go into the hash are the kubelet's, so that containers survive
// an upgrade, and also a change from the kubelet to this agent and back: FNV-1a
// over a printed slice of the bytes of {"image":…,"name":…}. A golden test keeps
// it so for ever.
func Hash(c *corev1.Container) string {
	data, err := json.Marshal(struct {
		Image string `json:"image"`
		Name  string `json:"name"`
	}{c.Image, c.Name})
	if err != nil {
		panic(fmt.Sprintf("podruntime: two strings did not encode: %v", err))
	}
	printed := make([]byte, 0, 4*len(data)+16)
	printed = append(printed, "([]uint8)["...)
	for i, b := range data {
		if i > 0 {
			printed = append(printed, ' ')
		}
		printed = strconv.AppendUint(printed, uint64(b), 10)
	}
	h := fnv.New32a()
	h.Write(append(printed, ']'))
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}
