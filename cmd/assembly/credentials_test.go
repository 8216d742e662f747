package assembly_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/loadtest/cluster"
	"github.com/llm-coordinator/coordinator/transport/files"
	"github.com/llm-coordinator/coordinator/transport/files/filestest"
)

// front serves a handler, to be set later, over TLS to clients that have a
// certificate.
type front struct {
	address string
	handler atomic.Pointer[http.Handler]
	http2   atomic.Int64 // requests that came by HTTP/2
}

func newFront(t *testing.T, s files.ServerTLS) *front {
	t.Helper()
	config, err := s.Config(files.Options{})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &front{address: "https://" + l.Addr().String()}
	srv := &http.Server{TLSConfig: config, ConnContext: cluster.ConnContext, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 {
				f.http2.Add(1)
			}
			(*f.handler.Load()).ServeHTTP(w, r)
		})}
	var running sync.WaitGroup
	running.Go(func() { srv.ServeTLS(l, "", "") })
	t.Cleanup(func() {
		srv.Close()
		running.Wait()
	})
	return f
}

// TestEverythingOverTLS: a client over HTTP/2, the gateway and the render
// service over HTTP/2 with certificates on both sides and credentials of their
// own. Each gets its own and nothing of the other's; nobody else gets any, and
// they are nowhere to be read.
func TestEverythingOverTLS(t *testing.T) {
	d, ca, own := filestest.NewDir(t), filestest.NewCA(t, "ca"), filestest.NewCA(t, "clients'")
	caFile := d.Write("ca.pem", ca.PEM)
	cert, key := d.Pair("server", ca, "127.0.0.1", "upstream.test")
	mine, mineKey := d.Pair("mine", ca, "coordinator")
	clientCert, clientKey := own.Issue("client")
	t.Setenv("RENDER_KEY", "render-credential")
	s := files.ServerTLS{CertFile: cert, KeyFile: key, ClientCAFile: caFile}
	gateway, render := newFront(t, s), newFront(t, s)
	r := newRig(t, setup{
		gateway: gateway.address,
		steps: mediaStep + fmt.Sprintf("[[pipeline.steps]]\ntype = \"render\"\n[pipeline.steps.params]\naddress = %q\nheaders = { Authorization = \"env:RENDER_KEY\", X-Render = \"literal-credential\" }\n"+
			"tls = { ca_file = %q, cert_file = %q, key_file = %q, server_name = \"upstream.test\" }\n", render.address, caFile, mine, mineKey) +
			encodeStep + prefillStep + decodeStep,
		toml: fmt.Sprintf("[gateway.tls]\nca_file = %q\ncert_file = %q\nkey_file = %q\n[gateway.headers]\nauthorization = %q\nX-Literal = \"literal-credential\"\n"+
			"[server.tls]\ncert_file = %q\nkey_file = %q\nclient_ca_file = %q\nmin_version = \"1.3\"\n",
			caFile, mine, mineKey, "file:"+d.Write("token", []byte("gateway-credential\n")), cert, key, d.Write("clients.pem", own.PEM)),
	})
	h := r.cluster.Handler()
	gateway.handler.Store(&h)
	render.handler.Store(&h)

	pair, err := tls.X509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.PEM)
	r.base = strings.Replace(r.base, "http:", "https:", 1)
	r.client = &http.Client{Transport: &http.Transport{ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}}}

	body := `{"model":"demo-model","stream":true,"messages":[{"role":"user","content":[{"type":"text","text":"a b"},{"type":"image_url","image_url":{"url":"` +
		r.cluster.ImageURL("a.png", cluster.ImageOptions{}) + `"}}]}]}`
	resp, err := r.open(within(t), chatPath, body, "X-Request-Id", "id", "Authorization", "client-credential")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 200 || resp.ProtoMajor != 2 || err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Fatalf("%d %s %s %v\n%s", resp.StatusCode, resp.Proto, text, err, r.logs)
	}
	r.settled()

	want := map[string]http.Header{
		cluster.Origin:  {"Authorization": nil, "X-Literal": nil, "X-Render": nil},
		cluster.Render:  {"Authorization": {"render-credential"}, "X-Literal": nil, "X-Render": {"literal-credential"}},
		cluster.Encode:  {"Authorization": {"gateway-credential"}, "X-Literal": {"literal-credential"}, "X-Render": nil},
		cluster.Prefill: {"Authorization": {"gateway-credential"}, "X-Literal": {"literal-credential"}, "X-Render": nil},
		cluster.Decode:  {"Authorization": {"gateway-credential"}, "X-Literal": {"literal-credential"}, "X-Render": nil},
	}
	legs := r.cluster.Legs("")
	if len(legs) != len(want) {
		t.Errorf("legs %v", r.legs(""))
	}
	for _, l := range legs {
		for name, values := range want[l.Name] {
			if !slices.Equal(l.Header[name], values) {
				t.Errorf("%s got %s %q, want %q", l.Name, name, l.Header[name], values)
			}
		}
	}
	if g, n := gateway.http2.Load(), render.http2.Load(); g != 3 || n != 1 {
		t.Errorf("%d legs of the gateway and %d of render came by HTTP/2", g, n)
	}

	var described bytes.Buffer
	if err := r.Describe(&described); err != nil {
		t.Fatal(err)
	}
	status, err := json.Marshal(r.Status("test"))
	if err != nil {
		t.Fatal(err)
	}
	for where, text := range map[string]string{"log": r.logs.String(), "description": described.String(), "status": string(status), "answer": string(text)} {
		if strings.Contains(text, "credential") {
			t.Errorf("a credential is in the %s:\n%s", where, text)
		}
	}
	for _, line := range []string{`gateway.headers.authorization "file:`, "gateway.headers.X-Literal (set)", `headers.Authorization "env:RENDER_KEY"`, "headers.X-Render (set)"} {
		if !strings.Contains(strings.Join(strings.Fields(described.String()), " "), line) {
			t.Errorf("no %q in\n%s", line, described.String())
		}
	}
}

// serveH2C has a gateway on a listener that speaks nothing but HTTP/2, without TLS.
func serveH2C(t *testing.T, l net.Listener, h http.Handler) {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	srv := &http.Server{Handler: h, Protocols: p, ConnContext: cluster.ConnContext}
	var running sync.WaitGroup
	running.Go(func() { srv.Serve(l) })
	t.Cleanup(func() {
		srv.Close()
		running.Wait()
	})
}

// TestAnswersWithoutABodyOverHTTP2 pass, though 304 says the length of what it
// stands for.
func TestAnswersWithoutABodyOverHTTP2(t *testing.T) {
	l := listen(t)
	serveH2C(t, l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/models/304" {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(http.StatusNotModified)
		} else {
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	r := newRig(t, setup{steps: decodeStep, gateway: "http://" + l.Addr().String(), toml: "[gateway]\nh2c = true\n"})
	for _, status := range []int{http.StatusNotModified, http.StatusNoContent} {
		if got := r.do(http.MethodGet, fmt.Sprintf("/v1/models/%d", status), "", ""); got.status != status || got.err != nil {
			t.Errorf("got %d %v %s", got.status, got.err, got.body)
		}
	}
	r.atRest()
}

func listen(t *testing.T) net.Listener {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestH2CToTheGateway: the simulated cluster speaks nothing but HTTP/2.
func TestH2CToTheGateway(t *testing.T) {
	l := listen(t)
	r := newRig(t, setup{gateway: "http://" + l.Addr().String(), toml: "[gateway]\nh2c = true\n"})
	serveH2C(t, l, r.cluster.Handler())
	held := r.cluster.Hold(cluster.Gate{Leg: cluster.Decode, At: cluster.AtChunk, Chunk: 2})
	resp, err := r.open(within(t), chatPath, chatBody("a b c", true))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := resp.Body.Read(make([]byte, 1<<16)); n == 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	held.Release()
	if text, err := io.ReadAll(resp.Body); err != nil || !strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("%q, %v", text, err)
	}
	r.settled()
}

// TestSecurityThatCannotBe stops startup and names the line and the key.
func TestSecurityThatCannotBe(t *testing.T) {
	d, ca := filestest.NewDir(t), filestest.NewCA(t, "ca")
	cert, key := d.Pair("a", ca, "a")
	none := d.Path("none")
	const https = "[gateway]\naddress = \"https://g\"\n"
	render := func(params string) string {
		return "[[pipeline.steps]]\ntype = \"render\"\nparams = { address = \"https://r\", " + params + " }\n"
	}
	tests := []struct{ text, want string }{
		{https + "h2c = true\n", "f.toml:3: gateway.h2c: is for an http address; over https HTTP/2 is spoken anyway"},
		{"[gateway.tls]\nca_file = \"x\"\n", "f.toml:2: gateway.tls.ca_file: is for an https address"},
		{https + "[gateway.tls]\ncert_file = \"" + cert + "\"\n", "f.toml:4: gateway.tls.cert_file: needs key_file too"},
		{https + "[gateway.tls]\nca_file = \"" + none + "\"\n", "f.toml:4: gateway.tls.ca_file: stat " + none + ": no such file or directory"},
		{"[gateway.headers]\nHost = \"x\"\n", "f.toml:2: gateway.headers.Host: is the coordinator's own to set"},
		{"[gateway.headers]\nEpp-Profile = \"x\"\n", "f.toml:2: gateway.headers.Epp-Profile: is the coordinator's own to set"},
		{"[gateway.headers]\nX-A = \"env:NONE\"\n", `f.toml:2: gateway.headers.X-A: there is no environment variable "NONE"`},
		{"[server.tls]\nkey_file = \"" + key + "\"\n", "f.toml:2: server.tls.key_file: needs cert_file too"},
		{"[server.tls]\ncert_file = \"" + cert + "\"\nkey_file = \"" + none + "\"\n", "f.toml:3: server.tls.key_file: stat " + none + ": no such file or directory"},
		{"[server.tls]\nclient_ca_file = \"" + cert + "\"\n", "f.toml:2: server.tls.client_ca_file: needs cert_file and key_file: without them there is no TLS"},
		{render(`tls = { key_file = "x" }`), "f.toml:3: pipeline.steps[1] (render): tls.key_file: needs cert_file too"},
		{render(`headers = { Prefer = "x" }`), "f.toml:3: pipeline.steps[1] (render): headers.Prefer: is the coordinator's own to set"},
		{render(`headers = { EPP-Profile = "x" }`), "f.toml:3: pipeline.steps[1] (render): headers.EPP-Profile: is the coordinator's own to set"},
		{render(`headers = { X-A = "file:` + none + `" }`), "f.toml:3: pipeline.steps[1] (render): headers.X-A: stat " + none + ": no such file or directory"},
	}
	for _, tt := range tests {
		cfg, err := conf.Parse("f.toml", []byte(tt.text+decodeStep), nil)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		c, err := assembly.New(cfg, assembly.Options{LookupEnv: func(string) (string, bool) { return "", false }})
		if err == nil {
			c.Close()
			err = errors.New("none")
		}
		if err.Error() != tt.want {
			t.Errorf("got  %v\nwant %s", err, tt.want)
		}
	}
}
