package pleg

import (
	"slices"

	"github.com/kubeletkit/kubeletkit/observed"
)

// outbox keeps events until the reader takes them: pods in the order in which
// they first had one, and per pod its events in order. Of two equal events the
// later one stays, so what is read last about a container is the newest. It is
// bounded by the distinct events of the containers that the reader has not heard of.
type outbox struct {
	order []observed.UID
	byPod map[observed.UID][]PodLifecycleEvent
}

func (o *outbox) add(e PodLifecycleEvent) {
	waiting, ok := o.byPod[e.ID]
	if !ok {
		o.order = append(o.order, e.ID)
	}
	if i := slices.Index(waiting, e); i >= 0 {
		waiting = slices.Delete(waiting, i, i+1)
	}
	o.byPod[e.ID] = append(waiting, e)
}

// next is the event to send; false when there is none.
func (o *outbox) next() (PodLifecycleEvent, bool) {
	if len(o.order) == 0 {
		return PodLifecycleEvent{}, false
	}
	return o.byPod[o.order[0]][0], true
}

// sent takes away what next returned.
func (o *outbox) sent() {
	uid := o.order[0]
	if rest := o.byPod[uid][1:]; len(rest) > 0 {
		o.byPod[uid] = rest
		return
	}
	delete(o.byPod, uid)
	o.order = o.order[1:]
}
