package criclient_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeletkit/kubeletkit/criclient"
	"github.com/kubeletkit/kubeletkit/observed"
)

const wordsPath = "/dev/termination-log"

func record(text string) string { return "2026-01-02T03:04:05.000000006Z stderr F " + text + "\n" }

func TestExitMessage(t *testing.T) {
	for name, tc := range map[string]struct {
		file, log string // "-" is no such file
		change    func(*runtimeapi.ContainerStatus)
		want      string
	}{
		"the file":                      {file: "last words", log: record("log"), want: "last words"},
		"the runtime's message is kept": {file: "last words", change: func(c *runtimeapi.ContainerStatus) { c.Message = "OOM" }, want: "OOM: last words"},
		"the end of a long file":        {file: strings.Repeat("a", 100) + strings.Repeat("b", 4096), want: strings.Repeat("b", 4096)},
		"binary words":                  {file: "a\xff\xfeb", want: "a?b"},
		"an empty file, then the log":   {log: record("one") + record("two"), want: "one\ntwo\n"},
		"no file, then the log":         {file: "-", log: record("one"), want: "one\n"},
		"no file and no log":            {file: "-", log: "-", want: ""},
		"no log after success":          {log: record("one"), change: func(c *runtimeapi.ContainerStatus) { c.ExitCode = 0 }, want: ""},
		"no log unless asked for": {log: record("one"), change: func(c *runtimeapi.ContainerStatus) {
			c.Annotations[observed.AnnotationTerminationMessagePolicy] = "File"
		}, want: ""},
		"no log of what never ran": {log: record("one"), change: func(c *runtimeapi.ContainerStatus) { c.Reason = "ContainerCannotRun" }, want: ""},
		"no mount, then the log":   {file: "unseen", log: record("one"), change: func(c *runtimeapi.ContainerStatus) { c.Mounts = nil }, want: "one\n"},
		"the file only once it has exited": {file: "last words", change: func(c *runtimeapi.ContainerStatus) {
			c.State = running
		}, want: ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file, log := filepath.Join(dir, "words"), filepath.Join(dir, "0.log")
			for path, text := range map[string]string{file: tc.file, log: tc.log} {
				if text == "-" {
					continue
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := exitMessage(t, file, log, tc.change); got != tc.want {
				t.Errorf("message = %q, want %q", got, tc.want)
			}
		})
	}
}

// exitMessage inspects an exited container with these files.
func exitMessage(t *testing.T, file, log string, change func(*runtimeapi.ContainerStatus)) string {
	t.Helper()
	w := newWorld()
	c := w.container("c1", "u1", "app", "s1", 10, exited)
	c.Annotations[observed.AnnotationTerminationMessagePath] = wordsPath
	c.Annotations[observed.AnnotationTerminationMessagePolicy] = "FallbackToLogsOnError"
	c.Mounts = []*runtimeapi.Mount{nil, {ContainerPath: "/other"}, {ContainerPath: wordsPath, HostPath: file}}
	c.LogPath = log
	if change != nil {
		change(c)
	}
	return inspect(t, observe(t, w), observed.Pod{UID: "u1"}).Containers[0].Message
}

func TestExitMessageReadsOnlyRegularFiles(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(secret, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{link, dir, os.DevNull} {
		if path == os.DevNull && runtime.GOOS == "windows" {
			continue
		}
		got := exitMessage(t, path, "", nil)
		if strings.Contains(got, "secret\x00") || got == "secret" || !strings.HasPrefix(got, "Error on reading termination log "+path) {
			t.Errorf("message from %s = %q, want a note that it was not read", path, got)
		}
		got = exitMessage(t, filepath.Join(dir, "none"), path, nil)
		if !strings.HasPrefix(got, "Error on reading termination message from logs") {
			t.Errorf("message from log %s = %q, want a note that it was not read", path, got)
		}
	}
}

func TestLastRecords(t *testing.T) {
	const p = "2026-01-02T03:04:05Z stdout P "
	many := ""
	for i := range 100 {
		many += record(fmt.Sprint(i))
	}
	last80 := ""
	for i := 20; i < 100; i++ {
		last80 += fmt.Sprintf("%d\n", i)
	}
	long := strings.Repeat("x", 3000)
	for name, tc := range map[string]struct {
		log  string
		cut  bool
		want string
	}{
		"nothing":                            {},
		"partial records are joined":         {log: p + "a\n" + p + "b\n" + record("c"), want: "abc\n"},
		"a last line without its end":        {log: record("a") + p + "b", want: "a\nb"},
		"lines that are no record":           {log: "garbage\n\n" + record("a") + "2026 stdin F x\n2026 stdout X y\n", want: "a\n"},
		"tags after the first are ignored":   {log: "2026-01-02T03:04:05Z stdout P:q a\n" + record("b"), want: "ab\n"},
		"the last eighty":                    {log: many, want: last80},
		"the last two thousand bytes":        {log: record("lost") + record(long), want: long[:2047] + "\n"},
		"a cut line is left out":             {log: "tail of something\n" + record("a"), cut: true, want: "a\n"},
		"a long cut line has words in it":    {log: strings.Repeat("y", 9000) + "\n" + record("a"), cut: true, want: strings.Repeat("y", 2045) + "\na\n"},
		"a long line that is no record":      {log: strings.Repeat("y", 9000) + "\n" + record("a"), want: "a\n"},
		"a record that is one long cut line": {log: strings.Repeat("y", 9000), cut: true, want: strings.Repeat("y", 2048)},
	} {
		t.Run(name, func(t *testing.T) {
			if got := criclient.LastRecords([]byte(tc.log), !tc.cut); got != tc.want {
				t.Errorf("LastRecords = %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzLastRecords(f *testing.F) {
	f.Add([]byte(record("a")), true)
	f.Add([]byte("x\n\n\n"), false)
	f.Add(bytes.Repeat([]byte(record("a")), 100), false)
	f.Fuzz(func(t *testing.T, log []byte, whole bool) {
		if got := criclient.LastRecords(log, whole); len(got) > 2048 || len(got) > len(log) {
			t.Errorf("%d bytes out of %d", len(got), len(log))
		}
	})
}

func FuzzSocketPath(f *testing.F) {
	for _, s := range []string{"unix:///run/x.sock", "/x", "unix:/x", "tcp://x", ":", "unix://", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, endpoint string) {
		path, err := criclient.SocketPath(endpoint)
		if err != nil {
			return
		}
		if !strings.HasPrefix(path, "/") || strings.ContainsRune(path, 0) {
			t.Errorf("SocketPath(%q) = %q", endpoint, path)
		}
		if again, err := criclient.SocketPath("unix://" + path); err != nil || again != path {
			t.Errorf("the better spelling of %q is read as %q, %v", endpoint, again, err)
		}
	})
}

// A long log costs no more than its end.
func BenchmarkExitMessageFromALongLog(b *testing.B) {
	path := filepath.Join(b.TempDir(), "0.log")
	if err := os.WriteFile(path, bytes.Repeat([]byte(record("line")), 1<<18), 0o600); err != nil {
		b.Fatal(err)
	}
	w := newWorld()
	c := w.container("c1", "u1", "app", "s1", 10, exited)
	c.Annotations[observed.AnnotationTerminationMessagePolicy] = "FallbackToLogsOnError"
	c.LogPath = path
	o := observe(b, w)
	for b.Loop() {
		p, err := o.InspectPod(b.Context(), observed.Pod{UID: "u1"})
		if err != nil || !utf8.ValidString(p.Containers[0].Message) {
			b.Fatal(err)
		}
	}
}
