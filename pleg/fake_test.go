package pleg_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeRuntime holds pods, and can be slow, fail or hang.
type fakeRuntime struct {
	mu       sync.Mutex
	pods     map[observed.UID]observed.Pod
	listErr  error
	listHang chan struct{}                  // until closed, or ctx ends
	failing  map[observed.UID]error         // inspections that fail
	hanging  map[observed.UID]chan struct{} // inspections that hang until closed or ctx ends
	deaf     bool                           // hanging ones do not end with ctx
	takes    time.Duration                  // per inspection

	lists       []time.Time
	looks       map[observed.UID]int
	inFlight    int
	mostAtATime int
}

func newFake() *fakeRuntime {
	return &fakeRuntime{
		pods:    map[observed.UID]observed.Pod{},
		failing: map[observed.UID]error{},
		hanging: map[observed.UID]chan struct{}{},
		looks:   map[observed.UID]int{},
	}
}

func (f *fakeRuntime) RunningPods(ctx context.Context) ([]observed.Pod, error) {
	f.mu.Lock()
	f.lists = append(f.lists, time.Now())
	hang := f.listHang
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listErr != nil {
		return nil, f.listErr
	}
	var pods []observed.Pod
	for _, p := range f.pods {
		p.Sandboxes = slices.DeleteFunc(slices.Clone(p.Sandboxes), func(s observed.Sandbox) bool { return !s.Ready })
		p.Containers = slices.DeleteFunc(slices.Clone(p.Containers), func(c observed.Container) bool { return c.State != observed.Running })
		if p.Exists() {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

func (f *fakeRuntime) InspectPod(ctx context.Context, last observed.Pod) (observed.Pod, error) {
	f.mu.Lock()
	f.looks[last.UID]++
	f.inFlight++
	f.mostAtATime = max(f.mostAtATime, f.inFlight)
	hang, deaf, takes := f.hanging[last.UID], f.deaf, f.takes
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.inFlight--
		f.mu.Unlock()
	}()
	ended := ctx.Done()
	if deaf {
		ended = nil
	}
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ended:
			return observed.Pod{}, ctx.Err()
		}
	}
	// The answer is read before the hang: what comes late is old.
	f.mu.Lock()
	pod, err := f.pods[last.UID], f.failing[last.UID]
	f.mu.Unlock()
	if hang != nil {
		select {
		case <-hang:
		case <-ended:
			return observed.Pod{}, ctx.Err()
		}
	}
	pod.Sandboxes, pod.Containers = slices.Clone(pod.Sandboxes), slices.Clone(pod.Containers)
	return pod, err
}

// set says what the runtime holds for a pod: a ready sandbox and the containers.
func (f *fakeRuntime) set(uid observed.UID, containers ...observed.Container) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.pods[uid] = podOf(uid, true, containers...)
}

func (f *fakeRuntime) remove(uid observed.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.pods, uid)
}

func (f *fakeRuntime) do(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeRuntime) looksAt(uid observed.UID) int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.looks[uid]
}

func (f *fakeRuntime) listCount() int {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lists)
}

func podOf(uid observed.UID, ready bool, containers ...observed.Container) observed.Pod {
	return observed.Pod{
		UID: uid, Namespace: "default", Name: "pod-" + string(uid),
		Sandboxes:  []observed.Sandbox{{ID: observed.SandboxID(uid + "-sb"), Ready: ready}},
		Containers: containers,
	}
}

func container(id string, s observed.State) observed.Container {
	return observed.Container{ID: observed.ContainerID(id), Name: "app", State: s}
}

// fakeEvents is an event source that the test speaks through.
type fakeEvents struct {
	mu struct {
		sync.Mutex
		mark  func(pleg.Mark)
		end   chan error
		err   error // Stream refuses with it
		opens []time.Time
	}
}

func (f *fakeEvents) Stream(ctx context.Context, connected func(), mark func(pleg.Mark)) error {
	f.mu.Lock()
	f.mu.opens = append(f.mu.opens, time.Now())
	if err := f.mu.err; err != nil {
		f.mu.Unlock()
		return err
	}
	end := make(chan error, 1)
	f.mu.mark, f.mu.end = mark, end
	f.mu.Unlock()
	connected()
	defer func() {
		f.mu.Lock()
		f.mu.mark = nil
		f.mu.Unlock()
	}()
	select {
	case err := <-end:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell sends a mark, if the stream is open.
func (f *fakeEvents) tell(m pleg.Mark) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.mark != nil {
		f.mu.mark(m)
	}
}

func (f *fakeEvents) breakOff(then error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.err = then
	if f.mu.mark != nil {
		f.mu.mark = nil
		f.mu.end <- errors.New("broken")
	}
}

func (f *fakeEvents) openings() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.mu.opens)
}

// inBubble runs test with a started generator. Everything that is read from
// Watch is in got, if reading is not switched off.
func inBubble(t *testing.T, cfg pleg.Config, test func(t *testing.T, r *running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, cfg)
		synctest.Wait()
		test(t, r)
		r.stop(t)
	})
}

type running struct {
	*pleg.Generator
	cancel context.CancelFunc
	ended  chan error
	read   chan struct{} // closed when the reader has ended

	mu  sync.Mutex
	got []pleg.PodLifecycleEvent
}

func start(t *testing.T, cfg pleg.Config) *running {
	t.Helper()
	g, err := pleg.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Generator: g, cancel: cancel, ended: make(chan error, 1), read: make(chan struct{})}
	go func() { r.ended <- g.Run(ctx) }()
	go func() {
		defer close(r.read)
		for e := range g.Watch() {
			r.mu.Lock()
			r.got = append(r.got, e)
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.ended; err != nil {
		t.Errorf("Run = %v, want nil after cancel", err)
	}
	<-r.read
}

// events takes what has come so far.
func (r *running) events() []pleg.PodLifecycleEvent {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	got := r.got
	r.got = nil
	return got
}

func event(uid string, typ pleg.EventType, data string) pleg.PodLifecycleEvent {
	return pleg.PodLifecycleEvent{ID: observed.UID(uid), Type: typ, Data: observed.ContainerID(data)}
}

func equal(t *testing.T, what string, got, want []pleg.PodLifecycleEvent) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: events = %v, want %v", what, got, want)
	}
}
