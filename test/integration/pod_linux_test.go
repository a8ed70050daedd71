package integration_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const webManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: web
    image: KK
    args: [serve, ":8080"]
`

const editedWebManifest = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  terminationGracePeriodSeconds: 5
  containers:
  - name: web
    image: KK
    args: [serve, ":8081"]
`

// oneRunning wants exactly one running instance of a pod's container and
// returns its ID.
func oneRunning(t *testing.T, pod, name string) (string, error) {
	t.Helper()
	found := running(t, pod, name)
	if len(found) != 1 {
		return "", fmt.Errorf("%d instances of %s/%s run", len(found), pod, name)
	}
	return found[0].Id, nil
}

// becomesRunning waits for [oneRunning].
func becomesRunning(t *testing.T, within time.Duration, pod, name string) (id string) {
	t.Helper()
	Eventually(t, within, func() (err error) {
		id, err = oneRunning(t, pod, name)
		return err
	})
	return id
}

func fetch(url string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	req.Close = true
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return string(body), err
}

func TestAPodLivesAndDiesWithItsManifest(t *testing.T) {
	a := StartAgent(t, Options{})
	a.Write("web.yaml", webManifest)
	first := becomesRunning(t, 30*time.Second, "web", "web")

	var ip string
	Eventually(t, 10*time.Second, func() error {
		p, err := a.Pod("web")
		if err != nil {
			return err
		}
		ip = p.Status.PodIP
		if p.Status.Phase != corev1.PodRunning || ip == "" {
			return fmt.Errorf("reported: phase %q, address %q", p.Status.Phase, ip)
		}
		return nil
	})
	Eventually(t, 10*time.Second, func() error {
		_, err := fetch("http://" + ip + ":8080/healthz")
		return err
	})

	a.Write("web.yaml", editedWebManifest)
	Eventually(t, 30*time.Second, func() error {
		id, err := oneRunning(t, "web", "web")
		if err == nil && id == first {
			err = fmt.Errorf("the old container %s runs", id)
		}
		return err
	})

	a.Remove("web.yaml")
	a.NothingLeft(30 * time.Second)
}

func TestTheAgentsEndDoesNotTouchItsPods(t *testing.T) {
	a := StartAgent(t, Options{})
	a.Write("web.yaml", webManifest)
	id := becomesRunning(t, 30*time.Second, "web", "web")

	same := func() error {
		now, err := oneRunning(t, "web", "web")
		if err == nil && now != id {
			err = fmt.Errorf("container %s was replaced by %s", id, now)
		}
		return err
	}
	for _, end := range []func(){a.Term, a.Kill9} {
		end()
		Stays(t, time.Second, same)
		a.Start()
		Stays(t, 3*time.Second, same)
	}
	require.Equal(t, cri.ContainerState_CONTAINER_RUNNING, container(t, id).State)

	a.Remove("web.yaml")
	a.NothingLeft(30 * time.Second)
}
