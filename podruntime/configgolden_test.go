package podruntime_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
	"github.com/kubeletkit/kubeletkit/podspec"
)

var update = flag.Bool("update", false, "write what came out into testdata/config")

// TestConfigGolden reads testdata/config: in each file a sentence, a pod, what it
// meets, and then what the runtime is told of it. Only what differs from what is
// told of a pod that has the same containers and asks for nothing is shown; what
// that is stands in plain.txt.
func TestConfigGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/config/*.txt")
	if err != nil || len(files) < 40 {
		t.Fatalf("%d cases, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c := parseConfigCase(t, string(data))
			got := c.inputs + c.outputs(t, filepath.Base(file) == "plain.txt")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(data) {
				t.Errorf("%s\ndiffers; want:\n%s\ngot:\n%s", file, data, got)
			}
		})
	}
}

// configCase is one file. Beside the pod it may have
//
//   - node: a [podruntime.Config], as far as it is data
//   - given: what other rooms bring, by the name of the container
type configCase struct {
	inputs string // the file up to what comes out
	pod    corev1.Pod
	node   struct {
		NodeMemory     int64
		SeccompDefault bool
		SeccompRoot    string
		Resources      podruntime.ResourcePolicy
	}
	given struct {
		Sandbox    podruntime.SandboxSpec
		Containers map[string]podruntime.ContainerSpec
		Images     map[string]observed.Image
		Seen       observed.Pod
	}
}

func parseConfigCase(t *testing.T, text string) *configCase {
	t.Helper()
	c := new(configCase)
	into := map[string]any{"pod": &c.pod, "node": &c.node, "given": &c.given}
	parts := strings.SplitAfter("\n"+text, "\n-- ")
	c.inputs = strings.TrimSuffix(parts[0][1:], "-- ")
	for _, part := range parts[1:] {
		name, body, ok := strings.Cut(strings.TrimSuffix(part, "-- "), " --\n")
		target := into[name]
		if !ok || target == nil {
			break // here begins what came out
		}
		if err := yaml.UnmarshalStrict([]byte(body), target); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.inputs += "-- " + name + " --\n" + body
	}
	c.pod.Name, c.pod.Namespace, c.pod.UID = "web", "default", "uid-1"
	if len(c.pod.Spec.Containers) == 0 {
		c.pod.Spec.Containers = []corev1.Container{{Name: "app"}}
	}
	for container := range podspec.All(&c.pod) {
		if container.Image == "" {
			container.Image = "img:1"
		}
	}
	return c
}

// bare is the pod that asks for nothing.
func (c *configCase) bare() *configCase {
	b := new(configCase)
	b.pod.ObjectMeta.Name, b.pod.Namespace, b.pod.UID = c.pod.Name, c.pod.Namespace, c.pod.UID
	for container, kind := range podspec.All(&c.pod) {
		one := corev1.Container{Name: container.Name, Image: container.Image}
		switch kind {
		case podspec.Init:
			b.pod.Spec.InitContainers = append(b.pod.Spec.InitContainers, one)
		case podspec.Regular:
			b.pod.Spec.Containers = append(b.pod.Spec.Containers, one)
		case podspec.Ephemeral:
			b.pod.Spec.EphemeralContainers = append(b.pod.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon(one)})
		}
	}
	b.node.NodeMemory = c.node.NodeMemory
	return b
}

// told is the configuration per sandbox and container, or its error.
type told struct {
	name   string
	config proto.Message
	err    error
}

func (c *configCase) told(t *testing.T) []told {
	t.Helper()
	m, err := podruntime.NewMapper(podruntime.Config{
		NodeMemory: c.node.NodeMemory, SeccompDefault: c.node.SeccompDefault, SeccompRoot: c.node.SeccompRoot, Resources: c.node.Resources,
	})
	if err != nil {
		t.Fatal(err)
	}
	sandbox, err := m.Sandbox(&c.pod, c.given.Sandbox)
	all := []told{{"sandbox", sandbox, err}}
	if err != nil {
		return all
	}
	for container := range podspec.All(&c.pod) {
		image, ok := c.given.Images[container.Name]
		if !ok {
			image.ID = "sha256:1"
		}
		config, err := m.Container(&c.pod, container.Name, sandbox, c.given.Seen, c.given.Containers[container.Name], image)
		all = append(all, told{container.Name, config, err})
	}
	return all
}

func (c *configCase) outputs(t *testing.T, whole bool) string {
	t.Helper()
	var out strings.Builder
	plain := c.bare().told(t)
	for i, x := range c.told(t) {
		var lines []string
		switch {
		case x.err != nil:
			lines = []string{"error: " + x.err.Error()}
		case whole:
			lines = differences(x.config, nil)
		default:
			lines = differences(x.config, plain[i].config)
		}
		if len(lines) > 0 {
			fmt.Fprintf(&out, "-- %s --\n%s\n", x.name, strings.Join(lines, "\n"))
		}
	}
	return out.String()
}

// differences has a line per value, in the order of the fields.
func differences(now, base proto.Message) []string {
	values, before := flat(now), map[string]string{}
	var lines []string
	if base != nil {
		for _, v := range flat(base) {
			before[v[0]] = v[1]
		}
	}
	for _, v := range values {
		if old, ok := before[v[0]]; !ok || old != v[1] {
			lines = append(lines, v[0]+": "+v[1])
		}
		delete(before, v[0])
	}
	var gone []string
	for path := range before {
		gone = append(gone, path+": not set")
	}
	slices.Sort(gone)
	return append(lines, gone...)
}

// flat gives each value of a message its path.
func flat(m proto.Message) (all [][2]string) {
	var message func(path string, m protoreflect.Message)
	value := func(path string, f protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch {
		case f.Message() != nil && f.Message().Name() == "Int64Value":
			all = append(all, [2]string{path, fmt.Sprint(v.Message().Get(f.Message().Fields().Get(0)))})
		case f.Message() != nil:
			message(path, v.Message())
		case f.Enum() != nil:
			all = append(all, [2]string{path, string(f.Enum().Values().ByNumber(v.Enum()).Name())})
		case f.Kind() == protoreflect.BytesKind:
			all = append(all, [2]string{path, string(v.Bytes())})
		default:
			all = append(all, [2]string{path, v.String()})
		}
	}
	message = func(path string, m protoreflect.Message) {
		for i := range m.Descriptor().Fields().Len() {
			f := m.Descriptor().Fields().Get(i)
			at, v := strings.TrimPrefix(path+"."+string(f.Name()), "."), m.Get(f)
			switch {
			case f.IsMap():
				start := len(all)
				v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
					value(at+"["+k.String()+"]", f.MapValue(), v)
					return true
				})
				slices.SortFunc(all[start:], func(a, b [2]string) int { return strings.Compare(a[0], b[0]) })
			case f.IsList():
				for j := range v.List().Len() {
					value(fmt.Sprintf("%s[%d]", at, j), f, v.List().Get(j))
				}
			case m.Has(f) || f.Enum() != nil:
				value(at, f, v)
			}
		}
	}
	message("", m.ProtoReflect())
	return all
}
