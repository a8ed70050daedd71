package server_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeletkit/kubeletkit/server"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type pods []*corev1.Pod

func (p pods) Pods() []*corev1.Pod { return p }

func get(t *testing.T, h http.Handler, method, path string) (int, string, http.Header) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w.Code, w.Body.String(), w.Header()
}

func TestRoutesAnswerAsTheKubeletDoes(t *testing.T) {
	routes := server.Routes(server.Parts{
		Healthz: server.Healthz(server.Ping(), server.Check{Name: "syncloop", Healthy: func() error { return errors.New("last turn 6m ago") }}),
		Pods:    server.Pods(pods{{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}),
	})
	for _, c := range []struct {
		name, method, path string
		code               int
		body               string
	}{
		{"the summary fails with one failed check and withholds the reason", "GET", "/healthz", 500, "[+]ping ok\n[-]syncloop failed: reason withheld\nhealthz check failed\n"},
		{"a check can be left out", "GET", "/healthz?exclude=syncloop", 200, "ok"},
		{"verbose lists the checks", "GET", "/healthz?exclude=syncloop&verbose", 200, "[+]ping ok\n[+]syncloop excluded: ok\nhealthz check passed\n"},
		{"an unknown exclusion is a warning", "GET", "/healthz?exclude=syncloop&exclude=nosuch&verbose", 200, "[+]ping ok\n[+]syncloop excluded: ok\nwarn: some health checks cannot be excluded: no matches for [\"nosuch\"]\nhealthz check passed\n"},
		{"one check alone", "GET", "/healthz/ping", 200, "ok"},
		{"one check alone tells the reason", "GET", "/healthz/syncloop", 500, "internal server error: last turn 6m ago\n"},
		{"an unknown check is not found", "GET", "/healthz/nosuch", 404, "404 page not found\n"},
		{"a part that was not given answers 501", "GET", "/metrics", 501, "this node does not offer this endpoint\n"},
		{"pods is for reading", "POST", "/pods", 405, "Method Not Allowed\n"},
		{"other paths do not exist and are not echoed", "GET", "/debug/pprof/secret", 404, "404 page not found\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, body, _ := get(t, routes, c.method, c.path)
			if code != c.code || body != c.body {
				t.Errorf("%s %s = %d %q, want %d %q", c.method, c.path, code, body, c.code, c.body)
			}
		})
	}
	_, body, header := get(t, routes, "GET", "/pods")
	var list corev1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil || list.Kind != "PodList" || len(list.Items) != 1 || list.Items[0].Name != "web" {
		t.Errorf("/pods = %q, %v", body, err)
	}
	if header.Get("Content-Type") != "application/json" {
		t.Errorf("content type = %q", header.Get("Content-Type"))
	}
}

func TestPodsOfAnEmptyNodeIsAnEmptyList(t *testing.T) {
	_, body, _ := get(t, server.Pods(pods(nil)), "GET", "/pods")
	if !strings.Contains(body, `"items":[]`) {
		t.Errorf("/pods = %s, want items to be an empty list and not null", body)
	}
}

type failingAuth struct{}

func (failingAuth) Authenticate(*http.Request) (server.User, bool, error) {
	return server.User{}, false, errors.New("no answer")
}
func (failingAuth) Authorize(server.User, *http.Request) (bool, string, error) {
	return false, "", errors.New("no answer")
}

func TestGuardOpensOnlyForKnownAndAllowedCallers(t *testing.T) {
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "in") })
	anyone := []server.Authenticator{server.Anonymous{}}
	for _, c := range []struct {
		name string
		who  []server.Authenticator
		may  server.Authorizer
		code int
	}{
		{"nobody is known", nil, server.AlwaysAllow{}, 401},
		{"anonymous and always allow", anyone, server.AlwaysAllow{}, 200},
		{"anonymous but denied", anyone, server.Deny{Reason: "no"}, 403},
		{"a broken authenticator lets nobody in", []server.Authenticator{failingAuth{}}, server.AlwaysAllow{}, 401},
		{"a broken authenticator does not lock out those the next one knows", []server.Authenticator{failingAuth{}, server.Anonymous{}}, server.AlwaysAllow{}, 200},
		{"a broken authorizer is an error, not a yes", anyone, failingAuth{}, 500},
		{"no certificate over plain HTTP", []server.Authenticator{server.ClientCertificate{Roots: x509.NewCertPool()}}, server.AlwaysAllow{}, 401},
	} {
		t.Run(c.name, func(t *testing.T) {
			if code, _, _ := get(t, server.Guard(next, c.who, c.may, logr.Discard()), "GET", "/pods"); code != c.code {
				t.Errorf("code = %d, want %d", code, c.code)
			}
		})
	}
}

// authority issues client certificates for the tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key}
}

func (a authority) client(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: []string{"ops"}}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestSecurePortKnowsCallersByClientCertificate(t *testing.T) {
	ours, theirs := newAuthority(t), newAuthority(t)
	roots := x509.NewCertPool()
	roots.AddCert(ours.cert)
	pair, err := server.SelfSigned(t.TempDir(), "node-1", nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "in") })
	s, err := server.New(server.Config{Listeners: []server.Listener{{
		Name: "secure", Address: "127.0.0.1:0",
		TLS:     &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12},
		Handler: server.Guard(next, []server.Authenticator{server.ClientCertificate{Roots: roots}}, server.AlwaysAllow{}, logr.Discard()),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	addr, err := s.Addr(ctx, "secure")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		certs []tls.Certificate
		code  int
	}{
		{"no certificate", nil, 401},
		{"a certificate of our authority", []tls.Certificate{ours.client(t, "alice")}, 200},
		{"a certificate of another authority", []tls.Certificate{theirs.client(t, "alice")}, 401},
		{"a certificate without a name", []tls.Certificate{ours.client(t, "")}, 401},
	} {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: c.certs}}
		resp, err := (&http.Client{Transport: transport}).Get("https://" + addr.String() + "/pods")
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		io.Copy(io.Discard, resp.Body) //nolint:errcheck // only the code matters
		resp.Body.Close()              //nolint:errcheck // read to the end
		transport.CloseIdleConnections()
		if resp.StatusCode != c.code {
			t.Errorf("%s: code = %d, want %d", c.name, resp.StatusCode, c.code)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want nil after cancel", err)
	}
}

func TestAPortThatIsTakenStopsTheServerBeforeItServes(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close() //nolint:errcheck // test
	h := http.NotFoundHandler()
	s, err := server.New(server.Config{Listeners: []server.Listener{
		{Name: "healthz", Address: "127.0.0.1:0", Handler: h},
		{Name: "secure", Address: taken.Addr().String(), Handler: h},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Listen(t.Context()); err == nil || !strings.Contains(err.Error(), "open the secure port") {
		t.Errorf("Listen = %v, want an error that names the port", err)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "open the secure port") {
		t.Errorf("Run = %v, want an error that names the port", err)
	}
}

func TestStopCutsARequestThatDoesNotEnd(t *testing.T) {
	entered := make(chan struct{})
	s, err := server.New(server.Config{Listeners: []server.Listener{{Name: "slow", Address: "127.0.0.1:0", Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		<-r.Context().Done()
	})}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	addr, err := s.Addr(ctx, "slow")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	transport := &http.Transport{}
	go func() {
		resp, err := (&http.Client{Transport: transport}).Get("http://" + addr.String() + "/")
		if err == nil {
			resp.Body.Close() //nolint:errcheck // test
		}
		got <- err
	}()
	<-entered
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run = %v", err)
	}
	<-got
	transport.CloseIdleConnections()
}

func TestNewRefusesWhatCanNotBeServed(t *testing.T) {
	h := http.NotFoundHandler()
	for _, ls := range [][]server.Listener{
		{{Name: "", Address: "127.0.0.1:0", Handler: h}},
		{{Name: "a", Address: "127.0.0.1:0"}},
		{{Name: "a", Address: "nonsense", Handler: h}},
		{{Name: "a", Address: "127.0.0.1:0", Handler: h}, {Name: "a", Address: "127.0.0.1:0", Handler: h}},
	} {
		if _, err := server.New(server.Config{Listeners: ls}); err == nil {
			t.Errorf("New(%+v) succeeded", ls)
		}
	}
}

func TestSelfSignedIsKeptUntilItIsOfNoUse(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	first, err := server.SelfSigned(dir, "node-1", []net.IP{net.IPv4(127, 0, 0, 1)}, now)
	if err != nil {
		t.Fatal(err)
	}
	same := func(pair tls.Certificate) bool { return string(pair.Certificate[0]) == string(first.Certificate[0]) }
	next := func(host string, now time.Time) tls.Certificate {
		t.Helper()
		pair, err := server.SelfSigned(dir, host, nil, now)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	if !same(next("node-1", now)) {
		t.Error("a second start made another certificate")
	}
	if same(next("node-2", now)) {
		t.Error("a certificate of another host was kept")
	}
	first = next("node-2", now)
	if same(next("node-2", now.Add(365*24*time.Hour))) {
		t.Error("an expired certificate was kept")
	}
	first = next("node-2", now)
	if err := os.WriteFile(filepath.Join(dir, "kubelet.crt"), []byte("half"), 0o644); err != nil {
		t.Fatal(err)
	}
	if same(next("node-2", now)) {
		t.Error("a damaged certificate was kept")
	}
	if info, err := os.Stat(filepath.Join(dir, "kubelet.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key mode = %v, %v, want 0600", info, err)
	}
}

func ExampleHealthz() {
	health := server.Healthz(server.Ping(), server.Check{Name: "disk", Healthy: func() error { return errors.New("disk is full") }})

	for _, path := range []string{"/healthz/ping", "/healthz/disk"} {
		w := httptest.NewRecorder()
		health.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		fmt.Println(path, w.Code, strings.TrimSpace(w.Body.String()))
	}
	// Output:
	// /healthz/ping 200 ok
	// /healthz/disk 500 internal server error: disk is full
}

func TestSelfSignedFollowsTheAddresses(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	for _, ip := range []string{"192.0.2.1", "2001:db8::1", "192.0.2.1"} {
		pair, err := server.SelfSigned(dir, "node-1", []net.IP{net.ParseIP(ip)}, now)
		if err != nil {
			t.Fatal(err)
		}
		if err := pair.Leaf.VerifyHostname(ip); err != nil {
			t.Errorf("after the node moved to %s: %v", ip, err)
		}
	}
}
