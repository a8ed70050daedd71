package lifecycle_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeletkit/kubeletkit/lifecycle"
)

// pod is a server that remembers what it was asked.
type pod struct {
	*httptest.Server
	mu    sync.Mutex
	asked []*http.Request
}

func newPod(t *testing.T, start func(*httptest.Server), answer http.HandlerFunc) *pod {
	p := &pod{}
	p.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, req)
		p.mu.Unlock()
		if answer != nil {
			answer(w, req)
		}
	}))
	p.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(p.Server)
	t.Cleanup(p.Close)
	return p
}

func (p *pod) requests() []*http.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// action asks this pod by its address and number.
func (p *pod) action() *corev1.HTTPGetAction {
	u, _ := url.Parse(p.URL)
	port, _ := strconv.Atoi(u.Port())
	return &corev1.HTTPGetAction{Path: "/stop", Port: intstr.FromInt(port)}
}

func httpCall(a *corev1.HTTPGetAction) lifecycle.Call {
	return lifecycle.Call{
		Pod: &corev1.Pod{}, Container: &corev1.Container{Name: "c"}, PodIP: "127.0.0.1",
		Handler: &corev1.LifecycleHandler{HTTPGet: a},
	}
}

func TestARequestAsItIsSent(t *testing.T) {
	header := func(list ...string) []corev1.HTTPHeader {
		var all []corev1.HTTPHeader
		for i := 0; i < len(list); i += 2 {
			all = append(all, corev1.HTTPHeader{Name: list[i], Value: list[i+1]})
		}
		return all
	}
	for _, tt := range []struct {
		name    string
		change  func(*corev1.HTTPGetAction)
		check   func(*http.Request) string
		want    string
		headers []corev1.HTTPHeader
	}{
		{name: "the path", check: func(r *http.Request) string { return r.RequestURI }, want: "/stop"},
		{name: "a path with a query", change: func(a *corev1.HTTPGetAction) { a.Path = "/stop?now=1&x=%20" },
			check: func(r *http.Request) string { return r.RequestURI }, want: "/stop?now=1&x=%20"},
		{name: "a path without a slash in front", change: func(a *corev1.HTTPGetAction) { a.Path = "stop" },
			check: func(r *http.Request) string { return r.RequestURI }, want: "/stop"},
		{name: "no path", change: func(a *corev1.HTTPGetAction) { a.Path = "" },
			check: func(r *http.Request) string { return r.RequestURI }, want: "/"},
		{name: "a path that is no URL", change: func(a *corev1.HTTPGetAction) { a.Path = "/%zz" },
			check: func(r *http.Request) string { return r.RequestURI }, want: "/%25zz"},
		{name: "another host's URL as a path", change: func(a *corev1.HTTPGetAction) { a.Path = "http://user:pw@192.0.2.1/x?y" },
			check: func(r *http.Request) string { return r.RequestURI + " " + r.Header.Get("Authorization") }, want: "/x?y "},
		{name: "who asks", check: func(r *http.Request) string { return r.UserAgent() + " " + r.Header.Get("Accept") }, want: "kube-lifecycle/1.37 */*"},
		{name: "another one asks", headers: header("user-agent", "me", "accept", "text/plain"),
			check: func(r *http.Request) string { return r.UserAgent() + " " + r.Header.Get("Accept") }, want: "me text/plain"},
		{name: "an empty Accept is not sent", headers: header("Accept", ""),
			check: func(r *http.Request) string { return fmt.Sprint(r.Header["Accept"]) }, want: "[]"},
		{name: "a header that is given twice", headers: header("X-A", "1", "x-a", "2"),
			check: func(r *http.Request) string { return fmt.Sprint(r.Header["X-A"]) }, want: "[1 2]"},
		{name: "the Host header", headers: header("Host", "web.example"),
			check: func(r *http.Request) string { return r.Host }, want: "web.example"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPod(t, (*httptest.Server).Start, nil)
			a := p.action()
			a.HTTPHeaders = tt.headers
			if tt.change != nil {
				tt.change(a)
			}
			if _, err := newRunner(t, lifecycle.Config{}).Run(t.Context(), httpCall(a)); err != nil {
				t.Fatal(err)
			}
			if got := p.requests(); len(got) != 1 || got[0].Method != "GET" || tt.check(got[0]) != tt.want {
				t.Errorf("%d requests, %q, want %q", len(got), tt.check(got[0]), tt.want)
			}
		})
	}
}

func TestAnyAnswerIsGoodEnough(t *testing.T) {
	for _, code := range []int{200, 301, 404, 500} {
		p := newPod(t, (*httptest.Server).Start, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		if _, err := newRunner(t, lifecycle.Config{}).Run(t.Context(), httpCall(p.action())); err != nil {
			t.Errorf("%d: %v", code, err)
		}
	}
	t.Run("one without end, too", func(t *testing.T) {
		p := newPod(t, (*httptest.Server).Start, func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		})
		if _, err := newRunner(t, lifecycle.Config{}).Run(t.Context(), httpCall(p.action())); err != nil {
			t.Error(err)
		}
	})
	t.Run("no answer is none", func(t *testing.T) {
		p := newPod(t, (*httptest.Server).Start, nil)
		a := p.action()
		p.Close()
		if _, err := newRunner(t, lifecycle.Config{}).Run(t.Context(), httpCall(a)); err == nil {
			t.Error("nobody answered and nobody cares")
		}
	})
}

func TestRedirects(t *testing.T) {
	other := newPod(t, (*httptest.Server).Start, nil)
	port := strconv.Itoa(other.action().Port.IntValue())
	t.Run("to another port of the host is followed", func(t *testing.T) {
		p := newPod(t, (*httptest.Server).Start, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://127.0.0.1:"+port+"/there", http.StatusFound)
		})
		if _, err := newRunner(t, lifecycle.Config{}).Run(t.Context(), httpCall(p.action())); err != nil || len(other.requests()) != 1 {
			t.Errorf("Run = %v, %d requests arrived", err, len(other.requests()))
		}
	})
	t.Run("to another host is the last answer", func(t *testing.T) {
		before := len(other.requests())
		p := newPod(t, (*httptest.Server).Start, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "http://localhost:"+port+"/there", http.StatusFound)
		})
		if _, err := newRunner(t, lifecycle.Config{}).Run(t.Context(), httpCall(p.action())); err != nil || len(other.requests()) != before {
			t.Errorf("Run = %v, %d requests arrived", err, len(other.requests())-before)
		}
	})
	t.Run("in a circle end", func(t *testing.T) {
		p := newPod(t, (*httptest.Server).Start, func(w http.ResponseWriter, req *http.Request) {
			http.Redirect(w, req, "/again", http.StatusFound)
		})
		if _, err := newRunner(t, lifecycle.Config{}).Run(t.Context(), httpCall(p.action())); err == nil || len(p.requests()) != 10 {
			t.Errorf("Run = %v after %d requests", err, len(p.requests()))
		}
	})
}

func TestHTTPS(t *testing.T) {
	var events []string
	fell := 0
	hooks := lifecycle.Hooks{
		Event: func(call lifecycle.Call, eventType, reason, _ string) {
			events = append(events, call.Container.Name+" "+eventType+" "+reason)
		},
		FellBack: func(lifecycle.Call) { fell++ },
	}
	t.Run("needs no certificate that anyone knows", func(t *testing.T) {
		p := newPod(t, (*httptest.Server).StartTLS, nil)
		a := p.action()
		a.Scheme = corev1.URISchemeHTTPS
		if _, err := newRunner(t, lifecycle.Config{Hooks: hooks}).Run(t.Context(), httpCall(a)); err != nil || fell > 0 {
			t.Errorf("Run = %v, fell back %d times", err, fell)
		}
	})
	t.Run("that is answered in plain HTTP is sent again without what was for HTTPS only", func(t *testing.T) {
		p := newPod(t, (*httptest.Server).Start, nil)
		a := p.action()
		a.Scheme = corev1.URISchemeHTTPS
		a.HTTPHeaders = []corev1.HTTPHeader{{Name: "Authorization", Value: "secret"}, {Name: "X-A", Value: "1"}}
		if _, err := newRunner(t, lifecycle.Config{Hooks: hooks}).Run(t.Context(), httpCall(a)); err != nil {
			t.Fatal(err)
		}
		got := p.requests()
		if len(got) != 1 || got[0].Header.Get("Authorization") != "" || got[0].Header.Get("X-A") != "1" {
			t.Errorf("requests = %v", got)
		}
		if fell != 1 || fmt.Sprint(events) != "[c Warning LifecycleHTTPFallback]" {
			t.Errorf("fell back %d times, events %v", fell, events)
		}
	})
	t.Run("in a plain hook that meets HTTPS is an answer like any other", func(t *testing.T) {
		p := newPod(t, (*httptest.Server).StartTLS, nil)
		if _, err := newRunner(t, lifecycle.Config{Hooks: hooks}).Run(t.Context(), httpCall(p.action())); err != nil || fell != 1 {
			t.Errorf("Run = %v, fell back %d times", err, fell)
		}
	})
}

func TestWhomARequestReaches(t *testing.T) {
	var dialed string
	r := newRunner(t, lifecycle.Config{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
		dialed = address
		return nil, errors.New("nobody there")
	}})
	for _, tt := range []struct {
		name       string
		host, ip   string
		port       intstr.IntOrString
		want, fail string
	}{
		{name: "the pod", ip: "10.0.0.7", port: intstr.FromInt32(80), want: "10.0.0.7:80"},
		{name: "the pod with an IPv6 address", ip: "fd00::7", port: intstr.FromInt32(80), want: "[fd00::7]:80"},
		{name: "the host that it names", host: "192.0.2.1", ip: "10.0.0.7", port: intstr.FromInt32(80), want: "192.0.2.1:80"},
		{name: "a port by its name", ip: "10.0.0.7", port: intstr.FromString("web"), want: "10.0.0.7:8080"},
		{name: "a number in a string", ip: "10.0.0.7", port: intstr.FromString("81"), want: "10.0.0.7:81"},
		{name: "a name that no port has", ip: "10.0.0.7", port: intstr.FromString("other"), fail: `port "other" is neither`},
		{name: "a port out of range", ip: "10.0.0.7", port: intstr.FromInt32(65536), fail: `port "65536" is neither`},
		{name: "nobody", port: intstr.FromInt32(80), fail: "the pod has no address"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dialed = ""
			call := httpCall(&corev1.HTTPGetAction{Host: tt.host, Port: tt.port})
			call.PodIP, call.Pod = tt.ip, nil
			call.Container.Ports = []corev1.ContainerPort{{Name: "dns", ContainerPort: 53}, {Name: "web", ContainerPort: 8080}}
			_, err := r.Run(t.Context(), call)
			if dialed != tt.want || err == nil || !strings.Contains(err.Error(), tt.fail) {
				t.Errorf("dialed %q, %v", dialed, err)
			}
		})
	}
}

func TestARequestEndsWithItsContext(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"before the answer":         func(http.ResponseWriter) {},
		"in the middle of the body": func(w http.ResponseWriter) { w.Write([]byte("x")); w.(http.Flusher).Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			p := newPod(t, (*httptest.Server).Start, func(w http.ResponseWriter, req *http.Request) {
				answer(w)
				cancel()
				<-req.Context().Done() // nobody listens any more
			})
			done := make(chan error, 1)
			go func() {
				_, err := newRunner(t, lifecycle.Config{}).Run(ctx, httpCall(p.action()))
				done <- err
			}()
			select {
			case <-done:
			case <-time.After(30 * time.Second):
				t.Fatal("Run outlives its context")
			}
		})
	}
}
