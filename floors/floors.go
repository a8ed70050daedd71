package floors

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Runner is one room at work. Run returns only after everything it started has
// ended, soon after ctx ended, and nil then.
type Runner interface {
	Run(ctx context.Context) error
}

// RunnerFunc is a Runner made of a function.
type RunnerFunc func(ctx context.Context) error

// Run calls f.
func (f RunnerFunc) Run(ctx context.Context) error { return f(ctx) }

// Named gives a Runner the name that errors call it by. Without one it is called
// by its type, which for a [RunnerFunc] says nothing.
func Named(name string, r Runner) Runner { return named{r, name} }

type named struct {
	Runner
	name string
}

// ErrEnded is a Runner that returned nil although nobody had asked it to end.
var ErrEnded = errors.New("floors: ended without being asked to")

// Run starts every floor, bottom first, and returns when all have stopped. When
// ctx ends, or any Runner returns, floors stop from the top down: the context of a
// floor ends when every Runner of the floors above has returned. A Runner that
// does not end holds up those below it; Run has no deadline of its own.
//
// Runners of one floor start and stop together, in no order. The contexts carry
// the values of ctx.
func Run(ctx context.Context, floors ...[]Runner) error {
	down := &shutdown{begun: make(chan struct{})}
	up := make([]*floor, len(floors))
	for i, runners := range floors {
		up[i] = start(context.WithoutCancel(ctx), runners, down)
	}
	select {
	case <-ctx.Done():
	case <-down.begun:
	}
	down.begin()
	for i := len(up) - 1; i >= 0; i-- {
		up[i].cancel()
		up[i].wg.Wait()
	}
	return errors.Join(down.errs...)
}

// floor is the Runners that share a context.
type floor struct {
	wg     sync.WaitGroup
	cancel context.CancelFunc
}

func start(parent context.Context, runners []Runner, down *shutdown) *floor {
	ctx, cancel := context.WithCancel(parent)
	f := &floor{cancel: cancel}
	for _, r := range runners {
		f.wg.Go(func() {
			down.ended(name(r), r.Run(ctx), ctx.Err() != nil)
		})
	}
	return f
}

// shutdown is the one stop of a house and what went wrong before and during it.
type shutdown struct {
	once  sync.Once
	begun chan struct{}

	mu   sync.Mutex
	errs []error
}

func (s *shutdown) begin() { s.once.Do(func() { close(s.begun) }) }

// ended notes how a Runner ended. asked: its own floor had been told to stop.
func (s *shutdown) ended(name string, err error, asked bool) {
	switch {
	case asked && errors.Is(err, context.Canceled):
		err = nil
	case err != nil:
		err = fmt.Errorf("run %s: %w", name, err)
	case !asked && !s.stopping():
		err = fmt.Errorf("run %s: %w", name, ErrEnded)
	}
	if err != nil {
		s.mu.Lock()
		s.errs = append(s.errs, err)
		s.mu.Unlock()
	}
	s.begin()
}

func (s *shutdown) stopping() bool {
	select {
	case <-s.begun:
		return true
	default:
		return false
	}
}

func name(r Runner) string {
	if n, ok := r.(named); ok {
		return n.name
	}
	return fmt.Sprintf("%T", r)
}
