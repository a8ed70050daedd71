package containerdevents

import (
	"testing"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/types/known/anypb"
)

// No event can do more than name a container, make an error or be passed over.
func FuzzDecode(f *testing.F) {
	f.Add("containerd.events.TaskExit", []byte{0x0a, 0x01, 'c', 0x12, 0x01, 'c'})
	f.Add("containerd.events.TaskDelete", []byte{0x0a, 0x01, 'c'})
	f.Add("types.containerd.io/containerd.events.ContainerCreate", []byte{0x0a, 0xff})
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, kind string, value []byte) {
		h, err := decode(&types.Envelope{Event: &anypb.Any{TypeUrl: kind, Value: value}})
		if err != nil && h != (hint{}) {
			t.Errorf("decode = %v with %v", h, err)
		}
	})
}
