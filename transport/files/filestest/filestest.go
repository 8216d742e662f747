// Package filestest makes certificates and files for tests.
package filestest

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
	"sync/atomic"
	"testing"
	"time"
)

// CA is a certificate authority.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte
}

var serial atomic.Int64

// NewCA makes a CA.
func NewCA(t testing.TB, name string) *CA {
	t.Helper()
	ca := &CA{t: t}
	ca.cert = &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	ca.PEM, ca.key = ca.sign(ca.cert)
	return ca
}

// sign signs a certificate for a new key; the CA's own if it has none yet.
func (ca *CA) sign(c *x509.Certificate) (text []byte, key *ecdsa.PrivateKey) {
	ca.t.Helper()
	c.SerialNumber = big.NewInt(serial.Add(1))
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	signer := ca.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, ca.cert, &key.PublicKey, signer)
	if err != nil {
		ca.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), key
}

// Issue makes a certificate, of a server or a client, for names and addresses.
func (ca *CA) Issue(hosts ...string) (cert, key []byte) {
	ca.t.Helper()
	c := &x509.Certificate{
		Subject: pkix.Name{CommonName: hosts[0]}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			c.IPAddresses = append(c.IPAddresses, ip)
		} else {
			c.DNSNames = append(c.DNSNames, h)
		}
	}
	cert, private := ca.sign(c)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		ca.t.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Dir is a directory of files.
type Dir struct {
	t    testing.TB
	path string
	when time.Time
}

// NewDir makes a directory that goes with the test.
func NewDir(t testing.TB) *Dir {
	return &Dir{t: t, path: t.TempDir(), when: time.Now().Add(-time.Hour).Truncate(time.Second)}
}

// Path is where a file of the directory is, or would be.
func (d *Dir) Path(name string) string { return filepath.Join(d.path, name) }

// Write writes a file and returns where it is. Each is a second newer than the
// one before, whatever the clock says.
func (d *Dir) Write(name string, content []byte) string {
	d.t.Helper()
	path := d.Path(name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		d.t.Fatal(err)
	}
	d.when = d.when.Add(time.Second)
	if err := os.Chtimes(path, d.when, d.when); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// Pair issues a certificate and writes it and its key to name.pem and
// name.key.
func (d *Dir) Pair(name string, ca *CA, hosts ...string) (certFile, keyFile string) {
	d.t.Helper()
	cert, key := ca.Issue(hosts...)
	return d.Write(name+".pem", cert), d.Write(name+".key", key)
}
