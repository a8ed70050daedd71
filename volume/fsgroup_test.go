package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// makeTree makes a volume with a file, a directory, a symlink out of it and a script.
func makeTree(t *testing.T) (top string, outside string) {
	t.Helper()
	top, outside = t.TempDir(), filepath.Join(t.TempDir(), "outside")
	for _, err := range []error{
		os.Chmod(top, 0o755),
		os.WriteFile(outside, nil, 0o600),
		os.Mkdir(filepath.Join(top, "d"), 0o700),
		os.WriteFile(filepath.Join(top, "d/file"), nil, 0o600),
		os.WriteFile(filepath.Join(top, "script"), nil, 0o755),
		os.Symlink(outside, filepath.Join(top, "link")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return top, outside
}

func chgrpOf(t *testing.T, top string, file fs.FileMode) *chgrp {
	t.Helper()
	root, err := os.OpenRoot(top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	// The group of the agent: everyone may give files to it.
	return &chgrp{root: root, gid: os.Getegid(), file: file, done: func() {}, refused: func(name string, err error) { t.Errorf("%s: %v", name, err) }}
}

func TestWhatTheGroupGets(t *testing.T) {
	for _, c := range []struct {
		name string
		file fs.FileMode
		want map[string]fs.FileMode
	}{
		{"a volume that is written to", groupFile, map[string]fs.FileMode{
			".": fs.ModeDir | fs.ModeSetgid | 0o775, "d": fs.ModeDir | fs.ModeSetgid | 0o770, "d/file": 0o660, "script": 0o775,
		}},
		{"a volume that is read", groupFileRead, map[string]fs.FileMode{
			".": fs.ModeDir | fs.ModeSetgid | 0o755, "d": fs.ModeDir | fs.ModeSetgid | 0o750, "d/file": 0o640, "script": 0o755,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			top, outside := makeTree(t)
			w := chgrpOf(t, top, c.file)
			if w.matches() {
				t.Error("an untouched volume matches")
			}
			if err := w.walk(t.Context(), "."); err != nil {
				t.Fatal(err)
			}
			for name, want := range c.want {
				fi, err := os.Lstat(filepath.Join(top, name))
				if err != nil || fi.Mode() != want {
					t.Errorf("%s: %v, %v; want %v", name, fi.Mode(), err, want)
				}
			}
			if fi, _ := os.Stat(outside); fi.Mode() != 0o600 {
				t.Errorf("what a link leads to has mode %v", fi.Mode())
			}
			if !w.matches() {
				t.Error("a finished volume does not match")
			}
		})
	}
}

func TestChildrenComeBeforeTheirDirectory(t *testing.T) {
	top, _ := makeTree(t)
	w := chgrpOf(t, top, groupFile)
	done := 0
	w.done = func() {
		done++
		if done < 5 && w.matches() {
			t.Errorf("after %d of 5 files the top looks finished", done)
		}
	}
	if err := w.walk(t.Context(), "."); err != nil || done != 5 {
		t.Errorf("walk = %v, %d files", err, done)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.walk(ctx, "."); !errors.Is(err, context.Canceled) {
		t.Errorf("walk with an ended context = %v", err)
	}
}

func TestOnRootMismatchLooksAtTheTopOnly(t *testing.T) {
	gid := int64(os.Getegid())
	for policy, want := range map[corev1.PodFSGroupChangePolicy]fs.FileMode{
		corev1.FSGroupChangeAlways:         0o660,
		corev1.FSGroupChangeOnRootMismatch: 0o600,
	} {
		v, _ := newFake(t, Config{})
		pod := mounting(emptyDirOf("v", ""))
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &gid, FSGroupChangePolicy: &policy}
		top := filepath.Join(v.pods, "v")
		file := filepath.Join(top, "file")
		for _, err := range []error{
			os.MkdirAll(top, 0o777),
			os.Chmod(top, 0o777|fs.ModeSetgid),
			os.WriteFile(file, nil, 0o600),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		root, err := v.openPods()
		if err != nil {
			t.Fatal(err)
		}
		err = v.giveToGroup(t.Context(), root, pod, "v", "v")
		root.Close()
		if err != nil {
			t.Fatal(err)
		}
		if fi, err := os.Stat(file); err != nil || fi.Mode() != want {
			t.Errorf("%s: the file has %v, %v; want %v", policy, fi.Mode(), err, want)
		}
	}
}

func TestFSGroupOfAnEmptyDir(t *testing.T) {
	gid := int64(os.Getegid())
	v, _ := newFake(t, Config{})
	pod := mounting(emptyDirOf("v", ""))
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: &gid}
	paths, err := v.SetUp(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(paths["v"].HostPath)
	if err != nil || fi.Mode() != fs.ModeDir|fs.ModeSetgid|0o777 || !hasGroup(fi, int(gid)) {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	// Ready volumes belong to the pod.
	if err := os.Chmod(paths["v"].HostPath, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := v.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if fi, _ := os.Stat(paths["v"].HostPath); fi.Mode().Perm() != 0o700 {
		t.Errorf("a ready volume was changed to %v", fi.Mode())
	}
}

func TestSlowWorkIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var told []string
		v, err := New(Config{RootDir: "/r", Hooks: Hooks{Event: func(pod *corev1.Pod, eventType, reason, message string) {
			message, _, _ = strings.Cut(message, ";")
			told = append(told, fmt.Sprint(time.Since(start), " ", pod.Name, " ", eventType, " ", reason, " ", message))
		}}})
		if err != nil {
			t.Fatal(err)
		}
		var seen atomic.Int64
		stop := v.tellSlow(mounting(), "data", &seen)
		time.Sleep(time.Minute)
		seen.Store(7)
		time.Sleep(time.Minute)
		stop()
		time.Sleep(time.Hour)
		const words = " web Warning VolumePermissionChangeInProgress Setting the owner of volume data takes long, "
		if want := []string{"30s" + words + "0 files are done", "1m30s" + words + "7 files are done"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}
