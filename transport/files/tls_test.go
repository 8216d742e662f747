package files_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/transport/files"
	"github.com/llm-coordinator/coordinator/transport/files/filestest"
)

// shake connects a client to a listener over TCP, and returns what each makes of
// it. The client also reads a byte: what a server has against its certificate is
// only said after the handshake.
func shake(t *testing.T, server *tls.Config, client files.Handshake) (state tls.ConnectionState, clientErr, serverErr error) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ended := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		secure := tls.Server(conn, server)
		if err = secure.HandshakeContext(t.Context()); err == nil {
			_, err = secure.Write([]byte{1})
		}
		ended <- err
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	secure, clientErr := client(t.Context(), conn)
	if clientErr == nil {
		_, clientErr = secure.Read(make([]byte, 1))
		state = secure.ConnectionState()
		secure.Close()
	}
	return state, clientErr, <-ended
}

func serverOf(t *testing.T, s files.ServerTLS) *tls.Config {
	t.Helper()
	c, err := s.Config(files.Options{Every: -1})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func clientOf(t *testing.T, host string, c files.ClientTLS) files.Handshake {
	t.Helper()
	h, err := c.Handshake(host, files.Options{Every: -1})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestHandshakes(t *testing.T) {
	d := filestest.NewDir(t)
	ours, theirs := filestest.NewCA(t, "ours"), filestest.NewCA(t, "theirs")
	ca, other := d.Write("ca.pem", ours.PEM), d.Write("other.pem", theirs.PEM)
	cert, key := d.Pair("server", ours, "gw.test", "127.0.0.1")
	mine, mineKey := d.Pair("mine", ours, "me")
	wrong, wrongKey := d.Pair("wrong", theirs, "me")
	plain := files.ServerTLS{CertFile: cert, KeyFile: key}
	strict := files.ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: ca}
	tests := []struct {
		name           string
		server         files.ServerTLS
		host           string
		client         files.ClientTLS
		fault, counter string // of the client, of the server; "" is none
	}{
		{"private CA", plain, "gw.test", files.ClientTLS{CAFile: ca}, "", ""},
		{"address", plain, "127.0.0.1", files.ClientTLS{CAFile: ca}, "", ""},
		{"wrong name", plain, "x.test", files.ClientTLS{CAFile: ca}, "certificate is valid for gw.test, not x.test", "bad certificate"},
		{"wrong address", plain, "127.0.0.2", files.ClientTLS{CAFile: ca}, "not 127.0.0.2", "bad certificate"},
		{"named otherwise", plain, "x.test", files.ClientTLS{CAFile: ca, ServerName: "gw.test"}, "", ""},
		{"another CA", plain, "gw.test", files.ClientTLS{CAFile: other}, "signed by unknown authority", "bad certificate"},
		{"CAs of the system", plain, "gw.test", files.ClientTLS{}, "signed by unknown authority", "bad certificate"},
		{"both", strict, "gw.test", files.ClientTLS{CAFile: ca, CertFile: mine, KeyFile: mineKey}, "", ""},
		{"client without", strict, "gw.test", files.ClientTLS{CAFile: ca}, "remote error: tls: certificate required", "client didn't provide a certificate"},
		{"client of another CA", strict, "gw.test", files.ClientTLS{CAFile: ca, CertFile: wrong, KeyFile: wrongKey}, "remote error: tls: unknown certificate authority", "signed by unknown authority"},
		{"client with, not asked", plain, "gw.test", files.ClientTLS{CAFile: ca, CertFile: mine, KeyFile: mineKey}, "", ""},
		{"newest", files.ServerTLS{CertFile: cert, KeyFile: key, MinVersion: tls.VersionTLS13}, "gw.test", files.ClientTLS{CAFile: ca}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			state, err, counter := shake(t, serverOf(t, tt.server), clientOf(t, tt.host, tt.client))
			wantFault(t, "client", err, tt.fault)
			wantFault(t, "server", counter, tt.counter)
			if tt.fault == "" && state.NegotiatedProtocol != "h2" {
				t.Errorf("speaks %q", state.NegotiatedProtocol)
			}
		})
	}
}

func wantFault(t *testing.T, who string, err error, want string) {
	t.Helper()
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %v, want %q", who, err, want)
	}
}

func TestOldVersionsAreRefused(t *testing.T) {
	d, ca := filestest.NewDir(t), filestest.NewCA(t, "ca")
	cert, key := d.Pair("server", ca, "gw.test")
	for _, tt := range []struct{ server, client uint16 }{{0, tls.VersionTLS11}, {tls.VersionTLS10, tls.VersionTLS11}, {tls.VersionTLS13, tls.VersionTLS12}} {
		server := serverOf(t, files.ServerTLS{CertFile: cert, KeyFile: key, MinVersion: tt.server})
		a, b := net.Pipe()
		go func() {
			defer a.Close()
			tls.Client(a, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tt.client}).HandshakeContext(t.Context())
		}()
		err := tls.Server(b, server).HandshakeContext(t.Context())
		wantFault(t, "server", err, "client offered only unsupported versions")
		b.Close()
	}
}

// TestCertificatesAreRenewed while a listener and its client go on.
func TestCertificatesAreRenewed(t *testing.T) {
	d, logs := filestest.NewDir(t), &bytes.Buffer{}
	first, second := filestest.NewCA(t, "first"), filestest.NewCA(t, "second")
	serverCA, clientCA := d.Write("server-ca.pem", first.PEM), d.Write("client-ca.pem", first.PEM)
	cert, key := d.Pair("server", first, "gw.test")
	mine, mineKey := d.Pair("mine", first, "me")
	server, err := files.ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: clientCA}.Config(always(logs))
	if err != nil {
		t.Fatal(err)
	}
	client := clientOf(t, "gw.test", files.ClientTLS{CAFile: serverCA, CertFile: mine, KeyFile: mineKey})
	newCert, newKey := second.Issue("gw.test")
	unknown := "signed by unknown authority"
	for _, s := range []struct {
		name           string
		change         func()
		fault, counter string
	}{
		{"as it was", func() {}, "", ""},
		{"half of the server's pair", func() { d.Write("server.pem", newCert) }, "", ""},
		{"all of it", func() { d.Write("server.key", newKey) }, unknown, "bad certificate"},
		{"the client trusts it", func() { d.Write("server-ca.pem", second.PEM) }, "", ""},
		{"the server trusts other clients", func() { d.Write("client-ca.pem", second.PEM) }, "unknown certificate authority", unknown},
		{"the client has a new one", func() { d.Pair("mine", second, "me") }, "", ""},
		{"nonsense everywhere", func() {
			for _, name := range []string{"server.pem", "server.key", "client-ca.pem", "server-ca.pem", "mine.pem", "mine.key"} {
				d.Write(name, []byte("nonsense"))
			}
		}, "", ""},
	} {
		s.change()
		_, err, counter := shake(t, server, client)
		wantFault(t, s.name+": client", err, s.fault)
		wantFault(t, s.name+": server", counter, s.counter)
	}
	shake(t, server, client)
	if n := strings.Count(logs.String(), "level=WARN"); n != 3 || strings.Contains(logs.String(), "nonsense") {
		t.Errorf("%d warnings, want one of half a pair and two of nonsense:\n%s", n, logs)
	}
}

func TestFilesThatNoTLSCanBeMadeOf(t *testing.T) {
	d, ca, other := filestest.NewDir(t), filestest.NewCA(t, "ca"), filestest.NewCA(t, "other")
	cert, key := d.Pair("a", ca, "a")
	_, wrong := d.Pair("b", other, "b")
	empty, caFile, none := d.Write("empty", nil), d.Write("ca.pem", ca.PEM), d.Path("none")
	missing := "stat " + none + ": no such file or directory"
	tests := []struct {
		cert, key, ca string
		want          string // without the name of the CA's key
	}{
		{cert, "", "", "cert_file: needs key_file too"},
		{"", key, "", "key_file: needs cert_file too"},
		{none, key, "", "cert_file: " + missing},
		{cert, none, "", "key_file: " + missing},
		{cert, wrong, "", "cert_file: " + cert + ", " + wrong + ": tls: private key does not match public key"},
		{empty, key, "", "cert_file: " + empty + ", " + key + ": tls: failed to find any PEM data in certificate input"},
		{cert, empty, "", "cert_file: " + cert + ", " + empty + ": tls: failed to find any PEM data in key input"},
		{cert, key, none, "ca_file: " + missing},
		{cert, key, empty, "ca_file: " + empty + ": no certificate in PEM is in it"},
		{cert, key, key, "ca_file: " + key + ": no certificate in PEM is in it"},
	}
	for _, tt := range tests {
		_, err := files.ServerTLS{CertFile: tt.cert, KeyFile: tt.key, ClientCAFile: tt.ca}.Config(files.Options{})
		wantKeyError(t, err, strings.Replace(tt.want, "ca_file", "client_ca_file", 1))
		_, err = files.ClientTLS{CertFile: tt.cert, KeyFile: tt.key, CAFile: tt.ca}.Handshake("h", files.Options{})
		wantKeyError(t, err, tt.want)
	}
	_, err := files.ServerTLS{ClientCAFile: caFile}.Config(files.Options{})
	wantKeyError(t, err, "client_ca_file: needs cert_file and key_file: without them there is no TLS")
	if c, err := (files.ServerTLS{MinVersion: tls.VersionTLS12}).Config(files.Options{}); c != nil || err != nil {
		t.Errorf("%v, %v", c, err)
	}
}

func wantKeyError(t *testing.T, err error, want string) {
	t.Helper()
	bad := (*files.KeyError)(nil)
	if !errors.As(err, &bad) || err.Error() != want || bad.Key != strings.Split(want, ":")[0] {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// TestSessionsOfClientsWithCertificatesAreNotResumed: a CA that is taken out of
// the file would still let its clients in.
func TestSessionsOfClientsWithCertificatesAreNotResumed(t *testing.T) {
	d, ca := filestest.NewDir(t), filestest.NewCA(t, "ca")
	caFile := d.Write("ca.pem", ca.PEM)
	cert, key := d.Pair("server", ca, "gw.test")
	mine, mineKey := ca.Issue("me")
	pair, err := tls.X509KeyPair(mine, mineKey)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	for clientCA, want := range map[string]bool{"": true, caFile: false} {
		server := serverOf(t, files.ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: clientCA})
		client := &tls.Config{RootCAs: roots, ServerName: "gw.test", Certificates: []tls.Certificate{pair}, ClientSessionCache: tls.NewLRUClientSessionCache(1)}
		var resumed bool
		for range 2 {
			state, err, counter := shake(t, server, func(ctx context.Context, conn net.Conn) (*tls.Conn, error) {
				secure := tls.Client(conn, client)
				return secure, secure.HandshakeContext(ctx)
			})
			if err != nil || counter != nil {
				t.Fatal(err, counter)
			}
			resumed = state.DidResume
		}
		if resumed != want {
			t.Errorf("client CA %q: resumed is %t", clientCA, resumed)
		}
	}
}
