package podsource_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func configMap(name, value string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {key: '" + value + "'}\n"
}

func secret(name string, lines ...string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + "}\n" + strings.Join(lines, "\n") + "\n"
}

// user is a pod that needs the config map.
func user(name, configMap string) string {
	return manifest(name, "containers: [{name: app, image: x, envFrom: [{configMapRef: {name: "+configMap+"}}]}]")
}

// diary writes down, in order, what a store and the sources that fill it told.
type diary struct {
	t       *testing.T
	objects *podsource.Objects
	mu      struct {
		sync.Mutex
		lines []string
		log   bytes.Buffer
	}
}

func newDiary(t *testing.T) *diary {
	d := &diary{t: t}
	d.objects = podsource.NewObjects(podsource.ObjectsConfig{Log: d.logger(), Changed: func(keys []podsource.ObjectKey) {
		for _, key := range keys {
			d.write("changed %s: %s", key, d.value(key))
		}
	}})
	return d
}

func (d *diary) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.log.WriteString(args + "\n")
	}, funcr.Options{Verbosity: 1})
}

func (d *diary) logged() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.log.String()
}

func (d *diary) write(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.lines = append(d.mu.lines, fmt.Sprintf(format, args...))
}

// value is what the store has for key now.
func (d *diary) value(key podsource.ObjectKey) string {
	c, err := d.objects.ConfigMap(context.Background(), key.Namespace, key.Name)
	if key.Kind == podsource.KindSecret {
		var s *corev1.Secret
		if s, err = d.objects.Secret(context.Background(), key.Namespace, key.Name); err == nil {
			return string(s.Data["key"])
		}
	}
	if err != nil {
		return err.Error()
	}
	return c.Data["key"]
}

// run runs a source until the test ends or the function that it returns is called.
func (d *diary) run(source podsource.Source, err error) (stop func()) {
	require.NoError(d.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- source.Run(ctx, func(pods []*corev1.Pod) {
			names := []string{}
			for _, pod := range pods {
				names = append(names, pod.Name)
			}
			d.write("%s pods %v", source.Name(), names)
		})
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(d.t, <-done)
	})
	d.t.Cleanup(stop)
	return stop
}

func (d *diary) files(dir string) (*podsource.Files, error) {
	return podsource.NewFiles(podsource.FilesConfig{Path: dir, NodeName: "n1", RescanEvery: time.Hour, Objects: d.objects, Log: d.logger()})
}

// want waits for the lines, and forgets them.
func (d *diary) want(lines ...string) {
	d.t.Helper()
	take := func() []string {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.Clone(d.mu.lines)
	}
	eventually(d.t, func() bool { return slices.Equal(take(), lines) }, func() any {
		return "want\n" + strings.Join(lines, "\n") + "\ngot\n" + strings.Join(take(), "\n")
	})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.lines = nil
}

func TestObjectsComeBeforeThePodsThatUseThem(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "web.yaml", user("web", "conf")+"---\n"+configMap("conf", "1")+"---\n"+secret("pass", "stringData: {key: s}"))
	d := newDiary(t)
	d.run(d.files(dir))
	d.want("changed ConfigMap default/conf: 1", "changed Secret default/pass: s", "file pods [web-n1]")

	// One change of the file is one change of all that is in it.
	write(t, dir, "web.yaml", user("web", "other")+"---\n"+configMap("other", "2")+"---\n"+secret("pass", "data: {key: cw==}"))
	d.want(`changed ConfigMap default/conf: configmaps "conf" not found`, "changed ConfigMap default/other: 2", "file pods [web-n1]")

	// A file of its own, and one that has nothing else.
	write(t, dir, "conf.yaml", configMap("conf", "3"))
	d.want("changed ConfigMap default/conf: 3", "file pods [web-n1]")
	require.NoError(t, os.Remove(filepath.Join(dir, "web.yaml")))
	d.want(`changed ConfigMap default/other: configmaps "other" not found`, `changed Secret default/pass: secrets "pass" not found`, "file pods []")
	require.NoError(t, os.RemoveAll(dir))
	d.want(`changed ConfigMap default/conf: configmaps "conf" not found`, "file pods []")
}

func TestAnObjectThatDidNotChangeStaysTheSame(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", configMap("conf", "1"))
	d := newDiary(t)
	d.run(d.files(dir))
	d.want("changed ConfigMap default/conf: 1", "file pods []")
	before, err := d.objects.ConfigMap(t.Context(), "default", "conf")
	require.NoError(t, err)
	write(t, dir, "a.yaml", "# a word more\n"+configMap("conf", "1")+"---\n"+configMap("more", "2"))
	d.want("changed ConfigMap default/more: 2", "file pods []")
	after, err := d.objects.ConfigMap(t.Context(), "default", "conf")
	require.NoError(t, err)
	require.Same(t, before, after)
}

func TestABadManifestKeepsItsLastGoodObjects(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "web.yaml", user("web", "conf")+"---\n"+configMap("conf", "1"))
	d := newDiary(t)
	files, err := d.files(dir)
	d.run(files, err)
	d.want("changed ConfigMap default/conf: 1", "file pods [web-n1]")
	write(t, dir, "web.yaml", user("web", "conf")+"---\n"+configMap("conf", "2")+"more: 1\n")
	eventually(t, func() bool { return len(files.Errors()) == 1 }, func() any { return files.Errors() })
	require.EqualError(t, files.Errors()[0], filepath.Join(dir, "web.yaml")+" document 2: more: unknown field")
	require.Equal(t, "1", d.value(podsource.ObjectKey{Kind: podsource.KindConfigMap, Namespace: "default", Name: "conf"}))

	// Unreadable is no smaller set either.
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink("nowhere", link))
	require.NoError(t, os.Rename(link, filepath.Join(dir, "web.yaml")))
	eventually(t, func() bool { return strings.Contains(fmt.Sprint(files.Errors()), "no such file") }, func() any { return files.Errors() })
	require.Equal(t, "1", d.value(podsource.ObjectKey{Kind: podsource.KindConfigMap, Namespace: "default", Name: "conf"}))
	require.NoError(t, os.Remove(filepath.Join(dir, "web.yaml")))
	d.want(`changed ConfigMap default/conf: configmaps "conf" not found`, "file pods []")
}

func TestOfTwoEqualObjectsTheFirstFileCounts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.yaml", configMap("conf", "b"))
	d := newDiary(t)
	d.run(d.files(dir))
	d.want("changed ConfigMap default/conf: b", "file pods []")
	write(t, dir, "a.yaml", configMap("conf", "a"))
	d.want("changed ConfigMap default/conf: a", "file pods []")
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	require.Len(t, d.objects.Errors(), 1)
	require.Equal(t, b, d.objects.Errors()[0].File)
	require.EqualError(t, d.objects.Errors()[0], b+": ConfigMap default/conf is also in "+a+", which counts")
	// The namespace is part of the name, and so is the kind.
	write(t, dir, "c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: conf, namespace: other}\n---\n"+secret("conf", "data: {}"))
	d.want("changed ConfigMap other/conf: ", "changed Secret default/conf: ", "file pods []")
	require.Len(t, d.objects.Errors(), 1)
	require.Equal(t, 1, strings.Count(d.logged(), "object ignored; remove one of the two"))

	require.NoError(t, os.Remove(a))
	d.want("changed ConfigMap default/conf: b", "file pods []")
	require.Empty(t, d.objects.Errors())
}

func TestFilesAndURLShareTheStore(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a.yaml", configMap("conf", "file"))
	d := newDiary(t)
	files, err := d.files(dir)
	require.NoError(t, err)
	var body struct {
		sync.Mutex
		text string
	}
	answer := func(text string) {
		body.Lock()
		defer body.Unlock()
		body.text = text
	}
	answer(user("web", "more") + "---\n" + configMap("conf", "url") + "---\n" + configMap("more", "url"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		body.Lock()
		defer body.Unlock()
		fmt.Fprint(w, body.text)
	}))
	defer server.Close()
	fetched, err := podsource.NewHTTP(podsource.HTTPConfig{URL: server.URL, NodeName: "n1", Every: 5 * time.Millisecond, Objects: d.objects})
	stop := d.run(fetched, err)
	d.want("changed ConfigMap default/conf: url", "changed ConfigMap default/more: url", "http pods [web-n1]")

	// The files have not been read, so nobody knows what is missing.
	_, err = d.objects.Secret(t.Context(), "default", "nope")
	require.ErrorIs(t, err, podsource.ErrObjectsUnread)
	require.EqualError(t, err, "get Secret default/nope: podsource: not all manifests have been read yet")
	require.False(t, apierrors.IsNotFound(err))

	d.run(files, nil)
	d.want("changed ConfigMap default/conf: file", "file pods []")
	_, err = d.objects.Secret(t.Context(), "default", "nope")
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.EqualError(t, d.objects.Errors()[0], server.URL+": ConfigMap default/conf is also in "+filepath.Join(dir, "a.yaml")+", which counts")

	answer("not one")
	eventually(t, func() bool { return fetched.Err() != nil }, func() any { return "no error" })
	require.Equal(t, "url", d.value(podsource.ObjectKey{Kind: podsource.KindConfigMap, Namespace: "default", Name: "more"}), "what it gave last stays")
	answer("")
	d.want(`changed ConfigMap default/more: configmaps "more" not found`, "http pods []")
	stop()
}

func TestWithoutAStoreObjectsAreFaults(t *testing.T) {
	_, err := podsource.Decode([]byte(configMap("conf", "1")), from)
	require.EqualError(t, err, `/m/web.yaml document 1: kind: Unsupported value: "v1/ConfigMap": supported values: "v1/Pod", "v1/PodList", "v1/List"`)
	_, err = podsource.Decode([]byte(user("web", "conf")), from)
	require.EqualError(t, err, "/m/web.yaml document 1: spec.containers[0].envFrom[0].configMapRef: Forbidden: static pods may not reference configmaps")
}

func TestASecretThatEverybodyCanReadIsToldOnce(t *testing.T) {
	const warning = "every user of this machine can read a Secret in a manifest; chmod o-r it"
	dir := t.TempDir()
	path := filepath.Join(dir, "s.yaml")
	write(t, dir, "s.yaml", secret("pass", "stringData: {key: hunter2}"))
	write(t, dir, "c.yaml", configMap("conf", "no secret"))
	d := newDiary(t)
	stop := d.run(d.files(dir))
	d.want("changed ConfigMap default/conf: no secret", "changed Secret default/pass: hunter2", "file pods []")
	write(t, dir, "s.yaml", secret("pass", "stringData: {key: hunter3}"))
	d.want("changed Secret default/pass: hunter3", "file pods []")
	require.Equal(t, 1, strings.Count(d.logged(), warning))
	require.Contains(t, d.logged(), `"path"="`+path+`"`)

	require.NoError(t, os.Chmod(path, 0o600))
	write(t, dir, "s.yaml", secret("pass", "stringData: {key: hunter4}"))
	d.want("changed Secret default/pass: hunter4", "file pods []")
	require.NoError(t, os.Chmod(path, 0o644))
	eventually(t, func() bool { return strings.Count(d.logged(), warning) == 2 }, func() any { return d.logged() })
	stop()
	require.NotContains(t, d.logged(), "hunter", "a log never has a Secret's data")
}
