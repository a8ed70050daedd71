package critest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient/critest"
	"github.com/kubeletkit/kubeletkit/observed"
)

// logged starts a container with a log file and returns its ID and the path.
func logged(t *testing.T, rt *critest.Runtime, image string) (id, path string) {
	t.Helper()
	p := pod("u1")
	p.LogDirectory = t.TempDir()
	sb, err := rt.RunPodSandbox(t.Context(), p, "")
	require.NoError(t, err)
	cfg := ctr("u1", "app", image)
	cfg.LogPath = "0.log"
	id, err = rt.CreateContainer(t.Context(), sb, cfg, p)
	require.NoError(t, err)
	require.NoError(t, rt.StartContainer(t.Context(), id))
	return id, filepath.Join(p.LogDirectory, "0.log")
}

// lines returns a log without the times, which it checks.
func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var got []string
	for line := range strings.Lines(string(text)) {
		at, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		_, err := time.Parse(time.RFC3339Nano, at)
		require.NoError(t, err)
		got = append(got, rest)
	}
	return got
}

func TestLinesArePrintedInTheCRIFormatAtTheirTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("img", critest.Behavior{
			Print: []critest.Line{{Text: "begin"}, {Text: "half", Partial: true}, {Text: "done", After: time.Second}, {Text: "oops", Stderr: true, After: time.Hour}},
			Exits: true, After: time.Minute,
		})
		id, path := logged(t, rt, "img")
		require.Equal(t, []string{"stdout F begin", "stdout P half"}, lines(t, path))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, []string{"stdout F begin", "stdout P half", "stdout F done"}, lines(t, path))
		time.Sleep(2 * time.Hour)
		require.Len(t, lines(t, path), 3, "it exited before the last line")
		require.Equal(t, path, statusOf(t, rt, id).GetLogPath())
	})
}

func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := critest.New(critest.Config{})
		rt.AddImage("img", critest.Behavior{Print: []critest.Line{{Text: "tick"}}, PrintEvery: time.Second})
		id, path := logged(t, rt, "img")
		wait := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		wait(2500 * time.Millisecond)
		require.Len(t, lines(t, path), 3)

		require.NoError(t, os.Rename(path, path+".1"))
		wait(time.Second)
		require.Len(t, lines(t, path+".1"), 4, "until it reopens it writes to the old file")
		require.NoFileExists(t, path)
		require.NoError(t, rt.ReopenContainerLog(t.Context(), id))
		wait(2 * time.Second)
		require.Len(t, lines(t, path), 2)
		require.Len(t, lines(t, path+".1"), 4)

		rt.FillDisk(true)
		wait(time.Minute)
		rt.FillDisk(false)
		require.Len(t, lines(t, path), 2, "a full disk loses lines")

		require.NoError(t, os.RemoveAll(filepath.Dir(path)))
		require.ErrorContains(t, rt.ReopenContainerLog(t.Context(), id), "failed to create and open log file")
		require.NoError(t, rt.Kill(id, 0))
		require.ErrorContains(t, rt.ReopenContainerLog(t.Context(), id), "not running")
	})
}

func TestAMissingLogDirectoryFailsTheStart(t *testing.T) {
	rt := critest.New(critest.Config{})
	rt.AddImage("img", critest.Behavior{})
	p := pod("u1")
	p.LogDirectory = filepath.Join(t.TempDir(), "missing")
	sb, err := rt.RunPodSandbox(t.Context(), p, "")
	require.NoError(t, err)
	cfg := ctr("u1", "app", "img")
	cfg.LogPath = "app/0.log"
	id, err := rt.CreateContainer(t.Context(), sb, cfg, p)
	require.NoError(t, err)
	require.ErrorContains(t, rt.StartContainer(t.Context(), id), "failed to create container loggers")
	require.Equal(t, "StartError", statusOf(t, rt, id).GetReason())
}

func TestTheTerminationMessageIsLeftUnlessTheContainerIsKilled(t *testing.T) {
	tests := []struct {
		name   string
		path   string // annotation; empty for none
		end    func(*critest.Runtime, string) error
		exists bool
	}{
		{"it exits, default path", "", func(rt *critest.Runtime, id string) error { return rt.Kill(id, 0) }, false},
		{"TERM, path of the pod", "/msg", func(rt *critest.Runtime, id string) error { return rt.StopContainer(t.Context(), id, 5) }, true},
		{"KILL", "/msg", func(rt *critest.Runtime, id string) error { return rt.StopContainer(t.Context(), id, 0) }, false},
		{"OOM", "/msg", func(rt *critest.Runtime, id string) error { return rt.OOM(id) }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rt := critest.New(critest.Config{})
			rt.AddImage("img", critest.Behavior{TerminationMessage: "bye"})
			host := filepath.Join(t.TempDir(), "message")
			sb, err := rt.RunPodSandbox(t.Context(), pod("u1"), "")
			require.NoError(t, err)
			cfg := ctr("u1", "app", "img")
			mount := "/dev/termination-log"
			if tt.path != "" {
				cfg.Annotations = map[string]string{observed.AnnotationTerminationMessagePath: tt.path}
				mount = tt.path
			}
			cfg.Mounts = []*runtimeapi.Mount{{ContainerPath: "/other", HostPath: host + ".other"}, {ContainerPath: mount, HostPath: host}}
			id, err := rt.CreateContainer(t.Context(), sb, cfg, pod("u1"))
			require.NoError(t, err)
			require.NoError(t, rt.StartContainer(t.Context(), id))
			require.NoError(t, tt.end(rt, id))
			require.NoFileExists(t, host+".other")
			if !tt.exists {
				require.NoFileExists(t, host)
				return
			}
			text, err := os.ReadFile(host)
			require.NoError(t, err)
			require.Equal(t, "bye", string(text))
		})
	}
}
