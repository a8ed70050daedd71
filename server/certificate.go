package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const selfSignedFor = 365 * 24 * time.Hour

// SelfSigned returns the serving certificate kept as kubelet.crt and kubelet.key
// under dir (the kubelet's names), making one for host and ips when there is none,
// when it does not parse, when it is for other ones, or when less than a day of it
// is left at now.
func SelfSigned(dir, host string, ips []net.IP, now time.Time) (tls.Certificate, error) {
	crt, key := filepath.Join(dir, "kubelet.crt"), filepath.Join(dir, "kubelet.key")
	pair, err := tls.LoadX509KeyPair(crt, key)
	if err == nil && pair.Leaf != nil && now.Add(24*time.Hour).Before(pair.Leaf.NotAfter) && isFor(pair.Leaf, host, ips) {
		return pair, nil
	}
	if err != nil && errors.Is(err, fs.ErrPermission) {
		return tls.Certificate{}, fmt.Errorf("read the serving certificate: %w", err)
	}
	certPEM, keyPEM, err := selfSigned(host, ips, now)
	if err != nil {
		return tls.Certificate{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return tls.Certificate{}, fmt.Errorf("make the certificate directory: %w", err)
	}
	// The key first: a certificate without its key would be taken for damage.
	if err := replaceFile(key, keyPEM, 0o600); err != nil {
		return tls.Certificate{}, fmt.Errorf("write the serving key: %w", err)
	}
	if err := replaceFile(crt, certPEM, 0o644); err != nil {
		return tls.Certificate{}, fmt.Errorf("write the serving certificate: %w", err)
	}
	return tls.X509KeyPair(certPEM, keyPEM)
}

func isFor(cert *x509.Certificate, host string, ips []net.IP) bool {
	for _, ip := range ips {
		if !slices.ContainsFunc(cert.IPAddresses, ip.Equal) {
			return false
		}
	}
	return cert.VerifyHostname(host) == nil
}

func selfSigned(host string, ips []net.IP, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a serving key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, fmt.Errorf("make a serial number: %w", err)
	}
	leaf := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: host + "@" + fmt.Sprint(now.Unix())},
		DNSNames:              []string{host},
		IPAddresses:           ips,
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(selfSignedFor),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, leaf, key.Public(), key)
	if err != nil {
		return nil, nil, fmt.Errorf("sign the serving certificate: %w", err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encode the serving key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}

// replaceFile puts data at path in one step, so that a crash leaves the old
// file or the new one.
func replaceFile(path string, data []byte, mode os.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) //nolint:errcheck // gone after the rename
	_, err = tmp.Write(data)
	err = errors.Join(err, tmp.Chmod(mode), tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
