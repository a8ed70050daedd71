package podsource_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/kubeletkit/kubeletkit/podsource"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// server answers requests without a network, as a bubble needs it.
type server func(*http.Request) *http.Response

func (s server) RoundTrip(r *http.Request) (*http.Response, error) {
	if resp := s(r); resp != nil {
		resp.Request = r
		return resp, nil
	}
	return nil, fmt.Errorf("connection refused")
}

func answer(status int, body string, headers ...string) *http.Response {
	resp := &http.Response{StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
	for i := 0; i < len(headers); i += 2 {
		resp.Header.Set(headers[i], headers[i+1])
	}
	return resp
}

// fetching runs an HTTP source on the server in a bubble; step waits one round.
func fetching(t *testing.T, cfg podsource.HTTPConfig, s server, body func(h *podsource.HTTP, sets func() []string, step func())) {
	synctest.Test(t, func(t *testing.T) {
		if cfg.URL == "" {
			cfg.URL = "http://host/pods"
		}
		cfg.NodeName, cfg.Client = "n1", &http.Client{Transport: s}
		h, err := podsource.NewHTTP(cfg)
		require.NoError(t, err)
		var sets []string
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- h.Run(ctx, func(pods []*corev1.Pod) {
				var names []string
				for _, p := range pods {
					names = append(names, p.Name)
				}
				sets = append(sets, strings.Join(names, " "))
			})
		}()
		synctest.Wait()
		body(h, func() []string { return sets }, func() {
			time.Sleep(20 * time.Second)
			synctest.Wait()
		})
		cancel()
		require.NoError(t, <-done)
	})
}

func TestHTTPTakesOnlyGoodAnswers(t *testing.T) {
	var next atomic.Pointer[http.Response]
	fetching(t, podsource.HTTPConfig{}, func(*http.Request) *http.Response { return next.Load() }, func(h *podsource.HTTP, sets func() []string, step func()) {
		require.Empty(t, sets(), "nothing was heard, so nothing is known")
		require.ErrorContains(t, h.Err(), "connection refused")
		for _, c := range []struct {
			name string
			next *http.Response
			sets []string
			err  string
		}{
			{"an error before the first manifest", answer(500, ""), nil, "get http://host/pods: status 500 Internal Server Error"},
			{"a manifest", answer(200, manifest("a")), []string{"a-n1"}, ""},
			{"the same bytes", answer(200, manifest("a")), []string{"a-n1"}, ""},
			{"an error", answer(404, manifest("b")), []string{"a-n1"}, "status 404 Not Found"},
			{"a bad item", answer(200, manifest("b")+"---\n{}\n"), []string{"a-n1"}, "http://host/pods document 2: kind: Required value"},
			{"the same bad bytes", answer(200, manifest("b")+"---\n{}\n"), []string{"a-n1"}, "http://host/pods document 2: kind: Required value"},
			{"no answer", nil, []string{"a-n1"}, `fetch manifest: Get "http://host/pods": connection refused`},
			{"too much", answer(200, strings.Repeat("#", 10<<20+1)), []string{"a-n1"}, "larger than 10485760 bytes"},
			{"several pods", answer(200, manifest("a")+"---\n"+manifest("b")), []string{"a-n1", "a-n1 b-n1"}, ""},
			{"nothing", answer(200, ""), []string{"a-n1", "a-n1 b-n1", ""}, "http://host/pods: empty answer; taken as no pods"},
			{"nothing again", answer(200, ""), []string{"a-n1", "a-n1 b-n1", ""}, "empty answer"},
			{"an empty list", answer(200, `{"apiVersion":"v1","kind":"PodList","items":[]}`), []string{"a-n1", "a-n1 b-n1", "", ""}, ""},
		} {
			next.Store(c.next)
			step()
			require.Equal(t, c.sets, sets(), c.name)
			if c.err == "" {
				require.NoError(t, h.Err(), c.name)
			} else {
				require.ErrorContains(t, h.Err(), c.err, c.name)
			}
		}
	})
}

func TestHTTPAsksConditionally(t *testing.T) {
	var asked []string
	body := manifest("a") + "---\n{}\n"
	fetching(t, podsource.HTTPConfig{Header: http.Header{"x-token": {"t"}}}, func(r *http.Request) *http.Response {
		asked = append(asked, strings.Join([]string{r.Header.Get("X-Token"), r.Header.Get("If-None-Match"), r.Header.Get("If-Modified-Since")}, "|"))
		if r.Header.Get("If-None-Match") == `"1"` {
			return answer(304, "")
		}
		return answer(200, body, "ETag", `"1"`, "Last-Modified", "then")
	}, func(h *podsource.HTTP, sets func() []string, step func()) {
		step()
		require.Equal(t, []string{"t||", `t|"1"|then`}, asked)
		require.Empty(t, sets())
		require.ErrorContains(t, h.Err(), "document 2", "an unchanged bad manifest stays bad")
	})
}

func TestHTTPFollowsItsOwnHostOnly(t *testing.T) {
	for location, want := range map[string]string{
		"https://host/moved":      "",
		"https://other/moved":     "redirect to another host, other, is not followed",
		"http://host/moved":       "redirect from https to http is not followed",
		"https://host:8443/moved": "redirect to another host, host:8443, is not followed",
	} {
		t.Run(location, func(t *testing.T) {
			fetching(t, podsource.HTTPConfig{URL: "https://host/pods"}, func(r *http.Request) *http.Response {
				if r.URL.Path == "/pods" {
					return answer(302, "", "Location", location)
				}
				return answer(200, manifest("a"))
			}, func(h *podsource.HTTP, sets func() []string, step func()) {
				if want == "" {
					require.NoError(t, h.Err())
					require.Equal(t, []string{"a-n1"}, sets())
					return
				}
				require.ErrorContains(t, h.Err(), want)
				require.Empty(t, sets())
			})
		})
	}
}

func TestHTTPGivesUpOnASilentServer(t *testing.T) {
	var speaks atomic.Bool
	fetching(t, podsource.HTTPConfig{}, func(r *http.Request) *http.Response {
		if !speaks.Load() {
			<-r.Context().Done()
			return nil
		}
		return answer(200, manifest("a"))
	}, func(h *podsource.HTTP, sets func() []string, step func()) {
		step()
		require.Error(t, h.Err())
		speaks.Store(true)
		step()
		require.NoError(t, h.Err())
		require.Equal(t, []string{"a-n1"}, sets())
	})
}

func TestHTTPComplainsThreeTimes(t *testing.T) {
	errs, infos := 0, 0
	var good atomic.Bool
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, `"error"`) {
			errs++
		} else {
			infos++
		}
	}, funcr.Options{})
	fetching(t, podsource.HTTPConfig{Log: log}, func(*http.Request) *http.Response {
		if good.Load() {
			return answer(200, manifest("a"))
		}
		return nil
	}, func(_ *podsource.HTTP, _ func() []string, step func()) {
		for range 10 {
			step()
		}
		require.Equal(t, 3, errs)
		good.Store(true)
		step()
		require.Equal(t, 1, infos)
	})
}

func TestNewHTTPRefusesWhatItCantUse(t *testing.T) {
	for url, want := range map[string]string{
		"":                         `podsource: manifest URL "": want http://host/path or https://host/path`,
		"file:///etc/pods":         `podsource: manifest URL "file:///etc/pods": want http://host/path or https://host/path`,
		"http://u:secret@/pods":    `podsource: manifest URL "http://u:xxxxx@/pods": want http://host/path or https://host/path`,
		"http://u:secret@ho st/":   `podsource: parse manifest URL: invalid character " " in host name`,
		"https://no-node-name/pod": "podsource: HTTPConfig needs NodeName",
	} {
		_, err := podsource.NewHTTP(podsource.HTTPConfig{URL: url})
		require.EqualError(t, err, want)
	}
}
