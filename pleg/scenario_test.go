package pleg_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubeletkit/kubeletkit/observed"
	"github.com/kubeletkit/kubeletkit/pleg"
)

var update = flag.Bool("update", false, "rewrite testdata with what happens now")

// TestScenarios plays testdata/*.txt. A paragraph is one or more commands, then
// "----", then what the generator said up to then, each line with its time. The
// commands:
//
//	pod A c1=running c2=exited   the runtime holds this for pod A
//	gone A                       the runtime holds nothing for pod A
//	event A                      the stream tells of pod A
//	mark A                       our own call for pod A has returned
//	stream up|down               the runtime opens streams, or breaks and refuses them
//	list ok|fails                how lists end
//	inspect A ok|fails           how inspections of pod A end
//	sleep 10s
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			synctest.Test(t, func(t *testing.T) { got = play(t, string(text)) })
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("%s does not say what happens; go test -update rewrites it. Now:\n%s", file, got)
			}
		})
	}
}

// play returns the scenario with what was said now.
func play(t *testing.T, text string) string {
	t.Helper()
	s := &scenario{rt: newFake(), events: &fakeEvents{}, began: time.Now()}
	s.events.breakOff(errors.New("refused"))
	s.r = start(t, pleg.Config{Runtime: s.rt, Events: s.events, Hooks: pleg.Hooks{
		EventSent:       func(e pleg.PodLifecycleEvent) { s.say("%s %s %s", e.ID, e.Type, e.Data) },
		Unannounced:     func(uid observed.UID) { s.say("%s changed unannounced", uid) },
		StreamConnected: func() { s.say("stream connected") },
	}})
	defer s.r.stop(t)
	synctest.Wait() // the first look finds nothing
	var out strings.Builder
	for i, paragraph := range strings.Split(strings.TrimSuffix(text, "\n"), "\n\n") {
		if i > 0 {
			out.WriteString("\n")
		}
		commands, _, played := strings.Cut(paragraph, "----")
		out.WriteString(strings.TrimSuffix(commands, "\n") + "\n")
		if !played {
			continue // a comment of its own
		}
		for line := range strings.Lines(commands) {
			if err := s.do(strings.Fields(line)); err != nil {
				t.Fatalf("%s: %v", strings.TrimSpace(line), err)
			}
			synctest.Wait()
		}
		out.WriteString("----\n")
		for _, line := range s.said() {
			out.WriteString(line + "\n")
		}
	}
	return out.String()
}

type scenario struct {
	rt     *fakeRuntime
	events *fakeEvents
	r      *running
	began  time.Time

	mu    sync.Mutex
	lines []line
}

type line struct {
	at   time.Duration
	text string // begins with what it is about
}

func (s *scenario) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := time.Since(s.began).Truncate(time.Second) // the stream's back-off has jitter below that
	s.lines = append(s.lines, line{at, strings.TrimSpace(fmt.Sprintf(format, args...))})
}

// said takes what was said. Pods that are inspected at once come in no order, so
// those of one second are put in order by name.
func (s *scenario) said() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	about := func(l line) string { return strings.Fields(l.text)[0] }
	slices.SortStableFunc(s.lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(about(a), about(b)))
	})
	var text []string
	for _, l := range s.lines {
		text = append(text, fmt.Sprintf("%-4v %s", l.at, l.text))
	}
	s.lines = nil
	return text
}

func (s *scenario) do(words []string) error {
	if len(words) == 0 || words[0] == "#" {
		return nil
	}
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	uid := observed.UID(arg(1))
	fails := map[string]error{"fails": errors.New("the runtime fails"), "down": errors.New("refused")}
	switch words[0] {
	case "pod":
		var containers []observed.Container
		for _, w := range words[2:] {
			id, state, _ := strings.Cut(w, "=")
			i := slices.Index([]string{"unknown", "created", "running", "exited"}, state)
			if i < 0 {
				return fmt.Errorf("no state %q", state)
			}
			containers = append(containers, container(id, observed.State(i)))
		}
		s.rt.set(uid, containers...)
	case "gone":
		s.rt.remove(uid)
	case "event":
		s.events.tell(pleg.Mark{Pod: uid})
	case "mark":
		s.r.MarkDirty(uid)
	case "stream":
		s.events.breakOff(fails[arg(1)])
	case "list":
		s.rt.do(func() { s.rt.listErr = fails[arg(1)] })
	case "inspect":
		s.rt.do(func() { s.rt.failing[uid] = fails[arg(2)] })
	case "sleep":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			return err
		}
		time.Sleep(d)
	default:
		return errors.New("no such command")
	}
	return nil
}
