package server

import (
	"crypto/x509"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
)

// User is who asks.
type User struct {
	Name   string
	Groups []string
}

// Authenticator tells who sent a request. ok false means: not known to me, ask
// the next one. An error is a fault of the authenticator, not of the caller.
type Authenticator interface {
	Authenticate(r *http.Request) (user User, ok bool, err error)
}

// Authorizer decides whether user may make the request. The reason is for the
// caller when the answer is no.
type Authorizer interface {
	Authorize(user User, r *http.Request) (allowed bool, reason string, err error)
}

// ClientCertificate authenticates by a client certificate that chains up to
// roots: the common name is the user, organizations are groups, as everywhere
// in Kubernetes. The listener's tls.Config must ask for a certificate
// ([crypto/tls.RequestClientCert]) and need not verify it.
type ClientCertificate struct{ Roots *x509.CertPool }

// Authenticate implements [Authenticator].
func (c ClientCertificate) Authenticate(r *http.Request) (User, bool, error) {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return User{}, false, nil
	}
	leaf := r.TLS.PeerCertificates[0]
	between := x509.NewCertPool()
	for _, cert := range r.TLS.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots:         c.Roots,
		Intermediates: between,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil || leaf.Subject.CommonName == "" {
		// A certificate of another authority says nothing about the caller.
		return User{}, false, nil
	}
	return User{Name: leaf.Subject.CommonName, Groups: append([]string{"system:authenticated"}, leaf.Subject.Organization...)}, true, nil
}

// Anonymous lets every caller in as system:anonymous. Put it last.
type Anonymous struct{}

// Authenticate implements [Authenticator].
func (Anonymous) Authenticate(*http.Request) (User, bool, error) {
	return User{Name: "system:anonymous", Groups: []string{"system:unauthenticated"}}, true, nil
}

// AlwaysAllow is the authorizer of configuration authorization.mode AlwaysAllow.
type AlwaysAllow struct{}

// Authorize implements [Authorizer].
func (AlwaysAllow) Authorize(User, *http.Request) (bool, string, error) { return true, "", nil }

// Deny is an authorizer that says no to everybody, and why.
type Deny struct{ Reason string }

// Authorize implements [Authorizer].
func (d Deny) Authorize(User, *http.Request) (bool, string, error) { return false, d.Reason, nil }

// Guard lets a request through to next when one of the authenticators knows the
// caller and the authorizer agrees. There is no path around it, /healthz
// included: who is open to the network has no open corner.
func Guard(next http.Handler, who []Authenticator, may Authorizer, log logr.Logger) http.Handler {
	if log.GetSink() == nil {
		log = logr.Discard()
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, ok := authenticate(who, r, log)
		if !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		allowed, reason, err := may.Authorize(user, r)
		switch {
		case err != nil:
			log.Error(err, "authorization is not available", "user", user.Name)
			http.Error(w, "Authorization error", http.StatusInternalServerError)
		case !allowed:
			http.Error(w, strings.TrimSpace("Forbidden "+reason), http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func authenticate(who []Authenticator, r *http.Request, log logr.Logger) (User, bool) {
	for _, a := range who {
		user, ok, err := a.Authenticate(r)
		if err != nil {
			log.Error(err, "authentication is not available")
			continue
		}
		if ok {
			return user, true
		}
	}
	return User{}, false
}
