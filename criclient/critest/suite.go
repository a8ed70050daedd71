package critest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
)

// Target is a runtime for [Suite], with what the suite cannot know about it.
type Target struct {
	Runtime cri.RuntimeService
	Images  cri.ImageManagerService

	// Forever runs until it is stopped. It ends on TERM, or is killed.
	Forever Program
	// Exit3 exits with code 3 at once.
	Exit3 Program
	// Hello prints the line "hello" and exits 0. Without it, log content is not checked.
	Hello Program
	// Stubborn ignores TERM. Without it, waiting out a grace period is not checked.
	Stubborn Program
	// Pull is an image in a registry that the suite may pull and remove. It must
	// be none of the others under another name: a removal takes all names.
	// Without it, pulling is not checked.
	Pull string
	// True is a command that exits 0 in a container of Forever. Without it,
	// ExecSync is not checked.
	True []string

	Namespace string // of the pods; default "critest"
	UID       string // pod UIDs begin with it; default is made from the clock
	LogDir    string // where the runtime writes logs; default a temporary directory

	// IsNotFound and IsUnimplemented read the client's errors; default is by gRPC code.
	IsNotFound      func(error) bool
	IsUnimplemented func(error) bool
}

// Program is an image, which must be present, and what to run in it.
type Program struct {
	Image         string
	Command, Args []string
}

// suiteWait bounds what a real runtime may take for anything.
const suiteWait = 30 * time.Second

// Suite checks the promises of a CRI runtime that agents build upon, each in a
// subtest. open is called for each of them; it may return the same runtime
// again. The suite leaves nothing behind. [Runtime] and containerd pass it.
func Suite(t *testing.T, open func(*testing.T) Target) {
	for _, group := range [][]promise{runtimePromises(), sandboxPromises(), containerPromises(), logPromises(), imagePromises(), eventPromises()} {
		for _, p := range group {
			t.Run(p.name, func(t *testing.T) { p.check(newPromiseTest(t, open(t))) })
		}
	}
}

type promise struct {
	name  string
	check func(*promiseTest)
}

// promiseTest is one subtest of the suite and the runtime it talks to.
type promiseTest struct {
	*testing.T
	Target
	ctx  context.Context
	pods int
}

func newPromiseTest(t *testing.T, target Target) *promiseTest {
	target.Namespace = cmp.Or(target.Namespace, "critest")
	target.UID = cmp.Or(target.UID, "critest-"+strconv.FormatInt(time.Now().UnixNano(), 36))
	target.LogDir = cmp.Or(target.LogDir, t.TempDir())
	byCode := func(code codes.Code) func(error) bool {
		return func(err error) bool { return err != nil && status.Code(err) == code }
	}
	if target.IsNotFound == nil {
		target.IsNotFound = byCode(codes.NotFound)
	}
	if target.IsUnimplemented == nil {
		target.IsUnimplemented = byCode(codes.Unimplemented)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*suiteWait)
	t.Cleanup(cancel)
	return &promiseTest{T: t, Target: target, ctx: ctx}
}

// ok ends the subtest on an error.
func (p *promiseTest) ok(err error, doing string) {
	p.Helper()
	if err != nil {
		p.Fatalf("%s: %v", doing, err)
	}
}

// podConfig makes the configuration of a pod that no other has.
func (p *promiseTest) podConfig() *runtimeapi.PodSandboxConfig {
	p.Helper()
	p.pods++
	uid := fmt.Sprintf("%s-%x-%d", p.UID, digestOf(p.Name())[7:15], p.pods)
	name := fmt.Sprintf("pod-%d", p.pods)
	logs := filepath.Join(p.LogDir, uid)
	p.ok(os.MkdirAll(filepath.Join(logs, "app"), 0o755), "make log directory")
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: p.Namespace, Uid: uid},
		Hostname:     name,
		LogDirectory: logs,
		Labels: map[string]string{
			observed.LabelPodName: name, observed.LabelPodNamespace: p.Namespace, observed.LabelPodUID: uid,
		},
		Annotations: map[string]string{"critest/annotation": "kept"},
		Linux:       &runtimeapi.LinuxPodSandboxConfig{},
	}
}

// run makes a sandbox that goes away with the subtest.
func (p *promiseTest) run(cfg *runtimeapi.PodSandboxConfig) string {
	p.Helper()
	id, err := p.Runtime.RunPodSandbox(p.ctx, cfg, "")
	p.ok(err, "RunPodSandbox")
	p.removeAtEnd(id)
	return id
}

func (p *promiseTest) removeAtEnd(sandboxID string) {
	p.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), suiteWait)
		defer cancel()
		if err := p.Runtime.StopPodSandbox(ctx, sandboxID); err != nil && !p.IsNotFound(err) {
			p.Errorf("clean up: StopPodSandbox: %v", err)
		}
		if err := p.Runtime.RemovePodSandbox(ctx, sandboxID); err != nil && !p.IsNotFound(err) {
			p.Errorf("clean up: RemovePodSandbox: %v", err)
		}
	})
}

func (p *promiseTest) containerConfig(pod *runtimeapi.PodSandboxConfig, prog Program) *runtimeapi.ContainerConfig {
	labels := map[string]string{observed.LabelContainerName: "app"}
	for k, v := range pod.GetLabels() {
		labels[k] = v
	}
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: "app"},
		Image:       &runtimeapi.ImageSpec{Image: prog.Image},
		Command:     prog.Command,
		Args:        prog.Args,
		Labels:      labels,
		Annotations: map[string]string{observed.AnnotationRestartCount: "0"},
		LogPath:     filepath.Join("app", "0.log"),
		Linux:       &runtimeapi.LinuxContainerConfig{},
	}
}

func (p *promiseTest) create(sandbox string, pod *runtimeapi.PodSandboxConfig, prog Program) string {
	p.Helper()
	id, err := p.Runtime.CreateContainer(p.ctx, sandbox, p.containerConfig(pod, prog), pod)
	p.ok(err, "CreateContainer")
	return id
}

// started makes a pod with one started container.
func (p *promiseTest) started(prog Program) (pod *runtimeapi.PodSandboxConfig, sandbox, container string) {
	p.Helper()
	pod = p.podConfig()
	sandbox = p.run(pod)
	container = p.create(sandbox, pod, prog)
	p.ok(p.Runtime.StartContainer(p.ctx, container), "StartContainer")
	return pod, sandbox, container
}

func (p *promiseTest) container(id string) *runtimeapi.ContainerStatus {
	p.Helper()
	resp, err := p.Runtime.ContainerStatus(p.ctx, id, false)
	p.ok(err, "ContainerStatus")
	return resp.GetStatus()
}

func (p *promiseTest) sandbox(id string) *runtimeapi.PodSandboxStatus {
	p.Helper()
	resp, err := p.Runtime.PodSandboxStatus(p.ctx, id, false)
	p.ok(err, "PodSandboxStatus")
	return resp.GetStatus()
}

// becomes waits until a container is in a state.
func (p *promiseTest) becomes(id string, state runtimeapi.ContainerState) *runtimeapi.ContainerStatus {
	p.Helper()
	var st *runtimeapi.ContainerStatus
	p.eventually(func() error {
		st = p.container(id)
		if st.GetState() != state {
			return fmt.Errorf("container is %s, want %s", st.GetState(), state)
		}
		return nil
	})
	return st
}

// eventually asks again until try succeeds. A real runtime is a machine with
// queues: nothing but the end of the deadline is proof.
func (p *promiseTest) eventually(try func() error) {
	p.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(suiteWait)
	defer deadline.Stop()
	for {
		err := try()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			p.Fatalf("after %v: %v", suiteWait, err)
		}
	}
}

// equal reports a difference and goes on.
func equal[T comparable](p *promiseTest, what string, got, want T) {
	p.Helper()
	if got != want {
		p.Errorf("%s = %v, want %v", what, got, want)
	}
}
