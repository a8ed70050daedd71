package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podspec"
	"github.com/kubeletkit/kubeletkit/podworkers"
)

var (
	simFirst = flag.Uint64("sim.first", 1, "run the simulation with seeds from this one")
	simSeeds = flag.Int("sim.seeds", 0, "run so many of them; default 16, or 4 with -short")
	simSteps = flag.Int("sim.steps", 120, "operations per simulation")
)

// TestSimulation lets a whole node meet seeded random work and trouble, and
// checks at every step what must never happen and at the end what must have. What
// a seed has found is a story or a test of its own room afterwards, since a seed
// means something else as soon as an operation is added here.
func TestSimulation(t *testing.T) {
	seeds := *simSeeds
	switch {
	case seeds > 0:
	case testing.Short():
		seeds = 4
	default:
		seeds = 16
	}
	for i := range seeds {
		seed := *simFirst + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { simulate(t, seed) })
	}
}

func simulate(t *testing.T, seed uint64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Logf("seed %d: go test -run TestSimulation -sim.first=%d -sim.seeds=1 -sim.steps=%d", seed, seed, *simSteps)
		cfg := critest.Config{}
		if seed%4 == 1 {
			cfg = critest.Containerd16()
		}
		cfg.KeepCalls = -1
		s := &sim{
			world: newWorld(t, cfg), rand: rand.New(rand.NewPCG(seed, 0)),
			lives: map[types.UID]*podLife{}, exits: map[string]exit{}, twoReady: map[types.UID]time.Time{},
		}
		s.world.starts, s.noEvents = s.started, seed%4 == 2
		s.runtime.removing = s.removing
		defer s.end()
		s.start()
		for range *simSteps {
			s.step()
			if t.Failed() {
				t.Log(s.story())
				t.Log(s.picture())
				return
			}
		}
		s.settle()
	})
}

// sim is a world with somebody who makes trouble in it, and a book of what may
// not happen. The test's goroutine acts; the book is also written by the runtime.
type sim struct {
	*world
	rand    *rand.Rand
	log     []string
	counter int
	clears  []func() // faults in force

	mu       sync.Mutex
	lives    map[types.UID]*podLife
	exits    map[string]exit // by container ID, as soon as somebody has seen them
	twoReady map[types.UID]time.Time
}

// podLife is what is known of one life of a UID.
type podLife struct {
	pod *corev1.Pod
	// renews is when its pod was taken away or put back. A worker that began later
	// is another life, and so is the next one of the same agent: it may have heard
	// of all that at once.
	renews  time.Time
	renewed bool
	agent   *node
	began   time.Time

	starts map[string]int
	counts map[string]int // the highest restart count of a container that started

	// What was reported in this life. A pod that started before stale is of the
	// life before.
	phase    corev1.PodPhase
	restarts map[string]int32
	stale    time.Time
}

type exit struct {
	uid  types.UID
	name string
	code int32
	at   time.Time
}

func (s *sim) note(format string, args ...any) {
	s.log = append(s.log, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (s *sim) story() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "\n" + strings.Join(s.log, "\n")
}

// started is called by the runtime, with its lock, when a container starts.
func (s *sim) started(c *runtimeapi.ContainerConfig) {
	s.mu.Lock()
	defer s.mu.Unlock()
	uid, name := types.UID(c.GetLabels()[observed.LabelPodUID]), c.GetMetadata().GetName()
	s.note("  starts: %s of %s, restart count %s", name, uid, c.GetAnnotations()[observed.AnnotationRestartCount])
	state, known := s.agent.workers.State(observed.UID(uid))
	if !known || state.Phase >= podworkers.Stopping {
		s.Errorf("container %s of %s starts while its worker is %s", name, uid, state.Phase)
	}
	l := s.lives[uid]
	if l == nil {
		s.Errorf("container %s of %s starts, which was never wanted", name, uid)
		return
	}
	if time.Since(l.renews) < renewsFor && !state.StartedAt.Before(l.renews) &&
		(!l.renewed || l.agent == s.agent && !l.began.Equal(state.StartedAt)) {
		l.renew(uid, s.exits)
		l.renewed, l.agent, l.began = true, s.agent, state.StartedAt
	}
	spec, kind, ok := podspec.Find(l.pod, name)
	if !ok {
		s.Errorf("container %s of %s is not in the pod", name, uid)
		return
	}
	l.starts[name]++
	var count int
	fmt.Sscan(c.GetAnnotations()[observed.AnnotationRestartCount], &count)
	if before, again := l.counts[name]; again && count < before {
		s.Errorf("container %s of %s starts with restart count %d after %d", name, uid, count, before)
	}
	l.counts[name] = count
	switch podspec.PolicyOf(l.pod, spec) {
	case corev1.RestartPolicyNever:
		if l.starts[name] > 1 {
			s.Errorf("container %s of %s, policy Never, starts %d times", name, uid, l.starts[name])
		}
	case corev1.RestartPolicyOnFailure:
		for _, e := range s.exits {
			// A new sandbox runs the init containers again.
			if kind == podspec.Regular && e.uid == uid && e.name == name && e.code == 0 {
				s.Errorf("container %s of %s, policy OnFailure, starts after it had succeeded at %s", name, uid, e.at.Format("15:04:05.000"))
			}
		}
	}
}

// renewsFor is how long an agent may take to hear of a pod that comes and goes.
const renewsFor = time.Hour

// renew begins another life in the book.
func (l *podLife) renew(uid types.UID, exits map[string]exit) {
	l.starts, l.counts = map[string]int{}, map[string]int{}
	for id, e := range exits {
		if e.uid == uid {
			delete(exits, id)
		}
	}
}

// removing writes down how a container ended before its record goes.
func (s *sim) removing(id string) {
	s.looking.Store(true)
	resp, err := s.rt.ContainerStatus(s.Context(), id, false)
	s.looking.Store(false)
	if err != nil {
		return
	}
	st := resp.GetStatus()
	if st.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && st.GetStartedAt() > 0 {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended(id, st)
	}
}

func (s *sim) ended(id string, st *runtimeapi.ContainerStatus) {
	if _, known := s.exits[id]; !known {
		s.exits[id] = exit{
			uid: types.UID(st.GetLabels()[observed.LabelPodUID]), name: st.GetMetadata().GetName(),
			code: st.GetExitCode(), at: time.Unix(0, st.GetFinishedAt()).UTC(),
		}
	}
}

// check looks at everything and holds it against the book.
func (s *sim) check() {
	s.Helper()
	all, sandboxes := s.everything()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkContainers(all, sandboxes)
	s.checkSandboxes(sandboxes)
	if s.agent != nil {
		s.checkStatuses()
	}
}

func (s *sim) checkContainers(all []*runtimeapi.Container, sandboxes map[string]*runtimeapi.PodSandbox) {
	running := map[string]string{}
	static := map[string]types.UID{}
	for _, c := range all {
		uid, name := types.UID(c.GetLabels()[observed.LabelPodUID]), c.GetMetadata().GetName()
		switch c.GetState() {
		case runtimeapi.ContainerState_CONTAINER_RUNNING:
			key := string(uid) + "/" + name
			if other, twice := running[key]; twice {
				s.Errorf("container %s of %s runs twice: %.8s and %.8s", name, uid, other, c.GetId())
			}
			running[key] = c.GetId()
			if sandboxes[c.GetPodSandboxId()] == nil {
				s.Errorf("container %s of %s runs in no sandbox", name, uid)
			}
			if pod := c.GetLabels()[observed.LabelPodName]; strings.HasPrefix(pod, "static-") {
				if other, taken := static[pod]; taken && other != uid {
					s.Errorf("static pod %s runs as %s and as %s", pod, other, uid)
				}
				static[pod] = uid
			}
		case runtimeapi.ContainerState_CONTAINER_EXITED:
			s.looking.Store(true)
			if s.down {
				s.rt.Start()
			}
			resp, err := s.rt.ContainerStatus(s.Context(), c.GetId(), false)
			if s.down {
				s.rt.Stop()
			}
			s.looking.Store(false)
			if err != nil {
				s.Error(err)
			} else if resp.GetStatus().GetStartedAt() > 0 {
				s.ended(c.GetId(), resp.GetStatus())
			}
		}
	}
}

// twoReadyFor is how long a pod may have two ready sandboxes: a call that hangs
// out its limit, and the back-off after it.
const twoReadyFor = 5 * time.Minute

func (s *sim) checkSandboxes(sandboxes map[string]*runtimeapi.PodSandbox) {
	ready := map[types.UID]int{}
	for _, sb := range sandboxes {
		if sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready[types.UID(sb.GetMetadata().GetUid())]++
		}
	}
	for uid := range s.twoReady {
		if ready[uid] < 2 {
			delete(s.twoReady, uid)
		}
	}
	for uid, n := range ready {
		since, before := s.twoReady[uid]
		switch {
		case n < 2:
		case !before:
			s.twoReady[uid] = time.Now()
		case s.agent != nil && !s.down && time.Since(since) > twoReadyFor:
			s.Errorf("pod %s has had %d ready sandboxes since %s", uid, n, since.Format("15:04:05.000"))
		}
	}
}

func (s *sim) checkStatuses() {
	for _, r := range s.agent.handler.statuses.All() {
		l := s.lives[types.UID(r.UID)]
		if l == nil {
			s.Errorf("a status of %s is reported, which was never wanted", r.UID)
			continue
		}
		if !l.stale.IsZero() {
			if r.Status.StartTime == nil || r.Status.StartTime.Time.Before(l.stale) {
				continue
			}
			l.stale, l.phase, l.restarts = time.Time{}, "", map[string]int32{}
		}
		if ended(l.phase) && r.Status.Phase != l.phase {
			s.Errorf("pod %s was reported %s and now %s", r.UID, l.phase, r.Status.Phase)
		}
		if ended(r.Status.Phase) {
			for _, cs := range slices.Concat(r.Status.InitContainerStatuses, r.Status.ContainerStatuses) {
				if cs.State.Running != nil {
					s.Errorf("pod %s is reported %s while container %s runs", r.UID, r.Status.Phase, cs.Name)
				}
			}
		}
		l.phase = r.Status.Phase
		for _, cs := range slices.Concat(r.Status.InitContainerStatuses, r.Status.ContainerStatuses) {
			if cs.RestartCount < l.restarts[cs.Name] {
				s.Errorf("container %s of %s: restart count %d after %d", cs.Name, r.UID, cs.RestartCount, l.restarts[cs.Name])
			}
			l.restarts[cs.Name] = cs.RestartCount
		}
	}
}

// settle lets all trouble end, and then everything else.
func (s *sim) settle() {
	s.quiet()
	s.sleep(30 * time.Minute)
	s.check()
	s.checkWanted()
	s.checkLeftovers()
	if s.Failed() {
		s.Log(s.story(), "\n", s.picture())
		return
	}
	s.note("all pods are taken away")
	for _, sh := range []*shelf{s.static, s.api} {
		for _, pod := range sh.all() {
			s.takeAway(sh, pod)
		}
	}
	s.sleep(10 * time.Minute)
	s.check()
	s.checkLeftovers()
	if all := s.agent.handler.statuses.All(); len(all) > 0 {
		s.Errorf("%d statuses stay", len(all))
	}
	if states := s.agent.workers.States(); len(states) > 0 {
		s.Errorf("workers still know %v", states)
	}
	if s.Failed() {
		s.Log(s.story(), "\n", s.picture())
	}
}

func (s *sim) quiet() {
	s.note("quiet")
	s.rt.ClearFaults()
	s.runtime.straggle.Store(0)
	s.clears = nil
	s.rt.FillDisk(false)
	s.rt.SetNetworkReady(true)
	s.away(false)
	s.static.speaks(true)
	s.api.speaks(true)
	if s.agent == nil {
		s.start()
	}
}

// checkWanted holds the pods that are wanted against what runs.
func (s *sim) checkWanted() {
	for _, pod := range slices.Concat(s.static.all(), s.api.all()) {
		st, _ := s.agent.handler.statuses.Get(observed.UID(pod.UID))
		state, _ := s.agent.workers.State(observed.UID(pod.UID))
		over := ended(st.Phase) || pod.DeletionTimestamp != nil
		for i := range pod.Spec.Containers {
			c := &pod.Spec.Containers[i]
			runs := s.runs(pod.UID, c.Name)
			switch {
			case over && runs:
				s.Errorf("pod %s is over (%s) and its container %s runs", pod.UID, st.Phase, c.Name)
			case !over && !runs && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways && !comesAndGoes(c):
				s.Errorf("container %s of %s does not run: %s, %q", c.Name, pod.UID, describe(st), state.LastError)
			}
		}
		if over && state.Phase != podworkers.Finished {
			s.Errorf("pod %s is over (%s) and its worker is %s: %q", pod.UID, st.Phase, state.Phase, state.LastError)
		}
		if !over && pod.Spec.RestartPolicy == corev1.RestartPolicyAlways && st.Phase != corev1.PodRunning {
			s.Errorf("pod %s is reported %s: %q", pod.UID, describe(st), state.LastError)
		}
		if pod.Spec.RestartPolicy == corev1.RestartPolicyAlways && ended(st.Phase) && pod.DeletionTimestamp == nil {
			s.Errorf("pod %s, policy Always, is reported %s", pod.UID, describe(st))
		}
		if !over && pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && !s.anyRuns(pod) {
			s.Errorf("pod %s, policy %s, is reported %s and nothing runs: %q", pod.UID, pod.Spec.RestartPolicy, describe(st), state.LastError)
		}
	}
}

// comesAndGoes tells a container that is expected to wait for its next start.
func comesAndGoes(c *corev1.Container) bool { return len(c.Command) > 1 && c.Command[1] == "exit" }

func (s *sim) anyRuns(pod *corev1.Pod) bool {
	for c := range podspec.All(pod) {
		if s.runs(pod.UID, c.Name) || comesAndGoes(c) && pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure {
			return true
		}
	}
	return false
}

// checkLeftovers looks for what belongs to no pod that is wanted.
func (s *sim) checkLeftovers() {
	wanted := map[string]bool{}
	for _, pod := range slices.Concat(s.static.all(), s.api.all()) {
		wanted[string(pod.UID)] = true
	}
	all, sandboxes := s.everything()
	ready := map[string]int{}
	for _, sb := range sandboxes {
		if uid := sb.GetMetadata().GetUid(); !wanted[uid] {
			s.Errorf("a sandbox of %s is left, %s", uid, sb.GetState())
		} else if sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			if ready[uid]++; ready[uid] > 1 {
				s.Errorf("pod %s has two ready sandboxes", uid)
			}
		}
	}
	for _, c := range all {
		if uid := c.GetLabels()[observed.LabelPodUID]; !wanted[uid] {
			s.Errorf("container %s of %s is left, %s", c.GetMetadata().GetName(), uid, c.GetState())
		}
	}
	for dir, uidOf := range map[string]func(string) string{
		filepath.Join(s.options.rootDir, "pods"): func(name string) string { return name },
		s.options.config.PodLogsDir:              func(name string) string { return name[strings.LastIndex(name, "_")+1:] },
	} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			s.Error(err)
		}
		for _, e := range entries {
			if !wanted[uidOf(e.Name())] {
				s.Errorf("%s is left in %s", e.Name(), filepath.Base(dir))
			}
		}
	}
}

// adds a pod to a shelf and to the book.
func (s *sim) add(sh *shelf, pod *corev1.Pod) {
	s.note("add %s to %s: %s", pod.UID, sh.name, briefly(pod))
	s.mu.Lock()
	l := s.lives[pod.UID]
	if l == nil {
		l = &podLife{restarts: map[string]int32{}}
		l.renew(pod.UID, s.exits)
		s.lives[pod.UID] = l
	}
	if !l.renews.IsZero() {
		// An agent that was busy may hear of the old life only now.
		l.renews, l.stale, l.renewed = time.Now(), time.Now(), false
	}
	l.pod = pod
	s.mu.Unlock()
	sh.put(pod)
}

func (s *sim) takeAway(sh *shelf, pod *corev1.Pod) {
	s.note("remove %s from %s", pod.UID, sh.name)
	s.mu.Lock()
	l := s.lives[pod.UID]
	l.renews, l.stale, l.renewed = time.Now(), time.Now(), false
	s.mu.Unlock()
	sh.drop(pod.UID)
}

func briefly(pod *corev1.Pod) string {
	words := []string{string(pod.Spec.RestartPolicy), fmt.Sprint("grace ", *pod.Spec.TerminationGracePeriodSeconds)}
	for c, kind := range podspec.All(pod) {
		what := c.Name
		if kind == podspec.Init && podspec.IsSidecar(c) {
			what = "sidecar " + what
		}
		words = append(words, what+"="+strings.Join(c.Command[1:], " "))
	}
	return strings.Join(words, ", ")
}

// randomPod makes a pod of up to five containers.
func (s *sim) randomPod(name string, uid types.UID) *corev1.Pod {
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	pod := makePod(name, uid, policy(policies[s.rand.IntN(3)]), grace(int64(1+s.rand.IntN(30))))
	var init []corev1.Container
	for i := range s.rand.IntN(3) {
		c := container(fmt.Sprint("init-", i), "try", "0", s.short())
		switch {
		case s.rand.IntN(4) == 0:
			c = sidecar(container(fmt.Sprint("side-", i)))
		case s.rand.IntN(4) == 0:
			c = container(fmt.Sprint("init-", i), "try", "2", s.short())
		}
		init = append(init, c)
	}
	pod.Spec.InitContainers = init
	pod.Spec.Containers = nil
	for i := range 1 + s.rand.IntN(2) {
		pod.Spec.Containers = append(pod.Spec.Containers, container(fmt.Sprint("app-", i), s.behavior()...))
	}
	if s.rand.IntN(3) == 0 {
		pod.Spec.Volumes = []corev1.Volume{{Name: "work", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "work", MountPath: "/work"}}
	}
	pod.Spec.HostNetwork = s.rand.IntN(6) == 0
	return pod
}

func (s *sim) short() string {
	return []string{"0s", "1ms", "500ms", "3s", "20s"}[s.rand.IntN(5)]
}

func (s *sim) behavior() []string {
	switch s.rand.IntN(8) {
	case 0:
		return []string{"exit", "0", s.short()}
	case 1:
		return []string{"exit", "3", s.short()}
	case 2:
		return []string{"stubborn"}
	case 3:
		return []string{"slow", s.short()}
	default:
		return nil
	}
}

// pick is a random element, and false when there is none.
func pick[T any](s *sim, all []T) (one T, ok bool) {
	if len(all) == 0 {
		return one, false
	}
	return all[s.rand.IntN(len(all))], true
}

func (s *sim) step() {
	ops := []struct {
		weight int
		do     func()
	}{
		{10, s.opAdd}, {6, s.opRemove}, {4, s.opReplace}, {3, s.opEdit}, {3, s.opComesBack}, {3, s.opDelete},
		{8, s.opKill}, {2, s.opVanish}, {2, s.opUnknown}, {2, s.opFailSandbox}, {1, s.opLoseIP},
		{8, s.opFault}, {2, s.opStraggle}, {4, s.opEventFault}, {3, s.opClear}, {2, s.opRuntime}, {1, s.opDisk}, {1, s.opNetwork}, {2, s.opSilence}, {6, s.opAgent},
	}
	total := 0
	for _, op := range ops {
		total += op.weight
	}
	n := s.rand.IntN(total)
	for _, op := range ops {
		if n -= op.weight; n < 0 {
			op.do()
			break
		}
	}
	waits := []time.Duration{0, 0, time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second, 3 * time.Minute}
	wait := waits[s.rand.IntN(len(waits))]
	s.check()
	for _, part := range []time.Duration{wait / 10, wait / 5, wait - wait/10 - wait/5} {
		s.sleep(part)
		s.check()
	}
}

const names = 4 // per source

func (s *sim) opAdd() {
	s.counter++
	n := s.rand.IntN(names)
	sh, name := s.api, fmt.Sprint("pod-", n)
	if s.rand.IntN(2) == 0 {
		sh, name = s.static, fmt.Sprint("static-", n)
	}
	if slices.ContainsFunc(sh.all(), func(p *corev1.Pod) bool { return p.Name == name }) {
		return
	}
	s.add(sh, s.randomPod(name, types.UID(fmt.Sprintf("%s-v%d", name, s.counter))))
}

// any is a random pod that is wanted, and its shelf.
func (s *sim) any() (*shelf, *corev1.Pod, bool) {
	sh := []*shelf{s.static, s.api}[s.rand.IntN(2)]
	pod, ok := pick(s, sh.all())
	return sh, pod, ok
}

func (s *sim) opRemove() {
	if sh, pod, ok := s.any(); ok {
		s.takeAway(sh, pod)
	}
}

// opReplace is a manifest that was edited, or a pod that was made anew under the
// same name.
func (s *sim) opReplace() {
	sh, pod, ok := s.any()
	if !ok {
		return
	}
	s.counter++
	s.takeAway(sh, pod)
	s.add(sh, s.randomPod(pod.Name, types.UID(fmt.Sprintf("%s-v%d", pod.Name, s.counter))))
}

// opEdit changes a container of a pod that goes on. Under policy Never a changed
// container may run again, so those are left alone.
func (s *sim) opEdit() {
	pod, ok := pick(s, s.api.all())
	if !ok || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways || pod.DeletionTimestamp != nil {
		return
	}
	s.counter++
	pod = pod.DeepCopy()
	pod.Spec.Containers[0].Image = fmt.Sprint("registry.example/app:", s.counter)
	s.add(s.api, pod)
}

// opComesBack removes a pod and puts it back under the same UID.
func (s *sim) opComesBack() {
	sh, pod, ok := s.any()
	if !ok || pod.DeletionTimestamp != nil {
		return
	}
	s.takeAway(sh, pod)
	s.sleep([]time.Duration{0, time.Millisecond, time.Second, 10 * time.Second, time.Minute}[s.rand.IntN(5)])
	s.check()
	if !slices.ContainsFunc(sh.all(), func(p *corev1.Pod) bool { return p.Name == pod.Name }) {
		s.add(sh, pod)
	}
}

// opDelete asks for a graceful end, as the API server does.
func (s *sim) opDelete() {
	pod, ok := pick(s, s.api.all())
	if !ok || pod.DeletionTimestamp != nil {
		return
	}
	pod = pod.DeepCopy()
	pod.DeletionTimestamp = ptr.To(metav1.Now())
	pod.DeletionGracePeriodSeconds = ptr.To(int64(s.rand.IntN(20)))
	s.note("delete %s with grace %d", pod.UID, *pod.DeletionGracePeriodSeconds)
	s.api.put(pod)
}

// oneContainer is a random container in a state.
func (s *sim) oneContainer(in runtimeapi.ContainerState) (*runtimeapi.Container, bool) {
	all, _ := s.everything()
	all = slices.DeleteFunc(all, func(c *runtimeapi.Container) bool { return c.GetState() != in })
	return pick(s, all)
}

func (s *sim) policyOf(c *runtimeapi.Container) corev1.RestartPolicy {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives[types.UID(c.GetLabels()[observed.LabelPodUID])].pod.Spec.RestartPolicy
}

func (s *sim) opKill() {
	if c, ok := s.oneContainer(runtimeapi.ContainerState_CONTAINER_RUNNING); ok {
		s.note("kill %s of %s", c.GetMetadata().GetName(), c.GetLabels()[observed.LabelPodUID])
		if s.rand.IntN(3) == 0 {
			s.must(s.rt.OOM(c.GetId()))
		} else {
			s.must(s.rt.Kill(c.GetId(), int32(1+s.rand.IntN(2))))
		}
	}
}

// opVanish loses the record of a container that has ended and of which the agent
// has reported that: what nobody has seen, nobody can know.
func (s *sim) opVanish() {
	c, ok := s.oneContainer(runtimeapi.ContainerState_CONTAINER_EXITED)
	if !ok || s.agent == nil {
		return
	}
	st, _ := s.agent.handler.statuses.Get(observed.UID(c.GetLabels()[observed.LabelPodUID]))
	for _, cs := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		if t := cs.State.Terminated; t != nil && strings.HasSuffix(t.ContainerID, c.GetId()) {
			s.note("vanish %s of %s", c.GetMetadata().GetName(), c.GetLabels()[observed.LabelPodUID])
			s.must(s.rt.Vanish(c.GetId()))
			return
		}
	}
}

// opUnknown leaves pods of policy Never alone: like the kubelet, the agent stops a
// container in unknown state and starts it again, because it may never have run.
func (s *sim) opUnknown() {
	if c, ok := s.oneContainer(runtimeapi.ContainerState_CONTAINER_RUNNING); ok && s.policyOf(c) != corev1.RestartPolicyNever {
		s.note("unknown %s of %s", c.GetMetadata().GetName(), c.GetLabels()[observed.LabelPodUID])
		s.must(s.rt.SetUnknown(c.GetId()))
	}
}

func (s *sim) oneSandbox() (*runtimeapi.PodSandbox, bool) {
	_, sandboxes := s.everything()
	var ready []*runtimeapi.PodSandbox
	for _, sb := range sandboxes {
		if sb.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready = append(ready, sb)
		}
	}
	slices.SortFunc(ready, func(a, b *runtimeapi.PodSandbox) int { return int(a.GetCreatedAt() - b.GetCreatedAt()) })
	return pick(s, ready)
}

func (s *sim) opFailSandbox() {
	if sb, ok := s.oneSandbox(); ok {
		s.note("fail the sandbox of %s", sb.GetMetadata().GetUid())
		s.must(s.rt.FailSandbox(sb.GetId()))
	}
}

func (s *sim) opLoseIP() {
	if sb, ok := s.oneSandbox(); ok {
		s.note("lose the address of %s", sb.GetMetadata().GetUid())
		s.must(s.rt.LoseIP(sb.GetId()))
	}
}

func (s *sim) opFault() {
	methods := []string{
		"RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "PodSandboxStatus", "ListPodSandbox", "CreateContainer", "StartContainer",
		"StopContainer", "RemoveContainer", "ContainerStatus", "ListContainers", "PullImage", "ImageStatus", "Status",
	}
	f := critest.Fault{Method: methods[s.rand.IntN(len(methods))], Times: 1 + s.rand.IntN(3)}
	switch s.rand.IntN(6) {
	case 0, 1:
		f.Err = errFault
	case 2:
		f.Err, f.Late = errFault, true
	case 3:
		f.Hang = true
	case 4:
		f.Hang, f.Late = true, true
	case 5:
		f.Delay = []time.Duration{10 * time.Millisecond, 3 * time.Second, 70 * time.Second}[s.rand.IntN(3)]
	}
	if f.Method == "PullImage" && f.Hang {
		return // a pull has no time limit
	}
	s.note("fault: %s err %v hang %v late %v delay %v, %d times", f.Method, f.Err != nil, f.Hang, f.Late, f.Delay, f.Times)
	s.clears = append(s.clears, s.inject(f))
}

func (s *sim) opStraggle() {
	d := []time.Duration{time.Second, time.Minute, 3 * time.Minute}[s.rand.IntN(3)]
	s.note("the next create straggles by %v", d)
	s.runtime.straggle.Store(int64(d))
}

func (s *sim) opEventFault() {
	f := critest.EventFault{Times: 1 + s.rand.IntN(5)}
	switch s.rand.IntN(4) {
	case 0:
		f.Drop = true
	case 1:
		f.Duplicate = true
	case 2:
		f.Reorder = true
	case 3:
		f.Delay = time.Duration(1+s.rand.IntN(5)) * time.Second
	}
	s.note("events: drop %v duplicate %v reorder %v delay %v, %d times", f.Drop, f.Duplicate, f.Reorder, f.Delay, f.Times)
	s.rt.InjectEvents(f)
}

func (s *sim) opClear() {
	for _, clear := range s.clears {
		clear()
	}
	s.clears = nil
}

func (s *sim) opRuntime() {
	if s.down {
		if s.rand.IntN(2) == 0 {
			s.inject(critest.Fault{Method: "ListPodSandbox", Empty: true, Times: 1})
			s.inject(critest.Fault{Method: "ListContainers", Empty: true, Times: 1})
		}
		s.note("runtime comes back")
		s.away(false)
		return
	}
	s.note("runtime goes away")
	s.away(true)
}

func (s *sim) opDisk() {
	full := s.rand.IntN(2) == 0
	s.note("disk of the runtime full: %v", full)
	s.rt.FillDisk(full)
}

func (s *sim) opNetwork() {
	ready := s.rand.IntN(2) == 0
	s.note("network ready: %v", ready)
	s.rt.SetNetworkReady(ready)
}

func (s *sim) opSilence() {
	sh := []*shelf{s.static, s.api}[s.rand.IntN(2)]
	heard := s.rand.IntN(2) == 0
	s.note("source %s speaks: %v", sh.name, heard)
	sh.speaks(heard)
}

func (s *sim) opAgent() {
	if s.agent == nil {
		s.note("agent starts")
		s.start()
		return
	}
	s.note("agent ends")
	s.end()
	if s.rand.IntN(2) == 0 {
		s.note("agent starts")
		s.start()
	}
}
