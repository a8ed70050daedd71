package integration_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/test/registry"
)

// publish puts a variant of the demo image, which no node has, into a repository
// and returns its reference. more is the size of a layer of its own.
func publish(t *testing.T, repository string, more int64) string {
	t.Helper()
	from, err := name.ParseReference(the.kk, name.Insecure)
	require.NoError(t, err)
	img, err := remote.Image(from)
	require.NoError(t, err)
	layer, err := random.Layer(more, "application/vnd.docker.image.rootfs.diff.tar.gzip")
	require.NoError(t, err)
	img, err = mutate.AppendLayers(img, layer)
	require.NoError(t, err)
	to, err := name.ParseReference(the.registry.Host()+"/"+repository+":1", name.Insecure)
	require.NoError(t, err)
	require.NoError(t, remote.Write(to, img))
	return to.String()
}

// guardPrivate lets only user "me" with password "right" at repositories below
// private/.
func guardPrivate(t *testing.T, token bool) {
	the.registry.Guard(registry.Guard{Token: token, Allow: func(user, password, repository string) bool {
		return !strings.HasPrefix(repository, "private/") || user == "me" && password == "right"
	}})
	t.Cleanup(func() { the.registry.Guard(registry.Guard{}) })
}

// pullSecret is a secret with one line per registry: key user:password.
func pullSecret(name string, entries ...string) string {
	var auths []string
	for _, e := range entries {
		key, auth, _ := strings.Cut(e, " ")
		auths = append(auths, fmt.Sprintf(`%q: {"auth": %q}`, key, base64.StdEncoding.EncodeToString([]byte(auth))))
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: default}\ntype: kubernetes.io/dockerconfigjson\n"+
		"stringData:\n  .dockerconfigjson: '{\"auths\": {%s}}'\n", name, strings.Join(auths, ", "))
}

// ofImage is a pod that runs an image until it is told to end.
func ofImage(pod, image, policy string, secrets ...string) string {
	var refs []string
	for _, s := range secrets {
		refs = append(refs, "{name: "+s+"}")
	}
	return strings.Replace(sleeper(pod, "imagePullSecrets: ["+strings.Join(refs, ", ")+"]"),
		"    image: KK\n", fmt.Sprintf("    image: %q\n    imagePullPolicy: %s\n", image, policy), 1)
}

// runs waits until the pod's container runs.
func (a *Agent) runs(pod string) {
	a.t.Helper()
	a.WaitPhase(45*time.Second, pod, corev1.PodRunning)
}

// waits waits until the pod's container waits for one of the reasons, and returns
// its message.
func (a *Agent) waits(pod string, reasons ...string) (message string) {
	a.t.Helper()
	Eventually(a.t, 45*time.Second, func() error {
		p, err := a.Pod(pod)
		if err != nil {
			return err
		}
		for _, reason := range reasons {
			if err = waiting("main", reason)(p); err == nil {
				message = p.Status.ContainerStatuses[0].State.Waiting.Message
				return nil
			}
		}
		return err
	})
	return message
}

// cleared takes all manifests out and wants nothing left.
func (a *Agent) cleared() {
	a.t.Helper()
	files, err := filepath.Glob(filepath.Join(a.Manifests, "*.yaml"))
	require.NoError(a.t, err)
	for _, f := range files {
		require.NoError(a.t, os.Remove(f))
	}
	a.NothingLeft(60 * time.Second)
}

func TestAGuardedRegistryGetsTheRightCredentials(t *testing.T) {
	for how, token := range map[string]bool{"basic": false, "token": true} {
		t.Run(how, func(t *testing.T) {
			images := map[string]string{}
			for _, pod := range []string{"right", "url", "two", "paths", "lost", "wrong", "none"} {
				images[pod] = publish(t, "private/"+how+"-"+pod, 100)
			}
			guardPrivate(t, token)
			host := the.registry.Host()
			a := StartAgent(t, Options{})
			a.Write("secrets.yaml", strings.Join([]string{
				pullSecret("right", host+" me:right"),
				pullSecret("url", "https://"+host+"/v2/ me:right"),
				pullSecret("wrong", host+" me:wr0ng"),
				pullSecret("paths", host+"/private/"+how+"-paths other:wr0ng", host+" me:right", "https://elsewhere.example other:wr0ng"),
			}, "---\n"))
			pod := func(name string, secrets ...string) {
				a.Write(name+".yaml", ofImage(name, images[name], "IfNotPresent", secrets...))
			}
			pod("right", "right")
			pod("url", "url")
			pod("two", "wrong", "right")
			pod("paths", "paths")
			pod("lost", "lost", "right")
			pod("wrong", "wrong")
			pod("none")
			for _, name := range []string{"right", "url", "two", "paths", "lost"} {
				a.runs(name)
			}
			for _, name := range []string{"wrong", "none"} {
				if message := a.waits(name, "ErrImagePull", "ImagePullBackOff"); strings.Contains(message, "wr0ng") {
					t.Errorf("a message has a password in it: %s", message)
				}
			}
			require.Equal(t, []string{"!other", "me"}, shown("private/"+how+"-paths"))
			require.Equal(t, []string{"!me", "me"}, shown("private/"+how+"-two"))
			log, err := os.ReadFile(a.LogFile)
			require.NoError(t, err)
			require.NotContains(t, string(log), "wr0ng")
			a.cleared()
		})
	}
}

// shown is whom the registry saw at a repository, each name once, without the
// anonymous try that some clients begin with.
func shown(repository string) []string {
	var names []string
	for _, n := range the.registry.Tried(repository) {
		if n != "!" && (len(names) == 0 || names[len(names)-1] != n) {
			names = append(names, n)
		}
	}
	return names
}

func TestAPrivateImageIsNotForPodsWithoutItsCredentials(t *testing.T) {
	image := publish(t, "private/kept", 100)
	guardPrivate(t, false)
	a := StartAgent(t, Options{})
	a.Write("secrets.yaml", pullSecret("one", the.registry.Host()+" me:right")+"---\n"+pullSecret("copy", the.registry.Host()+" me:right"))
	a.Write("first.yaml", ofImage("first", image, "IfNotPresent", "one"))
	a.runs("first")

	a.Write("free.yaml", ofImage("free", image, "IfNotPresent"))
	a.waits("free", "ErrImagePull", "ImagePullBackOff")
	a.Write("never.yaml", ofImage("never", image, "Never"))
	a.waits("never", "ErrImageNeverPull")

	before := the.registry.Asked("private/kept").Blobs
	a.Write("copy.yaml", ofImage("copy", image, "Never", "copy"))
	a.runs("copy")
	a.Term()
	a.Start()
	a.Write("later.yaml", ofImage("later", image, "Never"))
	a.waits("later", "ErrImageNeverPull")
	a.Write("again.yaml", ofImage("again", image, "IfNotPresent", "copy"))
	a.runs("again")
	a.waits("free", "ErrImagePull", "ImagePullBackOff")
	require.Equal(t, before, the.registry.Asked("private/kept").Blobs, "the image was downloaded once more")
	a.cleared()
}

func TestReasonsOfImagesThatAreNotThere(t *testing.T) {
	lying, failing := publish(t, "lying", 5000), publish(t, "failing", 100)
	the.registry.Break(func(r *http.Request) registry.Fault {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/lying/blobs/"):
			return registry.Fault{Lie: true}
		case strings.HasPrefix(r.URL.Path, "/v2/failing/"):
			return registry.Fault{Status: http.StatusInternalServerError}
		}
		return registry.Fault{}
	})
	t.Cleanup(func() { the.registry.Break(nil) })
	a := StartAgent(t, Options{})
	for pod, image := range map[string]string{
		"lying": lying, "failing": failing, "unreachable": "127.0.0.1:1/nobody/here:1", "missing": the.registry.Host() + "/missing:1",
	} {
		a.Write(pod+".yaml", ofImage(pod, image, "IfNotPresent"))
	}
	a.Write("name.yaml", ofImage("name", "UPPER/CASE:1", "IfNotPresent"))
	a.Write("never.yaml", ofImage("never", the.registry.Host()+"/missing:2", "Never"))
	a.Write("good.yaml", sleeper("good"))
	a.runs("good")
	for _, pod := range []string{"lying", "failing", "unreachable", "missing"} {
		a.waits(pod, "ErrImagePull", "ImagePullBackOff")
	}
	require.Contains(t, a.waits("name", "InvalidImageName"), "repository name must be lowercase")
	require.Contains(t, a.waits("never", "ErrImageNeverPull"), "is not present with pull policy of Never")

	// What heals is pulled when its back-off ends, without anybody's doing.
	the.registry.Break(nil)
	a.runs("failing")
	a.cleared()
}

func TestASlowPullDelaysNoOtherPod(t *testing.T) {
	slow := publish(t, "slow", 200_000)
	the.registry.Break(func(r *http.Request) registry.Fault {
		if strings.HasPrefix(r.URL.Path, "/v2/slow/blobs/") {
			return registry.Fault{PerSecond: 1024}
		}
		return registry.Fault{}
	})
	t.Cleanup(func() { the.registry.Break(nil) })
	a := StartAgent(t, Options{})
	a.Write("slow.yaml", ofImage("slow", slow, "IfNotPresent"))
	Eventually(t, 30*time.Second, func() error {
		if the.registry.Asked("slow").Blobs == 0 {
			return fmt.Errorf("the slow pull has not begun")
		}
		return nil
	})
	a.Write("local.yaml", sleeper("local"))
	for i := range 2 {
		pod := fmt.Sprint("fast", i)
		a.Write(pod+".yaml", ofImage(pod, publish(t, pod, 100), "IfNotPresent"))
	}
	for _, pod := range []string{"local", "fast0", "fast1"} {
		a.WaitPhase(30*time.Second, pod, corev1.PodRunning)
	}
	a.waits("slow", "ContainerCreating")
	a.cleared()
}
