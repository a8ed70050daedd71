package podsource_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// source tells the sets that the test sends it, one at a time.
type source struct {
	name string
	sets chan []*corev1.Pod
	told int // sets that were delivered
	err  chan error
}

func newSource(name string) *source {
	return &source{name: name, sets: make(chan []*corev1.Pod, 100), err: make(chan error)}
}

func (s *source) Name() string { return s.name }

func (s *source) Run(ctx context.Context, set func([]*corev1.Pod)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-s.err:
			return err
		case pods := <-s.sets:
			set(pods)
			s.told++
		}
	}
}

// start runs a Mux over the sources until the test or the returned func ends it.
func start(t *testing.T, cfg podsource.Config, sources ...*source) (*podsource.Mux, func() error) {
	for _, s := range sources {
		cfg.Sources = append(cfg.Sources, s)
	}
	m, err := podsource.New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	return m, func() error {
		cancel()
		return <-done
	}
}

func TestMuxDeliversAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, api := newSource("file"), newSource("api")
		var hooked []podsource.Op
		m, stop := start(t, podsource.Config{Hooks: podsource.Hooks{Updated: func(u podsource.Update) { hooked = append(hooked, u.Op) }}}, file, api)
		file.sets <- []*corev1.Pod{pod("a")}
		u := <-m.Updates()
		require.Equal(t, "file", u.Source)
		require.Equal(t, podsource.OpAdd, u.Op)
		require.Equal(t, "file", u.Pods[0].Annotations[podsource.AnnotationSource])
		api.sets <- []*corev1.Pod{pod("a")}
		require.Equal(t, "api", (<-m.Updates()).Source, "sources do not share UIDs")
		file.sets <- nil
		require.Equal(t, podsource.OpRemove, (<-m.Updates()).Op)

		require.NoError(t, stop())
		_, open := <-m.Updates()
		require.False(t, open)
		require.Equal(t, []podsource.Op{podsource.OpAdd, podsource.OpAdd, podsource.OpRemove}, hooked)
	})
}

func TestASourceIsSeenWhenTheReaderSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, api := newSource("file"), newSource("api")
		m, stop := start(t, podsource.Config{}, file, api)
		require.False(t, m.Seen("file"))
		require.True(t, m.Seen("http"), "a source that is not configured delays nobody")
		m.MarkSeen("file")
		require.False(t, m.Seen("file"), "it has told nothing yet")

		file.sets <- nil
		u := <-m.Updates()
		require.Equal(t, podsource.Update{Op: podsource.OpAdd, Source: "file"}, u)
		require.False(t, m.Seen("file"), "the reader has it, but has not acted on it")
		m.MarkSeen(u.Source)
		require.True(t, m.Seen("file"))
		require.False(t, m.AllSeen(), "the API source is silent")

		api.sets <- []*corev1.Pod{pod("a")}
		m.MarkSeen((<-m.Updates()).Source)
		require.True(t, m.AllSeen())
		require.NoError(t, stop())
	})
}

func TestNoSourcesIsANodeWithoutPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, stop := start(t, podsource.Config{})
		synctest.Wait()
		require.True(t, m.AllSeen())
		require.NoError(t, stop())
	})
}

func TestASlowReaderDelaysTheSourceAndLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, api := newSource("file"), newSource("api")
		m, stop := start(t, podsource.Config{}, file, api)
		for i := range 51 {
			file.sets <- []*corev1.Pod{pod("a", named(fmt.Sprint("set-", i)), func(p *corev1.Pod) { p.UID = types.UID(fmt.Sprint(i)) })}
		}
		synctest.Wait()
		require.Equal(t, 25, file.told, "50 updates wait in the channel; the next set is on its way")
		api.sets <- nil // waits for its turn
		synctest.Wait()
		require.Zero(t, api.told)
		var last podsource.Update
		var order []string
		for range 2 * 51 { // Add, then 50 times Remove and Add, and one of the API
			u := <-m.Updates()
			order = append(order, u.Source)
			if u.Source == "file" {
				last = u
			}
		}
		require.EqualValues(t, "50", last.Pods[0].UID)
		at := slices.Index(order, "api")
		require.Positive(t, at)
		require.Equal(t, 1, at%2, "it does not stand between the Remove and the Add of one set")
		require.NoError(t, stop())
	})
}

func TestRunEndsThoughNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, api := newSource("file"), newSource("api")
		_, stop := start(t, podsource.Config{}, file, api)
		for i := range 52 {
			file.sets <- []*corev1.Pod{pod(fmt.Sprint(i))}
		}
		api.sets <- nil
		synctest.Wait()
		require.NoError(t, stop())
	})
}

func TestASetAfterTheEndIsIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var late func([]*corev1.Pod)
		m, err := podsource.New(podsource.Config{Sources: []podsource.Source{sourceFunc(func(_ context.Context, set func([]*corev1.Pod)) error {
			late = set
			return nil
		})}})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		require.NoError(t, m.Run(ctx), "a source that has no more to say does not end the others")
		late([]*corev1.Pod{pod("a")})
		_, open := <-m.Updates()
		require.False(t, open)
	})
}

type sourceFunc func(context.Context, func([]*corev1.Pod)) error

func (f sourceFunc) Name() string                                                { return "func" }
func (f sourceFunc) Run(ctx context.Context, set func(pods []*corev1.Pod)) error { return f(ctx, set) }

func TestAFailedSourceEndsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file, api := newSource("file"), newSource("api")
		boom := errors.New("boom")
		m, err := podsource.New(podsource.Config{Sources: []podsource.Source{file, api}})
		require.NoError(t, err)
		done := make(chan error, 1)
		go func() { done <- m.Run(t.Context()) }()
		file.err <- boom
		err = <-done
		require.ErrorIs(t, err, boom)
		require.EqualError(t, err, "run pod source file: boom")
	})
}

func TestDuplicatesAreLoggedOnceAndHookedEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newSource("file")
		var lines []string
		hooks := 0
		m, stop := start(t, podsource.Config{
			Log:   funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}),
			Hooks: podsource.Hooks{Dropped: func(string, podsource.Dropped) { hooks++ }},
		}, file)
		twins := []*corev1.Pod{pod("a", named("web")), pod("b", named("web"))}
		file.sets <- twins
		<-m.Updates()
		file.sets <- twins
		file.sets <- twins[:1]
		file.sets <- twins
		synctest.Wait()
		require.Equal(t, 3, hooks)
		require.Len(t, lines, 2, "one line each time it appears: %q", lines)
		require.NoError(t, stop())
	})
}

func TestPriorityClassAndNumberShouldFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := newSource("file")
		var lines []string
		m, stop := start(t, podsource.Config{Log: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})}, file)
		number := int32(2000001000)
		file.sets <- []*corev1.Pod{
			pod("plain"),
			pod("both", func(p *corev1.Pod) { p.Spec.Priority, p.Spec.PriorityClassName = &number, "system-node-critical" }),
			pod("class-only", func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }),
			pod("number-only", func(p *corev1.Pod) { p.Spec.Priority = &number }),
		}
		<-m.Updates()
		require.Len(t, lines, 2)
		require.Contains(t, lines[0], "default/class-only")
		require.Contains(t, lines[1], "default/number-only")
		require.NoError(t, stop())
	})
}

func TestNewRefusesSourcesThatCantBeToldApart(t *testing.T) {
	_, err := podsource.New(podsource.Config{Sources: []podsource.Source{newSource("a"), newSource("a")}})
	require.EqualError(t, err, `podsource: two sources are named "a"`)
	_, err = podsource.New(podsource.Config{Sources: []podsource.Source{newSource("")}})
	require.EqualError(t, err, "podsource: a source has no name")
	_, err = podsource.New(podsource.Config{Sources: []podsource.Source{nil}})
	require.EqualError(t, err, "podsource: a source has no name")
}
