package pleg

import (
	"container/heap"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
)

// record is what the owner knows of one pod. It exists while the pod does, or
// while a look at it is due.
type record struct {
	uid     observed.UID
	pod     observed.Pod           // the last good observation
	seq     observed.Seq           // its number
	running []observed.ContainerID // what a list should show of it
	list    uint64                 // the last list that showed it

	dirty  bool
	lane   lane          // how urgent, while dirty
	look   *look         // the look that has not come back yet
	listed *observed.Pod // a list that arrived during the look and differed

	fails   int // looks that failed in a row
	retryAt time.Time
	heapAt  int // place in retries; -1 when not there
}

// lane orders the looks at pods that do not fail.
type lane uint8

const (
	found  lane = iota // a relist found it changed
	marked             // an event or a caller marked it
	waited             // someone waits for it
	lanes  = 3
)

// queue holds the records whose look is due, most urgent first. A record that
// became more urgent leaves its old place behind, which is passed over.
type queue [lanes][]*record

func (q *queue) push(r *record) { q[r.lane] = append(q[r.lane], r) }

// pop returns nil when nothing is due.
func (q *queue) pop() *record {
	for l := len(q) - 1; l >= 0; l-- {
		for len(q[l]) > 0 {
			r := q[l][0]
			q[l][0] = nil
			q[l] = q[l][1:]
			if r.dirty && r.look == nil && r.fails == 0 && r.lane == lane(l) {
				return r
			}
		}
	}
	return nil
}

// retries is a heap of the records whose last look failed, soonest first.
type retries []*record

func (h retries) Len() int           { return len(h) }
func (h retries) Less(i, j int) bool { return h[i].retryAt.Before(h[j].retryAt) }
func (h retries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapAt, h[j].heapAt = i, j
}

func (h *retries) Push(x any) {
	r := x.(*record)
	r.heapAt = len(*h)
	*h = append(*h, r)
}

func (h *retries) Pop() any {
	last := len(*h) - 1
	r := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	r.heapAt = -1
	return r
}

// set puts the record in, or moves it to its new time.
func (h *retries) set(r *record) {
	if r.heapAt < 0 {
		heap.Push(h, r)
	} else {
		heap.Fix(h, r.heapAt)
	}
}

// next is when the first retry is due; false when there is none.
func (h retries) next() (time.Time, bool) {
	if len(h) == 0 {
		return time.Time{}, false
	}
	return h[0].retryAt, true
}

// allDue makes every retry due now.
func (h retries) allDue(now time.Time) {
	for _, r := range h {
		if r.retryAt.After(now) {
			r.retryAt = now
		}
	}
	heap.Init(&h)
}
