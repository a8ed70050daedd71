package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/metrics"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podsource"
)

// shelf is a source of pods that outlives the agents which read it, as a
// directory of manifests does.
type shelf struct {
	name string

	mu      sync.Mutex
	heard   bool // it answers at all
	pods    map[types.UID]*corev1.Pod
	changed chan struct{} // closed and replaced at every change
}

func newShelf(name string) *shelf {
	return &shelf{name: name, heard: true, pods: map[types.UID]*corev1.Pod{}, changed: make(chan struct{})}
}

func (s *shelf) Name() string { return s.name }

func (s *shelf) Run(ctx context.Context, set func([]*corev1.Pod)) error {
	for {
		s.mu.Lock()
		heard, pods, changed := s.heard, s.list(), s.changed
		s.mu.Unlock()
		if heard {
			set(pods)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// list needs the lock. Its order does not depend on the map's.
func (s *shelf) list() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, uid := range slices.Sorted(maps.Keys(s.pods)) {
		pods = append(pods, s.pods[uid])
	}
	return pods
}

func (s *shelf) all() []*corev1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.list()
}

func (s *shelf) change(do func(pods map[types.UID]*corev1.Pod)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(s.pods)
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *shelf) put(pods ...*corev1.Pod) {
	s.change(func(all map[types.UID]*corev1.Pod) {
		for _, pod := range pods {
			all[pod.UID] = pod
		}
	})
}

func (s *shelf) drop(uids ...types.UID) {
	s.change(func(all map[types.UID]*corev1.Pod) {
		for _, uid := range uids {
			delete(all, uid)
		}
	})
}

// speaks decides whether agents hear from the source.
func (s *shelf) speaks(heard bool) {
	s.mu.Lock()
	s.heard = heard
	s.mu.Unlock()
	s.change(func(map[types.UID]*corev1.Pod) {})
}

// world is a runtime, a disk and sources, and at most one agent among them. It
// lives in a bubble.
type world struct {
	*testing.T
	rt      *critest.Runtime
	runtime *timely
	static  *shelf
	api     *shelf
	options options
	log     logr.Logger
	tell    tour
	// noEvents makes agents that relist once a second.
	noEvents bool
	// blind says that some manifest can't be read. Nil: all can.
	blind func() bool
	// starts is told of each start of a container, in the moment of it. It must
	// not ask the runtime.
	starts func(*runtimeapi.ContainerConfig)

	down    bool        // the runtime is stopped
	looking atomic.Bool // the test itself asks

	agent *node
	stop  context.CancelFunc
	done  chan error
}

func newWorld(t *testing.T, cfg critest.Config) *world {
	t.Helper()
	w := &world{T: t}
	cfg.Registry = func(ref string) (critest.Image, bool) {
		return critest.Image{Ref: ref, Behavior: critest.Behavior{For: w.act}}, true
	}
	rt := critest.New(cfg)
	*w = world{
		T: t, rt: rt, runtime: &timely{Runtime: rt, limit: 2 * time.Minute},
		static: newShelf(podsource.SourceFile), api: newShelf(podsource.SourceAPI),
		options: fakeOptions(t), log: testLog(t),
	}
	return w
}

// act is what a container does, by the words of its command: "exit 1 5s" ends
// with 1 after 5s, "try 2 1s" ends after 1s and fails the first two times,
// "stubborn" ignores TERM, "slow 3s" takes 3s to end. All others run until TERM.
// The runtime asks when a container starts, and only then.
func (w *world) act(c *runtimeapi.ContainerConfig) critest.Behavior {
	if w.starts != nil {
		w.starts(c)
	}
	words := c.GetCommand()[1:]
	duration := func(word string) time.Duration {
		d, err := time.ParseDuration(word)
		if err != nil {
			w.Error(err)
		}
		return d
	}
	number := func(word string) int32 {
		n, err := strconv.Atoi(word)
		if err != nil {
			w.Error(err)
		}
		return int32(n)
	}
	switch {
	case len(words) == 0:
		return critest.Behavior{}
	case words[0] == "exit":
		return critest.Exit(number(words[1]), duration(words[2]))
	case words[0] == "try":
		if number(c.GetAnnotations()[observed.AnnotationRestartCount]) < number(words[1]) {
			return critest.Exit(1, duration(words[2]))
		}
		return critest.Exit(0, duration(words[2]))
	case words[0] == "stubborn":
		return critest.Behavior{IgnoreTERM: true}
	case words[0] == "slow":
		return critest.Behavior{TermAfter: duration(words[1])}
	}
	w.Errorf("no behavior is called %q", words)
	return critest.Behavior{}
}

// testLog shows the agents' log where a person asks for it.
func testLog(t *testing.T) logr.Logger {
	if os.Getenv("FULLNODE_LOG") == "" {
		return logr.Discard()
	}
	return funcr.New(func(prefix, args string) {
		fmt.Printf("%s %s %s\n", time.Now().Format("15:04:05.000000"), prefix, args)
	}, funcr.Options{Verbosity: 1})
}

// start runs a new agent on what is there.
func (w *world) start(more ...podsource.Source) {
	w.Helper()
	if w.agent != nil {
		w.Fatal("an agent runs already")
	}
	d := door{runtime: w.runtime, images: w.runtime, pods: append([]podsource.Source{w.static, w.api}, more...)}
	if !w.noEvents {
		d.events = criEvents(w.runtime)
	}
	n, err := newNode(w.options, d, metrics.New("node"), w.log, w.tell)
	if err != nil {
		w.Fatal(err)
	}
	if w.blind != nil {
		n.handler.unreadable = w.blind
	}
	ctx, stop := context.WithCancel(context.Background())
	w.agent, w.stop, w.done = n, stop, make(chan error, 1)
	go func(done chan error) { done <- n.Run(ctx) }(w.done)
}

// end stops the agent and waits for that. A second one does nothing.
func (w *world) end() {
	w.Helper()
	if w.agent == nil {
		return
	}
	w.stop()
	if err := <-w.done; err != nil {
		w.Errorf("Run = %v, want nil", err)
	}
	w.agent = nil
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Error(err)
	}
}

func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// within waits for cond to hold, in steps of 10 ms of the bubble's clock.
func (w *world) within(d time.Duration, what string, cond func() bool) {
	w.Helper()
	for end := time.Now().Add(d); ; w.sleep(10 * time.Millisecond) {
		synctest.Wait()
		if cond() {
			return
		}
		if time.Now().After(end) {
			w.Fatalf("after %v: not %s\n%s", d, what, w.picture())
		}
	}
}

// always holds cond for d, looked at once per step.
func (w *world) always(d, step time.Duration, what string, cond func() bool) {
	w.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); w.sleep(step) {
		if synctest.Wait(); !cond() {
			w.Fatalf("not %s\n%s", what, w.picture())
		}
	}
}

// inject puts a fault in force that the test's own looks do not meet.
func (w *world) inject(f critest.Fault) (clear func()) {
	match := f.Match
	f.Match = func(c critest.Call) bool { return !w.looking.Load() && (match == nil || match(c)) }
	return w.rt.Inject(f)
}

// away stops the runtime, or brings it back.
func (w *world) away(is bool) {
	w.down = is
	if is {
		w.rt.Stop()
	} else {
		w.rt.Start()
	}
}

// everything is what the runtime has by its own books. All agents rest while
// the test looks, so not even a runtime that is brought back for that moment is
// noticed.
func (w *world) everything() ([]*runtimeapi.Container, map[string]*runtimeapi.PodSandbox) {
	w.Helper()
	synctest.Wait()
	w.looking.Store(true)
	defer w.looking.Store(false)
	if w.down {
		w.rt.Start()
		defer w.rt.Stop()
	}
	all, err := w.rt.ListContainers(context.Background(), nil)
	if err != nil {
		w.Fatal(err)
	}
	list, err := w.rt.ListPodSandbox(context.Background(), nil)
	if err != nil {
		w.Fatal(err)
	}
	slices.SortFunc(all, func(a, b *runtimeapi.Container) int { return cmp.Compare(a.GetCreatedAt(), b.GetCreatedAt()) })
	sandboxes := map[string]*runtimeapi.PodSandbox{}
	for _, s := range list {
		sandboxes[s.GetId()] = s
	}
	return all, sandboxes
}

// containers is everything the runtime has of a pod.
func (w *world) containers(uid types.UID) []*runtimeapi.Container {
	w.Helper()
	all, sandboxes := w.everything()
	var own []*runtimeapi.Container
	for _, c := range all {
		if sandboxes[c.GetPodSandboxId()].GetMetadata().GetUid() == string(uid) {
			own = append(own, c)
		}
	}
	return own
}

func (w *world) running(uid types.UID, name string) (id string, ok bool) {
	for _, c := range w.containers(uid) {
		if c.GetMetadata().GetName() == name && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			return c.GetId(), true
		}
	}
	return "", false
}

func (w *world) runs(uid types.UID, name string) bool {
	_, ok := w.running(uid, name)
	return ok
}

func (w *world) status(uid types.UID) corev1.PodStatus {
	st, _ := w.agent.handler.statuses.Get(observed.UID(uid))
	return st
}

func (w *world) phase(uid types.UID) corev1.PodPhase { return w.status(uid).Phase }

// left is what there is of a pod on disk and in the runtime.
func (w *world) left(uid types.UID) []string {
	var found []string
	for _, c := range w.containers(uid) {
		found = append(found, "container "+c.GetMetadata().GetName()+" "+c.GetState().String())
	}
	_, sandboxes := w.everything()
	for _, s := range sandboxes {
		if s.GetMetadata().GetUid() == string(uid) {
			found = append(found, "sandbox "+s.GetState().String())
		}
	}
	if _, err := os.Stat(filepath.Join(w.options.rootDir, "pods", string(uid))); err == nil {
		found = append(found, "pod directory")
	}
	logs, err := filepath.Glob(filepath.Join(w.options.config.PodLogsDir, "*_"+string(uid)))
	if err != nil {
		w.Fatal(err)
	}
	for range logs {
		found = append(found, "log directory")
	}
	return found
}

func (w *world) gone(uid types.UID) bool { return len(w.left(uid)) == 0 }

// picture is all that there is, for a person who reads a failure.
func (w *world) picture() string {
	all, sandboxes := w.everything()
	text := time.Now().Format("15:04:05.000") + " sandboxes:\n"
	for _, id := range slices.Sorted(maps.Keys(sandboxes)) {
		s := sandboxes[id]
		text += fmt.Sprintf("  %.8s %s attempt %d %s\n", id, s.GetMetadata().GetUid(), s.GetMetadata().GetAttempt(), s.GetState())
	}
	text += "containers:\n"
	for _, c := range all {
		text += fmt.Sprintf("  %.8s in %.8s %s of %s attempt %d %s\n", c.GetId(), c.GetPodSandboxId(), c.GetMetadata().GetName(),
			sandboxes[c.GetPodSandboxId()].GetMetadata().GetUid(), c.GetMetadata().GetAttempt(), c.GetState())
	}
	for _, s := range []*shelf{w.static, w.api} {
		for _, pod := range s.all() {
			text += fmt.Sprintf("wanted: %s %s from %s policy %s deleted %v\n", pod.UID, pod.Name, s.name, pod.Spec.RestartPolicy, pod.DeletionTimestamp != nil)
		}
	}
	if w.agent == nil {
		return text + "no agent\n"
	}
	states := w.agent.workers.States()
	for _, uid := range slices.Sorted(maps.Keys(states)) {
		s := states[uid]
		text += fmt.Sprintf("worker: %s %s since %s deleted %v waiting %v restart %v retry %s error %q\n", uid, s.Phase,
			s.Since.Format("15:04:05.000"), s.Deleted, s.Waiting, s.Restart, s.RetryAt.Format("15:04:05.000"), s.LastError)
	}
	for _, r := range w.agent.handler.statuses.All() {
		text += fmt.Sprintf("status: %s %s %s\n", r.UID, describe(r.Status), r.Status.Message)
	}
	return text
}

// A podOption changes a pod that is being made.
type podOption func(*corev1.Pod)

// makePod makes a pod with one container, app, that runs for ever.
func makePod(name string, uid types.UID, change ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", UID: uid},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyAlways,
			TerminationGracePeriodSeconds: ptr.To[int64](5),
			DNSPolicy:                     corev1.DNSClusterFirst,
			Containers:                    []corev1.Container{container("app")},
		},
	}
	for _, do := range change {
		do(pod)
	}
	return pod
}

func container(name string, words ...string) corev1.Container {
	return corev1.Container{
		Name: name, Image: "registry.example/" + name + ":1", Command: append([]string{"app"}, words...),
		ImagePullPolicy: corev1.PullIfNotPresent, TerminationMessagePath: "/dev/termination-log",
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
}

func policy(p corev1.RestartPolicy) podOption {
	return func(pod *corev1.Pod) { pod.Spec.RestartPolicy = p }
}

func grace(seconds int64) podOption {
	return func(pod *corev1.Pod) { pod.Spec.TerminationGracePeriodSeconds = &seconds }
}

func containers(all ...corev1.Container) podOption {
	return func(pod *corev1.Pod) { pod.Spec.Containers = all }
}

func sidecar(c corev1.Container) corev1.Container {
	c.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	return c
}
