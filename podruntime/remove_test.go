package podruntime_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/podruntime"
)

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

func TestRemoveContainerTakesItsLogsAlong(t *testing.T) {
	for _, listed := range []bool{false, true} {
		n := newNode(t)
		p := pod("Always", "a")
		n.must(p)
		dir := filepath.Join(n.logs, "default_web_uid-1", "a")
		for _, name := range []string{"0.log.20260102-150405", "0.log.20260102-150405.gz", "0.log2", "00.log", "1.log", "10.log"} {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(files(t, n.links)); got != 1 {
			t.Fatalf("%d links, want 1", got)
		}
		c, _ := n.see(p).Container("a")
		if listed { // a listing has no log path
			c.LogPath = ""
		}
		if err := n.r.RemoveContainer(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if got, want := files(t, dir), []string{"0.log2", "00.log", "1.log", "10.log"}; !slices.Equal(got, want) {
			t.Errorf("left in the log directory: %q, want %q", got, want)
		}
		if got := files(t, n.links); len(got) != 0 {
			t.Errorf("left links: %q", got)
		}
		if len(n.see(p).Containers) != 0 {
			t.Error("the container is still there")
		}
	}
}

func TestRemoveContainerNeverLeavesTheLogDirectory(t *testing.T) {
	n := newNode(t)
	outside := filepath.Join(t.TempDir(), "a", "0.log")
	for _, path := range []string{outside, filepath.Join(n.logs, "stray.log"), filepath.Join(n.logs, "x", "stray.log"), filepath.Join(n.logs, "a", "b", "c", "0.log")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, said := range []string{path, filepath.Join(n.logs, "..", "..", path), n.logs + "/default_web_u/a/../../.." + path} {
			if err := n.r.RemoveContainer(t.Context(), observed.Container{ID: "x", Name: "a", LogPath: said}); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(path); err != nil {
				t.Fatalf("%s was removed because the runtime said %s", path, said)
			}
		}
	}
}

func TestRemoveContainerKeepsTheRecordWhenTheRuntimeFails(t *testing.T) {
	n := newNode(t)
	p := pod("Always", "a")
	n.must(p)
	c, _ := n.see(p).Container("a")
	n.rt.FailNext("RemoveContainer", errors.New("busy"))
	if err := n.r.RemoveContainer(t.Context(), c); err == nil || err.Error() != "remove container a ("+string(c.ID)+"): busy" {
		t.Errorf("error = %v", err)
	}
	c.LogPath = ""
	n.rt.FailNext("ContainerStatus", errors.New("busy"))
	if err := n.r.RemoveContainer(t.Context(), c); err == nil {
		t.Error("no error when the log path is not known")
	}
}

func TestRemoveSandbox(t *testing.T) {
	n := newNode(t)
	p := pod("Always", "a")
	n.must(p)
	sb, _ := n.see(p).Sandbox()
	n.calls()
	if err := n.r.RemoveSandbox(t.Context(), sb.ID); err != nil {
		t.Fatal(err)
	}
	n.wantCalls("StopPodSandbox", "RemovePodSandbox")
	if n.see(p).Exists() {
		t.Error("something is left")
	}
	for _, method := range []string{"StopPodSandbox", "RemovePodSandbox"} {
		n.rt.FailNext(method, errors.New("busy"))
		if err := n.r.RemoveSandbox(t.Context(), sb.ID); err == nil {
			t.Errorf("no error although %s failed", method)
		}
	}
}

func TestOldInitContainersGo(t *testing.T) {
	n := newNode(t)
	n.rt.AddImage("img:1", critest.Behavior{})
	p := pod("Always", "i:i0", "a")
	n.must(p)
	id, _ := n.rt.FindContainer("uid-1", "i0")
	if err := n.rt.Kill(id, 0); err != nil {
		t.Fatal(err)
	}
	n.must(p)
	n.wantRunning(p, "a#0")
	sandbox, _ := n.rt.FindSandbox("uid-1")
	if err := n.rt.StopPodSandbox(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	plan := podruntime.ComputePodActions(p, n.see(p), podruntime.Inputs{})
	if plan.String() != "kill pod, remove [i0], create sandbox, start [i0]" {
		t.Errorf("plan = %s", plan)
	}
	n.must(p)
	if got := len(n.see(p).Instances("i0")); got != 1 {
		t.Errorf("%d instances of the init container, want the new one only", got)
	}
}
