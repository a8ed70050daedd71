package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeletkit/kubeletkit/server"
)

var tlsVersions = map[string]uint16{
	"": tls.VersionTLS12, "VersionTLS12": tls.VersionTLS12, "VersionTLS13": tls.VersionTLS13,
	// Named by the kubelet's documentation, and still what an old client may need.
	"VersionTLS10": tls.VersionTLS10, "VersionTLS11": tls.VersionTLS11,
}

// tlsSettings translates the names of the configuration.
func tlsSettings(cfg *kubeletconfig.KubeletConfiguration) (minVersion uint16, suites []uint16, err error) {
	minVersion, ok := tlsVersions[cfg.TLSMinVersion]
	if !ok {
		return 0, nil, fmt.Errorf("tlsMinVersion %q must be VersionTLS12 or VersionTLS13", cfg.TLSMinVersion)
	}
	known := append(tls.CipherSuites(), tls.InsecureCipherSuites()...)
	for _, name := range cfg.TLSCipherSuites {
		i := slices.IndexFunc(known, func(s *tls.CipherSuite) bool { return s.Name == name })
		if i < 0 {
			return 0, nil, fmt.Errorf("tlsCipherSuites: %q is not a cipher suite", name)
		}
		suites = append(suites, known[i].ID)
	}
	return minVersion, suites, nil
}

// secureTLS is how the secure port speaks: with the configured certificate, or
// a self-signed one of its own.
func secureTLS(o options, now time.Time) (*tls.Config, error) {
	minVersion, suites, err := tlsSettings(&o.config)
	if err != nil {
		return nil, err
	}
	var pair tls.Certificate
	if o.config.TLSCertFile != "" {
		if pair, err = tls.LoadX509KeyPair(o.config.TLSCertFile, o.config.TLSPrivateKeyFile); err != nil {
			return nil, fmt.Errorf("load the serving certificate %s: %w", o.config.TLSCertFile, err)
		}
	} else {
		var ips []net.IP
		for _, ip := range o.nodeIPs {
			ips = append(ips, net.ParseIP(ip))
		}
		if pair, err = server.SelfSigned(o.certDir, o.nodeName, ips, now); err != nil {
			return nil, err
		}
	}
	return &tls.Config{
		Certificates: []tls.Certificate{pair},
		MinVersion:   minVersion,
		CipherSuites: suites,
		ClientAuth:   tls.RequestClientCert,
	}, nil
}

// access is who may use the secure port. Without an API server nobody can
// review a token or a request: what the configuration leaves to the webhook is
// denied, with the reason.
func access(cfg *kubeletconfig.KubeletConfiguration, log logr.Logger) ([]server.Authenticator, server.Authorizer, error) {
	var who []server.Authenticator
	if file := cfg.Authentication.X509.ClientCAFile; file != "" {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, nil, fmt.Errorf("read authentication.x509.clientCAFile: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(data) {
			return nil, nil, fmt.Errorf("authentication.x509.clientCAFile %s: %w", file, errors.New("no certificate in it"))
		}
		who = append(who, server.ClientCertificate{Roots: roots})
	}
	if *cfg.Authentication.Anonymous.Enabled {
		who = append(who, server.Anonymous{})
	}
	if cfg.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow {
		return who, server.AlwaysAllow{}, nil
	}
	log.V(1).Info("secure port refuses all requests: authorization.mode is Webhook and this node has no API server; set AlwaysAllow to open it")
	return who, server.Deny{Reason: "authorization.mode is Webhook and this node has no API server to ask"}, nil
}
