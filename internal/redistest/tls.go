package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// StartTLS is Start with a server that speaks only TLS. Its certificate is made
// for the test and valid for 127.0.0.1; Options and Client trust it, and
// nothing else. The server asks for no client certificate, unless args say
// "--tls-auth-clients", "yes", which no client of this package satisfies.
func StartTLS(tb testing.TB, args ...string) *Server {
	tb.Helper()
	dir := tb.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	roots, err := writeCertificate(cert, key)
	if err != nil {
		tb.Fatalf("redistest: certificate: %v", err)
	}
	s := newServer(tb, dir, nil)
	s.tls = &tls.Config{RootCAs: roots, ServerName: loopbackIP, MinVersion: tls.VersionTLS12}
	s.start(tb, freePort, append([]string{
		"--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert, "--tls-auth-clients", "no",
	}, args...))
	return s
}

// writeCertificate makes a key and a certificate that signs itself, and returns
// the pool that trusts it.
func writeCertificate(certFile, keyFile string) (*x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		// Valid also by the clock of a synctest bubble, which begins in 2000.
		NotBefore:             time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
		IPAddresses:           []net.IP{net.ParseIP(loopbackIP)},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(certPEM) {
		return nil, errors.New("the pool does not take it")
	}
	return pool, errors.Join(
		os.WriteFile(certFile, certPEM, 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
	)
}
