package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/test/report"
)

// observation is one manifest, and what is true of its pod from inside and from
// outside. The pods of one table run at the same time.
type observation struct {
	// name is a sentence: what is observed.
	name string
	// meta and spec are YAML of metadata and spec, indented by two blanks. meta may
	// be empty: the pod's name is made from its place in the table.
	meta, spec string
	// objects are documents in front of the pod: config maps and secrets. NAME, there
	// and in spec, is the pod's name.
	objects string
	// until says when the pod is ready to be looked at; default [ended].
	until func(corev1.Pod) error
	check func(t *testing.T, s sight)
}

// sight is all that can be seen of the pod of an observation.
type sight struct {
	agent *Agent
	Name  string // the pod's, without the node's
	Pod   corev1.Pod
	// Report is what the container "c" saw, Reports what each container saw whose
	// log has a report; the last one counts.
	Report  report.Report
	Reports map[string]report.Report
}

// ended waits for a pod whose containers have all exited with status 0.
func ended(p corev1.Pod) error { return inPhase(corev1.PodSucceeded)(p) }

// inPhase waits for a phase.
func inPhase(want corev1.PodPhase) func(corev1.Pod) error {
	return func(p corev1.Pod) error {
		if p.Status.Phase != want {
			return fmt.Errorf("phase %q, want %q: %s %s %s", p.Status.Phase, want, p.Status.Reason, p.Status.Message, states(p))
		}
		return nil
	}
}

// waiting waits for a container that waits for the given reason.
func waiting(container, reason string) func(corev1.Pod) error {
	return func(p corev1.Pod) error {
		for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
			if w := c.State.Waiting; c.Name == container && w != nil && w.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("container %s does not wait for %s: %s", container, reason, states(p))
	}
}

func states(p corev1.Pod) string {
	var all []string
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		data, _ := json.Marshal(c.State)
		all = append(all, c.Name+" "+string(data))
	}
	return strings.Join(all, ", ")
}

// observeWithin bounds the time until the last pod of a table can be looked at.
const observeWithin = 2 * time.Minute

// observe runs the pods of a table on one agent and checks each.
func observe(t *testing.T, o Options, table []observation) {
	t.Helper()
	if o.Config == nil {
		o.Config = map[string]any{}
	}
	o.Config["maxPods"] = 300
	a := StartAgent(t, o)
	for i, one := range table {
		a.Write(observationName(i)+".yaml", one.manifest(observationName(i)))
	}
	// All pods have the same time: they start together.
	deadline := time.Now().Add(observeWithin)
	for i, one := range table {
		t.Run(one.name, func(t *testing.T) {
			until := one.until
			if until == nil {
				until = ended
			}
			s := sight{agent: a, Name: observationName(i)}
			Eventually(t, max(time.Until(deadline), time.Second), func() (err error) {
				if s.Pod, err = a.Pod(s.Name); err == nil {
					err = until(s.Pod)
				}
				if err != nil {
					err = fmt.Errorf("%w\n%s", err, one.manifest(s.Name))
				}
				return err
			})
			s.readReports(t)
			one.check(t, s)
		})
	}
	for i := range table {
		// A check may have ended its pod already.
		if err := os.Remove(filepath.Join(a.Manifests, observationName(i)+".yaml")); !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
	}
	a.NothingLeft(90 * time.Second)
}

func observationName(i int) string { return fmt.Sprintf("o%d", i) }

func (o observation) manifest(name string) string {
	var b strings.Builder
	if o.objects != "" {
		b.WriteString(strings.TrimSpace(o.objects) + "\n---\n")
	}
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n  namespace: default\n%s\nspec:\n", name, strings.Trim(o.meta, "\n"))
	if !strings.Contains(o.spec, "restartPolicy:") || strings.Index(o.spec, "restartPolicy:") > strings.Index(o.spec, "ontainers:") {
		b.WriteString("  restartPolicy: Never\n")
	}
	if !strings.Contains("\n"+o.spec, "\n  terminationGracePeriodSeconds:") {
		b.WriteString("  terminationGracePeriodSeconds: 2\n")
	}
	b.WriteString(strings.Trim(o.spec, "\n") + "\n")
	return strings.ReplaceAll(b.String(), "NAME", name)
}

// readReports reads the containers' logs. A line of a CRI log is time, stream, tag
// and text; a tag P is a part that goes on in the next line.
func (s *sight) readReports(t *testing.T) {
	t.Helper()
	s.Reports = map[string]report.Report{}
	files, err := filepath.Glob(filepath.Join(s.agent.PodLogs, "*_"+s.Pod.Name+"_*", "*", "*.log"))
	require.NoError(t, err)
	for _, file := range files {
		for _, line := range logLines(t, file) {
			var r report.Report
			if strings.HasPrefix(line, `{"args"`) && json.Unmarshal([]byte(line), &r) == nil {
				s.Reports[filepath.Base(filepath.Dir(file))] = r
			}
		}
	}
	s.Report = s.Reports["c"]
}

func logLines(t *testing.T, file string) []string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var lines []string
	var part strings.Builder
	for line := range strings.Lines(string(data)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(f) < 4 {
			continue
		}
		part.WriteString(f[3])
		if f[2] == "F" {
			lines = append(lines, part.String())
			part.Reset()
		}
	}
	return lines
}

// Lines are what a container has written, over all its instances in order.
func (s sight) Lines(t *testing.T, container string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(s.agent.PodLogs, "*_"+s.Pod.Name+"_*", container, "*.log"))
	require.NoError(t, err)
	var all []string
	for _, file := range files {
		all = append(all, logLines(t, file)...)
	}
	return all
}

// End takes the pod's manifest away and waits until nothing of the pod is left.
func (s sight) End(t *testing.T) {
	t.Helper()
	s.agent.Remove(s.Name + ".yaml")
	Eventually(t, 30*time.Second, func() error {
		if _, err := s.agent.Pod(s.Name); err == nil || len(sandboxes(t, s.Name)) > 0 {
			return fmt.Errorf("pod %s is still there", s.Name)
		}
		return nil
	})
}

// Status is the container's reported status.
func (s sight) Status(t *testing.T, container string) corev1.ContainerStatus {
	t.Helper()
	st := s.Pod.Status
	for _, list := range [][]corev1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses} {
		for _, c := range list {
			if c.Name == container {
				return c
			}
		}
	}
	t.Fatalf("container %s has no status", container)
	return corev1.ContainerStatus{}
}

// Container is the runtime's word on the container's newest instance.
func (s sight) Container(t *testing.T, name string) *cri.ContainerStatus {
	t.Helper()
	var newest *cri.Container
	for _, c := range containers(t, s.Name, name) {
		if newest == nil || c.CreatedAt > newest.CreatedAt {
			newest = c
		}
	}
	require.NotNil(t, newest, "the runtime has no container %s", name)
	return container(t, newest.Id)
}

// Sandbox is the runtime's word on the pod's newest sandbox.
func (s sight) Sandbox(t *testing.T) *cri.PodSandboxStatus {
	t.Helper()
	var newest *cri.PodSandbox
	for _, b := range sandboxes(t, s.Name) {
		if newest == nil || b.CreatedAt > newest.CreatedAt {
			newest = b
		}
	}
	require.NotNil(t, newest, "the runtime has no sandbox of pod %s", s.Name)
	answer, err := the.daemon.Runtime().PodSandboxStatus(look(t), &cri.PodSandboxStatusRequest{PodSandboxId: newest.Id})
	require.NoError(t, err)
	return answer.Status
}

func TestObserveTheBasics(t *testing.T) {
	observe(t, Options{}, []observation{
		{
			name: "command, args and env are expanded",
			spec: `
  containers:
  - name: c
    image: KK
    command: [/kk]
    args: [look, "$(A)", "$$(A)", "$(NONE)", "$(B)"]
    workingDir: /tmp
    env: [{name: A, value: one}, {name: B, value: "$(A)-$(LATER)"}, {name: LATER, value: x}]
`,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []string{"/kk", "look", "one", "$(A)", "$(NONE)", "one-$(LATER)"}, s.Report.Args)
				require.Equal(t, "one-$(LATER)", s.Report.Env["B"])
				require.Equal(t, "/tmp", s.Report.Dir)
			},
		},
		{
			name: "labels and annotations are on the sandbox",
			meta: `
  labels: {app: web}
  annotations: {example.com/note: "a b"}
`,
			spec: `
  containers: [{name: c, image: KK, args: [look]}]
`,
			check: func(t *testing.T, s sight) {
				sb := s.Sandbox(t)
				require.Equal(t, "web", sb.Labels["app"])
				require.Equal(t, "a b", sb.Annotations["example.com/note"])
				require.Equal(t, string(s.Pod.UID), sb.Labels[observed.LabelPodUID])
			},
		},
		{
			name: "a container has process IDs and a host name of its own",
			spec: `
  hostname: somebody
  containers: [{name: c, image: KK, args: [look]}]
`,
			check: func(t *testing.T, s sight) {
				require.Equal(t, []int{1}, s.Report.Processes)
				require.Equal(t, "somebody", s.Report.Hostname)
			},
		},
	})
}
