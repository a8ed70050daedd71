package containerdevents

import (
	"fmt"
	"strings"

	apievents "github.com/containerd/containerd/api/events"
	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"

	"github.com/kubeletkit/kubeletkit/observed"
)

// filters select the events that can change what CRI says of a pod. containerd
// sends an event that matches any of them.
func filters(namespace string) []string {
	var all []string
	for _, topic := range []string{
		"/tasks/start", "/tasks/exit", "/tasks/oom", "/tasks/delete",
		"/containers/create", "/containers/delete",
	} {
		all = append(all, fmt.Sprintf("namespace==%q,topic==%q", namespace, topic))
	}
	return all
}

// hint is what an event tells: where to look, whether a task ended, which the CRI
// plugin needs a while to tell too, and whether the container is removed. The zero value is of no interest.
type hint struct {
	container observed.ContainerID
	ended     bool
	step      int // of pauses; when ended
	gone      bool
}

// decode reads the events of [filters]; others are of no interest. An exec has
// an ID of its own beside its container's, and the container's main process has
// the same (or, in TaskDelete, none).
func decode(e *types.Envelope) (hint, error) {
	kind := e.GetEvent().GetTypeUrl()
	kind = kind[strings.LastIndexByte(kind, '/')+1:] // there may be a host before it
	var h hint
	var err error
	read := func(m proto.Message) { err = proto.Unmarshal(e.GetEvent().GetValue(), m) }
	switch kind {
	case "containerd.events.TaskStart":
		var m apievents.TaskStart
		read(&m)
		h = hint{container: observed.ContainerID(m.ContainerID)}
	case "containerd.events.TaskExit":
		var m apievents.TaskExit
		read(&m)
		if m.ID == m.ContainerID || m.ID == "" {
			h = hint{container: observed.ContainerID(m.ContainerID), ended: true, step: afterExit}
		}
	case "containerd.events.TaskDelete":
		var m apievents.TaskDelete
		read(&m)
		if m.ID == m.ContainerID || m.ID == "" {
			h = hint{container: observed.ContainerID(m.ContainerID), ended: true, step: afterDelete}
		}
	case "containerd.events.TaskOOM":
		var m apievents.TaskOOM
		read(&m)
		h = hint{container: observed.ContainerID(m.ContainerID)}
	case "containerd.events.ContainerCreate":
		var m apievents.ContainerCreate
		read(&m)
		h = hint{container: observed.ContainerID(m.ID)}
	case "containerd.events.ContainerDelete":
		var m apievents.ContainerDelete
		read(&m)
		h = hint{container: observed.ContainerID(m.ID), gone: true}
	}
	if err != nil {
		return hint{}, fmt.Errorf("read %s: %w", kind, err)
	}
	return h, nil
}
