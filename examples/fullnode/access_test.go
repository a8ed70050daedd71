package main

import (
	"crypto/tls"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/server"
)

func TestAccess(t *testing.T) {
	dir := t.TempDir()
	certificate, err := server.SelfSigned(dir, "node", nil, time.Now())
	if err != nil || certificate.Leaf == nil && len(certificate.Certificate) == 0 {
		t.Fatal(err)
	}
	empty := filepath.Join(dir, "empty.crt")
	if err := os.WriteFile(empty, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		change  func(*kubeletconfig.KubeletConfiguration)
		known   int  // authenticators
		anybody bool // is somebody without a certificate known
		allowed bool
		err     string
	}{
		{"by default nobody may do anything", func(*kubeletconfig.KubeletConfiguration) {}, 0, false, false, ""},
		{"anonymous users are known and denied", func(c *kubeletconfig.KubeletConfiguration) { *c.Authentication.Anonymous.Enabled = true }, 1, true, false, ""},
		{"anonymous users are let in where everything is allowed", func(c *kubeletconfig.KubeletConfiguration) {
			*c.Authentication.Anonymous.Enabled = true
			c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
		}, 1, true, true, ""},
		{"a certificate is asked for", func(c *kubeletconfig.KubeletConfiguration) {
			c.Authentication.X509.ClientCAFile = filepath.Join(dir, "kubelet.crt")
			c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
		}, 1, false, true, ""},
		{"a CA file that is not there", func(c *kubeletconfig.KubeletConfiguration) { c.Authentication.X509.ClientCAFile = "/no/such/file" }, 0, false, false, "read authentication.x509.clientCAFile"},
		{"a CA file with nothing in it", func(c *kubeletconfig.KubeletConfiguration) { c.Authentication.X509.ClientCAFile = empty }, 0, false, false, empty},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, _, err := loadConfig("")
			if err != nil {
				t.Fatal(err)
			}
			c.change(&cfg)
			who, may, err := access(&cfg, logr.Discard())
			wantError(t, err, c.err)
			if c.err != "" {
				return
			}
			if len(who) != c.known {
				t.Errorf("%d authenticators, want %d", len(who), c.known)
			}
			request := httptest.NewRequest("GET", "/pods", nil)
			anybody := false
			for _, a := range who {
				_, ok, err := a.Authenticate(request)
				if err != nil {
					t.Error(err)
				}
				anybody = anybody || ok
			}
			if anybody != c.anybody {
				t.Errorf("a request without credentials is known: %v, want %v", anybody, c.anybody)
			}
			allowed, reason, err := may.Authorize(server.User{Name: "somebody"}, request)
			if err != nil || allowed != c.allowed || !allowed && !strings.Contains(reason, "authorization.mode") {
				t.Errorf("Authorize = %v, %q, %v, want %v and a reason for a no", allowed, reason, err, c.allowed)
			}
		})
	}
}

func TestSecureTLS(t *testing.T) {
	now := time.Now()
	o := fakeOptions(t)
	o.nodeIPs = []string{"192.0.2.1", "2001:db8::1"}
	cfg, err := secureTLS(o, now)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.MinVersion != tls.VersionTLS12 || cfg.ClientAuth != tls.RequestClientCert {
		t.Errorf("MinVersion %x, ClientAuth %v, want TLS 1.2 and a request for certificates", cfg.MinVersion, cfg.ClientAuth)
	}
	leaf := cfg.Certificates[0].Leaf
	for _, name := range []string{"node", "192.0.2.1", "[2001:db8::1]"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Errorf("the certificate is not for %s: %v", name, err)
		}
	}
	again, err := secureTLS(o, now)
	if err != nil || !again.Certificates[0].Leaf.Equal(leaf) {
		t.Errorf("a second start makes another certificate, %v", err)
	}
	later, err := secureTLS(o, leaf.NotAfter)
	if err != nil || later.Certificates[0].Leaf.Equal(leaf) {
		t.Errorf("a certificate that is over is used again, %v", err)
	}
	o.nodeIPs = []string{"192.0.2.77"}
	moved, err := secureTLS(o, leaf.NotAfter)
	if err != nil {
		t.Fatal(err)
	}
	if err := moved.Certificates[0].Leaf.VerifyHostname("192.0.2.77"); err != nil {
		t.Errorf("the node has another address, and the certificate is for the old one: %v", err)
	}

	o.config.TLSMinVersion, o.config.TLSCipherSuites = "VersionTLS13", []string{"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}
	o.config.TLSCertFile, o.config.TLSPrivateKeyFile = filepath.Join(o.certDir, "kubelet.crt"), filepath.Join(o.certDir, "kubelet.key")
	given, err := secureTLS(o, now)
	if err != nil || given.MinVersion != tls.VersionTLS13 || len(given.CipherSuites) != 1 {
		t.Errorf("secureTLS = %+v, %v", given, err)
	}
	o.config.TLSPrivateKeyFile = "/no/such/key"
	_, err = secureTLS(o, now)
	wantError(t, err, "load the serving certificate "+o.config.TLSCertFile)
}

func TestNodeAddresses(t *testing.T) {
	for _, c := range []struct {
		name, flag string
		want       string
		err        string
	}{
		{"one", "192.0.2.1", "192.0.2.1", ""},
		{"two, as given", "2001:db8::1, 192.0.2.1", "2001:db8::1 192.0.2.1", ""},
		{"one family written out", "2001:0db8:0::1", "2001:db8::1", ""},
		{"a name", "localhost", "", `"localhost" is not an IP address`},
		{"nothing behind the comma", "192.0.2.1,", "", `"" is not an IP address`},
		{"three", "192.0.2.1,2001:db8::1,192.0.2.2", "", "at most two"},
		{"two of one family", "192.0.2.1,192.0.2.2", "", "one per family"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ips, err := nodeAddresses(c.flag)
			wantError(t, err, c.err)
			if got := strings.Join(ips, " "); got != c.want {
				t.Errorf("nodeAddresses = %q, want %q", got, c.want)
			}
		})
	}
	ips, err := nodeAddresses("")
	if err != nil || len(ips) != 1 || net.ParseIP(ips[0]) == nil {
		t.Errorf("addresses of this machine = %v, %v, want one", ips, err)
	}
}
