package main

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

// listing is an observer that remembers what ran at the last relist. The first
// relist is done before the hall opens, so names are known before pods arrive.
type listing struct {
	*criclient.Observer
	last   atomic.Pointer[[]observed.Pod]
	listed chan struct{} // closed at the first list
	once   sync.Once
}

func newListing(o *criclient.Observer) *listing {
	return &listing{Observer: o, listed: make(chan struct{})}
}

// RunningPods implements pleg.Runtime.
func (l *listing) RunningPods(ctx context.Context) ([]observed.Pod, error) {
	pods, err := l.Observer.RunningPods(ctx)
	if err == nil {
		l.last.Store(&pods)
		l.once.Do(func() { close(l.listed) })
	}
	return pods, err
}

func (l *listing) running() []observed.Pod {
	if pods := l.last.Load(); pods != nil {
		return *pods
	}
	return nil
}
