// Package authority is a certificate authority of a test.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates for 127.0.0.1.
type Authority struct {
	Certificate *x509.Certificate
	File        string // of the certificate, PEM

	key *ecdsa.PrivateKey
}

// New makes an authority, whose certificate it writes into the folder.
func New(t testing.TB, dir string) *Authority {
	t.Helper()
	ca := &Authority{File: filepath.Join(dir, "ca.pem")}
	der := ca.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a CA of a test"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, newKey(t))
	var err error
	if ca.Certificate, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	write(t, ca.File, "CERTIFICATE", der)
	return ca
}

// Issue writes a certificate of that name and its key, for a server or a
// client, into the folder, and returns the two files.
func (ca *Authority) Issue(t testing.TB, dir, name string) (certificate, key string) {
	t.Helper()
	private := newKey(t)
	der := ca.sign(t, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, private)
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+"-key.pem")
	write(t, certificate, "CERTIFICATE", der)
	write(t, key, "EC PRIVATE KEY", secret)
	return certificate, key
}

// sign signs a certificate of that key; the first one is the authority's own.
func (ca *Authority) sign(t testing.TB, c *x509.Certificate, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	by := ca.Certificate
	if by == nil {
		by, ca.key = c, key
	}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func write(t testing.TB, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
