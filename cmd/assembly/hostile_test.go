package assembly_test

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// exchange sends bytes on a connection of its own and reads the first answer; status 0 means that the connection ended without one.
func (r *rig) exchange(request string) response {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.base, "http://"))
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute)) // of a test that hangs
	sent := make(chan struct{})
	go func() { // a server that refuses does not read to the end
		defer close(sent)
		text, ends := strings.CutSuffix(request, cut)
		io.WriteString(conn, text)
		if ends {
			conn.(*net.TCPConn).CloseWrite()
		}
	}()
	answers := bufio.NewReader(conn)
	method, _, _ := strings.Cut(request, " ")
	got, err := http.ReadResponse(answers, &http.Request{Method: method})
	if err != nil {
		if nerr, ok := err.(net.Error); ok && nerr.Timeout() {
			r.t.Errorf("no answer and no end: %v", err)
		}
		conn.Close()
		<-sent
		return response{err: err}
	}
	body, err := io.ReadAll(got.Body)
	got.Body.Close()
	conn.Close()
	<-sent
	return response{got.StatusCode, got.Header, string(body), err}
}

// hostile is an input, and what becomes of it. Code is "" for answers that are
// net/http's own, status 0 for none at all.
type hostile struct {
	name    string
	request string
	status  int
	code    string
	legs    []string
}

// post is a request as it goes over the wire. Lines are headers.
func post(path, body string, lines ...string) string {
	return request("POST", path, body, append([]string{fmt.Sprintf("Content-Length: %d", len(body))}, lines...)...)
}

// request is one without a Content-Length.
func request(method, target, body string, lines ...string) string {
	return method + " " + target + " HTTP/1.1\r\nHost: coordinator\r\nConnection: close\r\n" + strings.Join(append(lines, "", ""), "\r\n") + body
}

// chunked is a body in chunks as they are given.
func chunked(body string, lines ...string) string {
	return request("POST", chatPath, body, append([]string{"Transfer-Encoding: chunked"}, lines...)...)
}

// cut ends a request whose client ends its half of the connection behind it.
const cut = "\x00cut"

const goodBody = `{"model":"demo-model","messages":[{"role":"user","content":"hi"}]}`

func chunk(text string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(text), text) }

var all = []string{"render", "prefill", "decode"}

// hostileBodies go to the chat route.
func hostileBodies() (table []hostile) {
	bad := func(name, body string) {
		table = append(table, hostile{"body: " + name, post(chatPath, body), 400, "invalid_json", nil})
	}
	sent := func(name, body string, status int, code string, legs ...string) {
		table = append(table, hostile{"body: " + name, post(chatPath, body), status, code, legs})
	}
	with := func(member string) string {
		return `{"model":"demo-model","messages":[{"role":"user","content":"hi"}],` + member + `}`
	}
	utf16With := func(low, high int) string {
		var b []byte
		for _, u := range utf16.Encode([]rune("\ufeff" + goodBody)) {
			pair := [2]byte{}
			pair[low], pair[high] = byte(u), byte(u>>8)
			b = append(b, pair[:]...)
		}
		return string(b)
	}
	bad("none", "")
	bad("white space", " \r\n\t ")
	bad("BOM", "\ufeff"+goodBody)
	bad("UTF-16, little end first", utf16With(0, 1))
	bad("UTF-16, big end first", utf16With(1, 0))
	bad("UTF-16 without BOM", utf16With(0, 1)[2:])
	bad("invalid UTF-8", with("\"a\":\"\xff\xfe\""))
	bad("overlong UTF-8", with("\"a\":\"\xc0\xaf\""))
	bad("a surrogate in UTF-8", with("\"a\":\"\xed\xa0\x80\""))
	bad("NUL in a string", with("\"a\":\"\x00\""))
	bad("NUL in a name", with("\"a\x00\":1"))
	bad("NUL behind", goodBody+"\x00")
	bad("line end in a string", with("\"a\":\"\n\""))
	bad("vertical tab as white space", "\v"+goodBody)
	bad("no-break space as white space", "\u00a0"+goodBody)
	bad("single quotes", `{'model':'demo-model'}`)
	bad("names without quotes", `{model:"demo-model"}`)
	bad("comma too many", `{"model":"demo-model",}`)
	bad("comma missing", `{"model":"demo-model" "messages":[]}`)
	bad("comment", `{"model":"demo-model"/* x */}`)
	bad("NaN", with(`"temperature":NaN`))
	bad("infinity", with(`"temperature":-Infinity`))
	bad("hexadecimal", with(`"n":0x1`))
	bad("leading zero", with(`"n":01`))
	bad("plus", with(`"n":+1`))
	bad("point first", with(`"n":.5`))
	bad("point last", with(`"n":1.`))
	bad("exponent without digits", with(`"n":1e`))
	bad("True", with(`"stream":True`))
	bad("escape of another language", with(`"a":"\x41"`))
	bad("escape cut short", with(`"a":"\u12"`))
	bad("string without end", `{"model":"demo-model`)
	bad("object without end", `{"model":"demo-model"`)
	bad("array", "["+goodBody+"]")
	bad("string", `"{}"`)
	bad("null", "null")
	bad("two objects", goodBody+goodBody)
	bad("lines", goodBody+"\n"+goodBody)
	bad("form", "model=demo-model&messages=hi")
	bad("arrays too deep", `{"a":`+strings.Repeat("[", 10_000)+strings.Repeat("]", 10_000)+`}`)
	bad("objects too deep", strings.Repeat(`{"a":`, 10_001)+"1"+strings.Repeat("}", 10_001))
	bad("a million brackets", `{"a":`+strings.Repeat("[", 1_000_000))
	bad("a million braces", strings.Repeat(`{"":`, 1_000_000))

	sent("as deep as can be", with(`"a":`+strings.Repeat("[", 9_999)+strings.Repeat("]", 9_999)), 200, "", all...)
	var keys strings.Builder
	for i := range 1_000_000 {
		fmt.Fprintf(&keys, `"%x":0,`, i)
	}
	bad("a million keys", with(keys.String()+`"z":0`))
	bad("a million times one key", with(strings.Repeat(`"\u0061":0,`, 1_000_000)+`"z":0`))
	sent("a million keys within", with(`"a":{`+keys.String()+`"z":0}`), 200, "", all...)
	sent("a huge number", with(`"max_tokens":1e999999999`), 400, "upstream_rejected", "render")
	sent("a number of a megabyte", with(`"seed":`+strings.Repeat("9", 1<<20)), 400, "upstream_rejected", "render")
	sent("a surrogate as the model", `{"model":"\ud800","messages":[{"role":"user","content":"hi"}]}`, 404, "upstream_rejected", "render")
	sent("a model of a megabyte", `{"model":"`+strings.Repeat("m", 1<<20)+`","messages":[{"role":"user","content":"hi"}]}`, 404, "upstream_rejected", "render")
	sent("an object as the model", `{"model":{"a":1},"messages":[{"role":"user","content":"hi"}]}`, 400, "upstream_rejected", "render")
	sent("surrogates in a text", `{"model":"demo-model","messages":[{"role":"user","content":"\udc00\ud800"}]}`, 200, "", all...)
	sent("names of another language", with(`"__proto__":{"x":1},"constructor":null`), 200, "", all...)
	sent("messages that are none", `{"model":"demo-model","messages":{}}`, 400, "upstream_rejected", "render")
	return table
}

// hostileMedia are images that the guard must not let through. The legs that go
// out are the origin's.
func hostileMedia() (table []hostile) {
	add := func(url, code string) {
		body := `{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":` + url + `}}]}]}`
		table = append(table, hostile{"image: " + url, post(chatPath, body), 400, code, nil})
	}
	refused := func(url string) { add(fmt.Sprintf("%q", url), "invalid_media") }
	blocked := func(url string) { add(fmt.Sprintf("%q", url), "media_fetch_failed") }
	for _, url := range []string{
		"", "/etc/passwd", "//127.0.0.1/x", "file:///etc/passwd", "gopher://127.0.0.1:70/x", "ftp://127.0.0.1/x", "javascript:alert(1)", "blob:http://127.0.0.1/x",
		" http://127.0.0.1/x", "http:127.0.0.1/x", "http://", "http:///x", "http:\\\\127.0.0.1/x", "http://user:pass@127.0.0.1/x", "http://127.0.0.1@example.com/x",
		"http://@127.0.0.1/x", "http://a@b@127.0.0.1/x", "http://127.0.0.1:0/x", "http://127.0.0.1:99999/x", "http://127.0.0.1:-1/x", "http://127.0.0.1:80:80/x",
		"http://[::1/x", "http://[127.0.0.1]/x", "http://[fe80::1%25eth0]/x", "http://①②⑦.⓪.⓪.①/x", "http://127。0。0。1/x", "http://127.0.0.1%2f.example.com/x",
		"http://exa mple.com/x", "http://localhost\\x/y", "http://127.0.0.1\n/x", "http://example..com/x", "http://.example.com/x",
		"http://" + strings.Repeat("a", 20_000), "data:text/html;base64,AAAA", "data:image/svg+xml;base64,AAAA", "data:image/png,AAAA", "data:;base64,AAAA",
		"data:image/png;base64,A", "data:image/png;base64,@@@@", "data:image/png;base64",
	} {
		refused(url)
	}
	for _, url := range []string{
		"http://127.0.0.1/x", "HTTP://127.0.0.1/x", "http://127.0.0.1:80/x", "http://127.255.255.254/x", "http://0.0.0.0/x", "http://localhost/x", "http://LOCALHOST./x",
		"http://10.0.0.1/x", "http://172.16.0.1/x", "http://192.168.0.1/x", "http://169.254.169.254/latest/meta-data", "http://100.100.100.200/x", "http://168.63.129.16/x",
		"http://224.0.0.1/x", "http://255.255.255.255/x", "http://2130706433/x", "http://0x7f000001/x", "http://017700000001/x", "http://0177.0.0.1/x", "http://0x7f.0.0.1/x",
		"http://127.1/x", "http://127.0.1/x", "http://127.0.0.1./x", "http://1.2.3.256/x", "http://1.2.3.4.5/x", "http://00000127.0.0.1/x",
		"http://[::1]/x", "http://[::]/x", "http://[::ffff:127.0.0.1]/x", "http://[::ffff:7f00:1]/x", "http://[::ffff:a9fe:a9fe]/x", "http://[0:0:0:0:0:ffff:10.0.0.1]/x",
		"http://[64:ff9b::7f00:1]/x", "http://[64:ff9b:1::a00:1]/x", "http://[2002:7f00:1::]/x", "http://[2001::1]/x", "http://[fe80::1]/x", "http://[fd00:ec2::254]/x",
		"http://[fc00::1]/x", "http://[ff02::1]/x", "http://[::127.0.0.1]/x",
	} {
		blocked(url)
	}
	// Written so that JSON and URL readers might differ.
	add(`"http:\/\/127.0.0.1\/x"`, "media_fetch_failed")
	add(`"\u0068ttp://127.0.0.1/x"`, "media_fetch_failed")
	add(`"http://127.0.0.1\u0000.example.com/x"`, "invalid_media")
	add(`"http://\ud800.example.com/x"`, "invalid_media")
	add(`"data:image/png;base64,AAAA","url":"http://127.0.0.1/x"`, "invalid_media")
	add(`"data:image/png;base64,AAAA"},"image_url":{"url":"http://127.0.0.1/x"`, "invalid_media")
	add(`["http://127.0.0.1/x"]`, "invalid_media")
	add(`null`, "invalid_media")
	return table
}

// hostileRequests are about all but the body.
func hostileRequests() []hostile {
	long := strings.Repeat("a", 100_000)
	return []hostile{
		// Targets.
		{"absolute form", post("http://evil.example/v1/chat/completions", goodBody), 200, "", all},
		{"absolute form, another route", post("http://127.0.0.1:1/sleep", "{}"), 404, "not_found", nil},
		{"escaped letter", post("/v1/%63hat/completions", goodBody), 200, "", all},
		{"escaped slash", post("/v1/chat%2fcompletions", goodBody), 200, "", all},
		{"two slashes", post("//v1/chat/completions", goodBody), 404, "not_found", nil},
		{"two slashes within", post("/v1//chat/completions", goodBody), 404, "not_found", nil},
		{"dots behind", post("/v1/chat/completions/../../sleep", goodBody), 404, "not_found", nil},
		{"dots that lead there", post("/v1/../v1/chat/completions", goodBody), 404, "not_found", nil},
		{"escaped dots", post("/v1/chat/completions/%2e%2e/%2e%2e/sleep", goodBody), 404, "not_found", nil},
		{"escaped twice", post("/v1/%2563hat/completions", goodBody), 404, "not_found", nil},
		{"backslash", post(`/v1\chat\completions`, goodBody), 404, "not_found", nil},
		{"upper case", post("/V1/Chat/Completions", goodBody), 404, "not_found", nil},
		{"path parameter", post("/v1/chat/completions;x=1", goodBody), 404, "not_found", nil},
		{"NUL in the path", post("/v1/chat/completions%00", goodBody), 404, "not_found", nil},
		{"line end in the path", post("/v1/chat/completions%0d%0aX-A:%20b", goodBody), 404, "not_found", nil},
		{"bad escape", post("/v1/chat/completions%zz", goodBody), 400, "", nil},
		{"render's own route", post("/v1/chat/completions/render", goodBody), 404, "not_found", nil},
		{"a route of workers", post("/v1/load_lora_adapter", `{"lora_name":"x","lora_path":"/etc"}`), 404, "not_found", nil},
		{"a target that is none", post("v1/chat/completions", goodBody), 400, "", nil},
		{"star", post("*", goodBody), 405, "method_not_allowed", nil},
		{"a path of 100 KB", post("/v1/"+long, goodBody), 404, "not_found", nil},
		{"a query of 100 KB", post(chatPath+"?"+long, goodBody), 200, "", all},
		{"a query that is none", post(chatPath+"?%zz&;=&&a[]=\x7f", goodBody), 400, "", nil},

		// Methods.
		{"CONNECT", request("CONNECT", "10.0.0.1:443", ""), 404, "not_found", nil},
		{"CONNECT to a route", request("CONNECT", chatPath, ""), 405, "method_not_allowed", nil},
		{"TRACE", request("TRACE", chatPath, ""), 405, "method_not_allowed", nil},
		{"PUT", request("PUT", chatPath, goodBody, "Content-Length: 66"), 405, "method_not_allowed", nil},
		{"lower case", strings.Replace(post(chatPath, goodBody), "POST", "post", 1), 405, "method_not_allowed", nil},
		{"a method that is none", strings.Replace(post(chatPath, goodBody), "POST", "P@ST", 1), 400, "", nil},
		{"WebSocket", request("GET", chatPath, "", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Key: eA=="), 405, "method_not_allowed", nil},
		{"an upgrade", post(chatPath, goodBody, "Upgrade: h2c", "Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"), 200, "", all},
		{"HTTP/2 at once", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 405, "method_not_allowed", nil},
		{"HTTP/3.0", strings.Replace(post(chatPath, goodBody), "HTTP/1.1", "HTTP/3.0", 1), 505, "", nil},
		{"HTTP/0.9", "GET /healthz\r\n\r\n", 400, "", nil},
		{"TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "", nil},

		// Lengths.
		{"two lengths", post(chatPath, goodBody, "Content-Length: 5"), 400, "", nil},
		{"one length twice", post(chatPath, goodBody, fmt.Sprintf("Content-Length: %d", len(goodBody))), 200, "", all},
		{"a list of lengths", request("POST", chatPath, goodBody, "Content-Length: 66, 66"), 400, "", nil},
		{"negative length", request("POST", chatPath, goodBody, "Content-Length: -1"), 400, "", nil},
		{"length with a sign", request("POST", chatPath, goodBody, "Content-Length: +66"), 400, "", nil},
		{"length in hexadecimal", request("POST", chatPath, goodBody, "Content-Length: 0x42"), 400, "", nil},
		{"length beyond all", request("POST", chatPath, goodBody, "Content-Length: 99999999999999999999"), 400, "", nil},
		{"length of 8 EB", request("POST", chatPath, goodBody, "Content-Length: 9223372036854775807"), 413, "request_too_large", nil},
		{"length of the limit and one", request("POST", chatPath, goodBody, fmt.Sprintf("Content-Length: %d", 16<<20+1)), 413, "request_too_large", nil},
		{"no length", request("POST", chatPath, goodBody), 400, "invalid_json", nil},
		{"a length, and chunks", chunked(chunk(goodBody)+"0\r\n\r\n", "Content-Length: 3"), 200, "", all},

		// Chunks.
		{"chunks", chunked(chunk(goodBody[:9]) + chunk(goodBody[9:]) + "0\r\n\r\n"), 200, "", all},
		{"a trailer", chunked(chunk(goodBody)+"0\r\nX-Prefiller-Host-Port: 10.0.0.1:1\r\n\r\n", "Trailer: X-Prefiller-Host-Port"), 200, "", all},
		{"a chunk's extension", chunked("42;" + strings.Repeat("x", 1000) + "\r\n" + goodBody + "\r\n0\r\n\r\n"), 200, "", all},
		{"extensions without end", chunked("42;" + strings.Repeat("x", 100_000) + "\r\n" + goodBody + "\r\n0\r\n\r\n"), 400, "invalid_body", nil},
		{"a chunk beyond all", chunked("fffffffffffffffff\r\n" + goodBody), 400, "invalid_body", nil},
		{"a chunk that is none", chunked("zz\r\n" + goodBody), 400, "invalid_body", nil},
		{"a negative chunk", chunked("-42\r\n" + goodBody + "\r\n0\r\n\r\n"), 400, "invalid_body", nil},
		{"a chunk without its end", chunked("42\r\n" + goodBody + "XX0\r\n\r\n"), 400, "invalid_body", nil},
		{"many chunks of one byte with extensions", chunked(strings.Repeat("1;"+strings.Repeat("e", 4000)+"\r\n \r\n", 100) + "0\r\n\r\n"), 400, "invalid_body", nil},
		// Of these the connection ends without an answer: as far as the server is
		// concerned, the client is gone.
		{"a body cut short", request("POST", chatPath, goodBody+cut, "Content-Length: 67"), 0, "", nil},
		{"chunks cut short", chunked(chunk(goodBody) + cut), 0, "", nil},
		{"a chunk of 16 EB", chunked("ffffffffffffffff\r\n" + goodBody + cut), 0, "", nil},
		{"another coding", request("POST", chatPath, goodBody, "Transfer-Encoding: gzip, chunked"), 501, "", nil},
		{"chunked twice", request("POST", chatPath, goodBody, "Transfer-Encoding: chunked, chunked"), 501, "", nil},
		{"chunked in two lines", request("POST", chatPath, goodBody, "Transfer-Encoding: chunked", "Transfer-Encoding: identity"), 501, "", nil},
		{"chunked with a tab", request("POST", chatPath, goodBody, "Transfer-Encoding:\x0bchunked"), 400, "", nil},
		{"chunked with a blank before the colon", request("POST", chatPath, goodBody, "Transfer-Encoding : chunked"), 400, "", nil},

		// Headers.
		{"a header of 2 MB", post(chatPath, goodBody, "X-A: "+strings.Repeat("a", 2<<20)), 431, "", nil},
		{"100,000 headers", post(chatPath, goodBody, slices.Repeat([]string{"X-A: aaaaaaaaaaaa"}, 100_000)...), 431, "", nil},
		{"no Host", "POST " + chatPath + " HTTP/1.1\r\nConnection: close\r\n\r\n", 400, "", nil},
		{"two Hosts", post(chatPath, goodBody, "Host: other"), 400, "", nil},
		{"a Host that is none", strings.Replace(post(chatPath, goodBody), "Host: coordinator", "Host: a b/c", 1), 400, "", nil},
		{"NUL in a header", post(chatPath, goodBody, "X-A: a\x00b"), 400, "", nil},
		{"a lone line feed in a header", post(chatPath, goodBody, "X-A: a\rb"), 400, "", nil},
		{"a name with a blank", post(chatPath, goodBody, "X A: b"), 400, "", nil},
		{"a name that is empty", post(chatPath, goodBody, ": b"), 400, "", nil},
		{"a line without a colon", post(chatPath, goodBody, "X-A"), 400, "", nil},
		{"a header folded", post(chatPath, goodBody, "X-A: a", " X-Prefiller-Url: http://10.0.0.1"), 200, "", all},
		{"gzip", post(chatPath, goodBody, "Content-Encoding: gzip"), 415, "unsupported_encoding", nil},
		{"identity, then gzip", post(chatPath, goodBody, "Content-Encoding: identity", "Content-Encoding: br"), 415, "unsupported_encoding", nil},
		{"identity", post(chatPath, goodBody, "Content-Encoding: IDENTITY"), 200, "", all},
		{"an expectation that nobody meets", post(chatPath, goodBody, "Expect: the-unexpected"), 417, "", nil},
		{"our own hop header", post(chatPath, goodBody, "x-coordinator-hop: "), 508, "routing_loop", nil},
		{"our own hop header, elsewhere", request("POST", chatPath+"/render", "", "X-Coordinator-Hop: 1"), 508, "routing_loop", nil},
		{"a WebSocket", post(chatPath, goodBody, "Connection: Upgrade", "Upgrade: websocket"), 400, "upgrade_refused", nil},
		{"a WebSocket, elsewhere", request("GET", "/v1/realtime", "", "Connection: Upgrade", "Upgrade: websocket"), 400, "upgrade_refused", nil},
		{"a WebSocket where requests are passed through", request("GET", "/v1/models", "", "Connection: Upgrade", "Upgrade: h2c, websocket"), 400, "upgrade_refused", nil},
		{"HTTP/2, if we like", post(chatPath, goodBody, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA"), 200, "", all},
		{"a request id of another kind", post(chatPath, goodBody, "X-Request-Id: ../../etc/passwd\t$(x)"), 200, "", all},
		{"HTTP/1.0", strings.Replace(post(chatPath, goodBody), "HTTP/1.1", "HTTP/1.0", 1), 200, "", all},
		{"a second request in the body", post(chatPath, goodBody+"POST /v1/chat/completions HTTP/1.1\r\n\r\n"), 400, "invalid_json", nil},
	}
}

// TestHostileInputs go to whole coordinators, byte by byte as they are here: each
// has its answer, and no leg goes out that is not told of.
func TestHostileInputs(t *testing.T) {
	const closedMedia = "[[pipeline.steps]]\ntype = \"replace-media-urls\"\n"
	r := newRig(t, setup{steps: closedMedia + renderStep + encodeStep + prefillStep + decodeStep, toml: "[server]\nmax_request_body_size = 16\n",
		cluster: cluster.Options{OmitBodies: true}})
	table := slices.Concat(hostileBodies(), hostileMedia(), hostileRequests())
	if len(table) < 60 {
		t.Errorf("only %d", len(table))
	}
	for _, tt := range table {
		t.Run(fmt.Sprintf("%.60s", tt.name), func(t *testing.T) {
			before := len(r.legs(""))
			got := r.exchange(tt.request)
			if legs := r.legs("")[before:]; !slices.Equal(legs, tt.legs) {
				t.Errorf("legs %v, want %v", legs, tt.legs)
			}
			if got.status != tt.status {
				t.Fatalf("got %d %v %v %.300s", got.status, got.err, got.header, got.body)
			}
			if tt.code != "" {
				if o := readError(t, got.body); o.Error.Code != tt.code || got.header.Get("Content-Type") != "application/json" {
					t.Errorf("got %v %s", got.header, got.body)
				}
			}
			if len(got.body) > 1000 {
				t.Errorf("an answer of %d bytes", len(got.body))
			}
			if onRoute := !strings.HasSuffix(tt.name, ", elsewhere"); onRoute && (tt.status == 200 || tt.status == 0 || tt.code != "" && tt.status != 404 && tt.status != 405 || tt.status == 404 && tt.legs != nil) {
				r.sent.Add(1)
			}
		})
	}
	// All is as before.
	if got := r.post(chatPath, goodBody); got.status != 200 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	r.settled()
	t.Logf("%d inputs", len(table))
}

// TestRedirectsToClosedHosts: what an origin that may be asked says of another
// is judged like what a client says.
func TestRedirectsToClosedHosts(t *testing.T) {
	r := newRig(t, setup{steps: wholeSteps})
	body := fmt.Sprintf(`{"model":"demo-model","messages":[{"role":"user","content":[{"type":"image_url","image_url":%q}]}]}`,
		r.cluster.ImageURL("image.png", cluster.ImageOptions{}))
	for _, tt := range []struct {
		to   string
		asks int // of the origin
	}{
		{"http://10.0.0.1/x", 1}, {"http://169.254.169.254/latest/meta-data/", 1}, {"//169.254.169.254/x", 1}, {"http://[::ffff:10.0.0.1]/x", 1}, {"http://[::1]/x", 1},
		{"http://0x7f000001/x", 1}, {"http://2130706433/x", 1}, {"http://user:pass@127.0.0.1/x", 1}, {"file:///etc/passwd", 1}, {"gopher://127.0.0.1/x", 1},
		{"data:image/png;base64,AAAA", 1}, {"http://127.0.0.1:0/x", 1}, {"http://%zz/", 1}, {"", 6}, // to itself
	} {
		t.Run(tt.to, func(t *testing.T) {
			before := r.cluster.Count(cluster.Origin)
			to := tt.to
			if to == "" {
				to = r.cluster.ImageURL("image.png", cluster.ImageOptions{})
			}
			id := r.cluster.AddFault(cluster.Fault{Leg: cluster.Origin, Redirect: to})
			defer r.cluster.RemoveFault(id)
			got := r.post(chatPath, body)
			if o := readError(t, got.body); got.status != 400 || o.Error.Code != "media_fetch_failed" {
				t.Errorf("got %d %s", got.status, got.body)
			}
			if n := r.cluster.Count(cluster.Origin) - before; n != tt.asks {
				t.Errorf("the origin was asked %d times", n)
			}
		})
	}
	if n := r.cluster.Count(cluster.Render); n != 0 {
		t.Errorf("%d renders", n)
	}
	r.settled()
}

// steeringPaths are a body of each protocol, to put more members into.
var steeringPaths = map[string]string{
	chatPath:        `"messages":[{"role":"user","content":"hi"}]`,
	completionsPath: `"prompt":"hi"`,
	generatePath:    `"token_ids":[1,2]`,
}

// TestClientsCannotSteerByTheirBody: no name of the contract's section 3 goes
// out, at any of its places, however it is spelt and however often.
func TestClientsCannotSteerByTheirBody(t *testing.T) {
	r, rec := recorderRig(t, setup{steps: mediaStep + recorderRender + conditionalStep + prefillStep + decodeStep})
	const evil = `{"remote_host":"evil.example","remote_port":1}`
	everywhere := []string{"kv_transfer_params", "ec_transfer_params"}
	names := append([]string{"bootstrap_host", "bootstrap_port", "bootstrap_room", "routed_dp_rank", "data_parallel_rank", "disagg_prefill_dp_rank", "tokens"}, everywhere...)
	n := 0
	try := func(path, members string) {
		n++
		id := fmt.Sprintf("id-%d", n)
		rec.expect(id, &recorded{})
		got := r.post(path, `{"kept":1.0,`+members+`,`+steeringPaths[path]+`}`, "X-Request-Id", id)
		legs := rec.legs(id)
		want := 4 // render, probe, prefill, decode
		if path == generatePath {
			want = 3
		}
		if got.status != 200 || len(legs) != want {
			t.Errorf("%s %s: %d %s, %d legs", path, members, got.status, got.body, len(legs))
		}
		for _, l := range legs {
			if strings.Contains(l.body, "evil") || !strings.Contains(l.body, `"kept":1.0`) {
				t.Errorf("%s %s: %s is sent %s", path, members, l.kind, l.body)
			}
		}
	}
	for path := range steeringPaths {
		for _, name := range names {
			var escaped strings.Builder
			for _, c := range name {
				fmt.Fprintf(&escaped, `\u%04X`, c)
			}
			for _, spelt := range []string{`"` + name + `"`, fmt.Sprintf(`"\u%04x%s"`, name[0], name[1:]), `"` + escaped.String() + `" `} {
				member := spelt + ":" + evil
				try(path, member)
				try(path, member+`, "x":[ ] ,`+member+`,"`+name+`":`+evil+`,`+member)
				if slices.Contains(everywhere, name) {
					inside := `{"a":1,` + member + `,"b":[2],` + member + `}`
					try(path, `"vllm_xargs":`+inside)
					try(path, `"\u0076llm_xargs" :{}, "vllm_xargs":`+inside)
					try(path, `"sampling_params":{"extra_args":`+inside+`}`)
					try(path, `"sampling_params":{"\u0065xtra_args": `+inside+`,"extra_args":{"c":null,`+member+`}}`)
				}
			}
		}
	}
	t.Logf("%d bodies", n)
	r.settled()
}

// TestClientsCannotSteerByTheirHeaders: each leg has the client's headers with
// all their values, the coordinator's own, and no other.
func TestClientsCannotSteerByTheirHeaders(t *testing.T) {
	r, rec := recorderRig(t, setup{steps: mediaStep + recorderRender + conditionalStep + prefillStep + decodeStep})
	kept := http.Header{"Authorization": {"Bearer a"}, "X-Multi": {"1", "2", "", "1"}, "Cookie": {"a=b", "c=d"}, "Accept": {"text/event-stream, */*"},
		"X-Folded": {"a X-Prefiller-Url: http://evil.example"}, "X-Gateway-Inference-Objective": {"high"}, "X-Prefiller": {"k"}, "Traceparent": {"00-1-2-03"},
		"Accept-Encoding": {"gzip", "br"}, "Epp_profile": {"k"}, "X-Odd": {"\"é\tx"}}
	lines := []string{"authorization: Bearer a", "x-multi: 1", "X-MULTI: 2", "X-Multi:", "x-Multi:   1  ", "Cookie: a=b", "cookie: c=d", "accept: text/event-stream, */*",
		"X-Folded: a\r\n\tX-Prefiller-Url: http://evil.example", "x-gateway-inference-objective: high", "X-Prefiller: k", "traceparent: 00-1-2-03",
		"accept-encoding: gzip", "Accept-Encoding: br", "epp_profile: k", "X-Odd: \"é\tx",

		"Connection: x-named , ,X-OTHER-named, close", "CONNECTION: X-Third", "X-Named: n", "X-Other-Named: n", "x-third: n", "X-Third: n2",
		"Keep-Alive: timeout=5", "TE: trailers", "Proxy-Authenticate: Basic", "Proxy-Authorization: Basic eA==", "Upgrade: h2c",
		"Content-Encoding: identity", "Content-Type: text/plain", "EPP-Profile: encode", "epp-profile: encode", "Prefer: if-available", "prefer: other",
		"X-Request-Id: the-id"}
	for _, name := range []string{"x-llm-d-disagg-revision", "x-llm-d-revision-decision-id", "x-prefiller-host-port", "x-prefiller-url", "x-encoder-hosts-ports", "x-prefill-pin-host-port", "x-data-parallel-rank",
		"x-gateway-destination-endpoint", "X-Gateway-Destination-Endpoint-Subset", "X-GATEWAY-DESTINATION-ENDPOINT-SERVED", "x-gateway-destination-endpoints"} {
		lines = append(lines, name+": 10.0.0.1:1", strings.ToUpper(name)+": 10.0.0.2:2")
	}
	const query = "a=%2e%2e&&b;c=d%20e&x-prefiller-url=1"
	body := `{"model":"demo-model","messages":[{"role":"user","content":"hi"}]}`
	raw := "POST " + chatPath + "?" + query + " HTTP/1.1\r\nHost: evil.example\r\nContent-Length: " + fmt.Sprint(len(body)) + "\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" + body
	r.sent.Add(1)
	if got := r.exchange(raw); got.status != 200 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	legs := rec.legs("the-id")
	var kinds []string
	for _, l := range legs {
		kinds = append(kinds, l.kind)
		want := kept.Clone()
		want.Set("Content-Type", "application/json")
		want.Set("X-Request-Id", "the-id")
		want.Set("X-Coordinator-Hop", "1")
		if ids := l.header[decisionHeader]; len(ids) == 1 && uuidV4.MatchString(ids[0]) {
			want[decisionHeader] = ids // it is ours, and another each time
		}
		want.Set("Host", strings.TrimPrefix(rec.URL, "http://"))
		want.Set("Content-Length", fmt.Sprint(len(l.body)))
		wantQuery := ""
		switch l.kind {
		case "decode", "probe":
			wantQuery = query
		default:
			want.Del("Accept-Encoding")
		}
		switch l.kind {
		case "probe":
			want.Set("Prefer", "if-available")
			want.Set("EPP-Profile", "decode")
		case "decode", "prefill":
			want.Set("EPP-Profile", l.kind)
		}
		if !maps.EqualFunc(l.header, want, slices.Equal) {
			t.Errorf("%s: headers\n%q\nwant\n%q", l.kind, l.header, want)
		}
		if l.query != wantQuery {
			t.Errorf("%s: query %q", l.kind, l.query)
		}
	}
	if !slices.Equal(kinds, []string{"render", "probe", "prefill", "decode"}) {
		t.Errorf("legs %v", kinds)
	}
	r.settled()
}

// TestExpectationsAreMetHere and not upstream.
func TestExpectationsAreMetHere(t *testing.T) {
	r, rec := recorderRig(t, setup{steps: decodeStep})
	rec.expect("the-id", &recorded{})
	if got := r.post(chatPath, goodBody, "Expect", "100-continue", "X-Request-Id", "the-id"); got.status != 200 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	for _, l := range rec.legs("the-id") {
		if l.header["Expect"] != nil {
			t.Errorf("%s has %q", l.kind, l.header)
		}
	}
	r.settled()
}
