package files

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"time"
)

// KeyError is what is wrong with one setting.
type KeyError struct {
	Key string // as in the configuration: cert_file, key_file, …
	Err error
}

func (e *KeyError) Error() string { return e.Key + ": " + e.Err.Error() }
func (e *KeyError) Unwrap() error { return e.Err }

func keyErrorf(key, format string, args ...any) error {
	return &KeyError{Key: key, Err: fmt.Errorf(format, args...)}
}

// protocols are what is offered by ALPN.
var protocols = []string{"h2", "http/1.1"}

// ServerTLS are the files of a listener.
type ServerTLS struct {
	// CertFile and KeyFile are the listener's certificate, with those between it
	// and its CA, and its key. Without them the listener speaks no TLS.
	CertFile, KeyFile string
	// ClientCAFile has the CAs of clients. If it is set a client without a
	// certificate of one of them is refused.
	ClientCAFile string
	// MinVersion is tls.VersionTLS12, which 0 is too, or higher.
	MinVersion uint16
}

// Config returns the listener's configuration, whose certificates are those of
// the files as they are when a client comes; nil if there are no files. Errors
// are of type *KeyError.
//
// With ClientCAFile no session is resumed: a client's certificate is checked
// against the CAs of today on each connection.
func (s ServerTLS) Config(o Options) (*tls.Config, error) {
	if s.CertFile == "" && s.KeyFile == "" {
		if s.ClientCAFile != "" {
			return nil, keyErrorf("client_ca_file", "needs cert_file and key_file: without them there is no TLS")
		}
		return nil, nil
	}
	cert, err := certificate(s.CertFile, s.KeyFile, o)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: max(s.MinVersion, tls.VersionTLS12),
		NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return cert.Get(), nil
		},
	}
	if s.ClientCAFile == "" {
		return config, nil
	}
	clients, err := pool("client_ca_file", s.ClientCAFile, o)
	if err != nil {
		return nil, err
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.SessionTicketsDisabled = true
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := config.Clone()
		now.GetConfigForClient, now.ClientCAs = nil, clients.Get()
		return now, nil
	}
	return config, nil
}

// ClientTLS are the files with which a server is called.
type ClientTLS struct {
	// CAFile has the CAs that the server's certificate may be of; "" is those of
	// the system.
	CAFile string
	// CertFile and KeyFile are what the server is shown if it asks.
	CertFile, KeyFile string
	// ServerName is what the server's certificate must be for; "" is the host
	// that is called.
	ServerName string
}

// handshakeTimeout bounds a handshake.
const handshakeTimeout = 10 * time.Second

// Handshake makes a TLS connection of one that was dialed.
type Handshake func(ctx context.Context, conn net.Conn) (*tls.Conn, error)

// Handshake returns the function that makes TLS connections to a host, with the
// files as they are when it is called. It offers HTTP/2. If it fails the
// connection is closed. Errors are of type *KeyError.
func (c ClientTLS) Handshake(host string, o Options) (Handshake, error) {
	roots, cert := func() *x509.CertPool { return nil }, (*Value[*tls.Certificate])(nil)
	if c.CAFile != "" {
		v, err := pool("ca_file", c.CAFile, o)
		if err != nil {
			return nil, err
		}
		roots = v.Get
	}
	if c.CertFile != "" || c.KeyFile != "" {
		var err error
		if cert, err = certificate(c.CertFile, c.KeyFile, o); err != nil {
			return nil, err
		}
	}
	if c.ServerName != "" {
		host = c.ServerName
	}
	return func(ctx context.Context, conn net.Conn) (*tls.Conn, error) {
		config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, ServerName: host, RootCAs: roots()}
		if cert != nil {
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return cert.Get(), nil }
		}
		ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
		defer cancel()
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, err
		}
		return secure, nil
	}, nil
}

// certificate reads a certificate and its key.
func certificate(certFile, keyFile string, o Options) (*Value[*tls.Certificate], error) {
	switch {
	case keyFile == "":
		return nil, keyErrorf("cert_file", "needs key_file too")
	case certFile == "":
		return nil, keyErrorf("key_file", "needs cert_file too")
	}
	v, err := NewValue(o, func(contents [][]byte) (*tls.Certificate, error) {
		pair, err := tls.X509KeyPair(contents[0], contents[1])
		return &pair, err
	}, certFile, keyFile)
	if err != nil {
		key := "cert_file"
		if bad := (*os.PathError)(nil); errors.As(err, &bad) && bad.Path == keyFile && keyFile != certFile {
			key = "key_file"
		}
		return nil, &KeyError{Key: key, Err: err}
	}
	return v, nil
}

// pool reads CAs.
func pool(key, file string, o Options) (*Value[*x509.CertPool], error) {
	v, err := NewValue(o, func(contents [][]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(contents[0]) {
			return nil, errors.New("no certificate in PEM is in it")
		}
		return pool, nil
	}, file)
	if err != nil {
		return nil, &KeyError{Key: key, Err: err}
	}
	return v, nil
}
