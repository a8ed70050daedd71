package volume

import (
	"context"
	"fmt"
	"sync"

	"github.com/kubeletkit/kubeletkit/observed"
)

// turns lets calls for one pod happen one after the other, so that no set-up
// writes into a directory that is being taken down. The zero value is ready.
type turns struct {
	mu   sync.Mutex
	busy map[observed.UID]chan struct{}
}

// take waits for uid's turn and returns the function that ends it.
func (t *turns) take(ctx context.Context, uid observed.UID) (done func(), err error) {
	mine := make(chan struct{})
	for {
		t.mu.Lock()
		other, wait := t.busy[uid]
		if !wait {
			if t.busy == nil {
				t.busy = map[observed.UID]chan struct{}{}
			}
			t.busy[uid] = mine
		}
		t.mu.Unlock()
		if !wait {
			return func() {
				t.mu.Lock()
				delete(t.busy, uid)
				t.mu.Unlock()
				close(mine)
			}, nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for other volume work of pod %s: %w", uid, ctx.Err())
		}
	}
}
