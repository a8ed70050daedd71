package floors_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/floors"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// diary is what Runners did, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// room runs until its ctx ends and then needs a while to stop.
func (d *diary) room(name string, stop time.Duration) floors.Runner {
	return floors.Named(name, floors.RunnerFunc(func(ctx context.Context) error {
		d.add(name + " up")
		<-ctx.Done()
		time.Sleep(stop)
		d.add(name + " down")
		return nil
	}))
}

// fails returns err after a while, ctx or not.
func fails(name string, after time.Duration, err error) floors.Runner {
	return floors.Named(name, floors.RunnerFunc(func(context.Context) error {
		time.Sleep(after)
		return err
	}))
}

func TestFloorsStopTopDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- floors.Run(ctx,
				[]floors.Runner{d.room("door", 0)},
				nil, // an empty floor is no obstacle
				[]floors.Runner{d.room("pleg", 3*time.Second), d.room("status", time.Second)},
				[]floors.Runner{d.room("hall", time.Minute)})
		}()
		synctest.Wait()
		up := slices.Sorted(slices.Values(d.lines))
		if want := []string{"door up", "hall up", "pleg up", "status up"}; !slices.Equal(up, want) {
			t.Errorf("up = %q, want %q", up, want)
		}
		d.lines = nil
		began := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		if want := []string{"hall down", "status down", "pleg down", "door down"}; !slices.Equal(d.lines, want) {
			t.Errorf("down = %q, want %q", d.lines, want)
		}
		if took := time.Since(began); took != 63*time.Second {
			t.Errorf("stop took %v, want 63s: one floor after the other, a floor's rooms together", took)
		}
	})
}

func TestHowRunnersEnd(t *testing.T) {
	bad := errors.New("port is taken")
	for name, c := range map[string]struct {
		runner floors.Runner
		stop   time.Duration // of ctx
		want   error
		text   string
	}{
		"an error stops the house and is named":     {fails("server", time.Second, bad), time.Hour, bad, "run server: port is taken"},
		"nil before the end is an error":            {fails("server", time.Second, nil), time.Hour, floors.ErrEnded, "run server: "},
		"nil after ctx ended is none":               {fails("server", time.Second, nil), time.Millisecond, nil, ""},
		"an error while stopping counts":            {fails("server", time.Second, bad), time.Millisecond, bad, "run server: "},
		"the error of the ended ctx is none":        {fails("server", time.Second, context.Canceled), time.Millisecond, nil, ""},
		"the error of another ctx is one":           {fails("server", time.Second, context.Canceled), time.Hour, context.Canceled, "run server: "},
		"a Runner without a name is called by type": {floors.RunnerFunc(func(context.Context) error { return bad }), time.Hour, bad, "run floors.RunnerFunc: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var d diary
				ctx, cancel := context.WithTimeout(t.Context(), c.stop)
				defer cancel()
				err := floors.Run(ctx, []floors.Runner{d.room("below", 0), c.runner}, []floors.Runner{d.room("above", 0)})
				if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
					t.Errorf("Run = %v, want %v", err, c.want)
				}
				if err != nil && !strings.HasPrefix(err.Error(), c.text) {
					t.Errorf("Run = %q, want %q...", err, c.text)
				}
				if n := len(d.lines); n != 4 {
					t.Errorf("diary = %q, want both rooms up and down", d.lines)
				}
			})
		})
	}
}

func TestAFloorThatEndsDuringTheStopIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		// below ends by itself while the floor above takes its time to stop.
		err := floors.Run(ctx, []floors.Runner{fails("below", 2*time.Second, nil)}, []floors.Runner{d.room("above", time.Minute)})
		if err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

func TestAllErrorsAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := errors.New("a"), errors.New("b")
		err := floors.Run(t.Context(), []floors.Runner{fails("x", time.Second, a)}, []floors.Runner{fails("y", time.Minute, b)})
		if !errors.Is(err, a) || !errors.Is(err, b) {
			t.Errorf("Run = %v, want both errors", err)
		}
	})
}

type key struct{}

func TestContextsCarryValues(t *testing.T) {
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "v"))
	err := floors.Run(ctx, []floors.Runner{floors.RunnerFunc(func(ctx context.Context) error {
		if got := ctx.Value(key{}); got != "v" {
			t.Errorf("value = %v, want v", got)
		}
		cancel()
		<-ctx.Done()
		return ctx.Err()
	})})
	if err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
}
