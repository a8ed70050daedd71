package podworkers

import (
	"container/heap"
	"errors"
	"time"
)

const (
	// retryLimit bounds a wait that an error asks for; a resync would come then.
	retryLimit = time.Minute
	// retryFloor keeps an error whose time is always past from spinning.
	retryFloor = 10 * time.Millisecond
)

// retryTime returns when to try again after err. An error that knows its time,
// through RetryAt() time.Time, is taken at its word; a back-off that ends in 3 s
// is over in 3 s. jitter is in [0, 1).
func retryTime(now time.Time, err error, backoff time.Duration, jitter float64) time.Time {
	var known interface{ RetryAt() time.Time }
	if errors.As(err, &known) {
		if at := known.RetryAt(); !at.IsZero() {
			return now.Add(min(max(at.Sub(now), retryFloor), retryLimit))
		}
	}
	return now.Add(backoff + time.Duration(jitter*float64(backoff)/2))
}

// resyncTime returns the window of the next regular sync: between 1 and 1.5 times
// every from now, so that pods do not march in step. Whoever wakes up at the end
// of one window serves all that are open, so a hundred pods need one wake-up in
// some seconds and not a hundred a minute.
func resyncTime(now time.Time, every time.Duration, jitter float64) (from, by time.Time) {
	slack := every / 12
	from = now.Add(every + time.Duration(jitter*float64(every/2-slack)))
	return from, from.Add(slack)
}

// clock is the one queue of all times, earliest end of window first. It is a
// container/heap of records; a record is in it at most once.
type clock []*record

func (c clock) Len() int           { return len(c) }
func (c clock) Less(i, j int) bool { return c[i].due.by.Before(c[j].due.by) }
func (c clock) Swap(i, j int) {
	c[i], c[j] = c[j], c[i]
	c[i].due.index, c[j].due.index = i+1, j+1
}
func (c *clock) Push(x any) {
	r := x.(*record)
	*c = append(*c, r)
	r.due.index = len(*c)
}
func (c *clock) Pop() any {
	last := len(*c) - 1
	r := (*c)[last]
	(*c)[last] = nil
	*c = (*c)[:last]
	r.due.index = 0
	return r
}

// due is a record's place in the clock; index is 0 outside, else one-based.
type due struct {
	from, by time.Time
	index    int
}

func (c *clock) set(r *record, from, by time.Time) {
	c.drop(r)
	r.due.from, r.due.by = from, by
	heap.Push(c, r)
}

func (c *clock) drop(r *record) {
	if r.due.index > 0 {
		heap.Remove(c, r.due.index-1)
	}
	r.due = due{}
}

// expired takes out and returns what is due. When nothing has to be served now,
// open windows are left for later.
func (c *clock) expired(now time.Time) []*record {
	var out []*record
	if len(*c) == 0 || (*c)[0].due.by.After(now) {
		return nil
	}
	for len(*c) > 0 && !(*c)[0].due.from.After(now) {
		r := (*c)[0]
		c.drop(r)
		out = append(out, r)
	}
	return out
}
