package conf

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// TestHeadersAreNotShown: where a value comes from is, a value never.
func TestHeadersAreNotShown(t *testing.T) {
	c := mustParse(t, `[gateway.headers]
X-Api-Key = "hunter2"
Authorization = "env:TOKEN"
"x.dotted" = "file:/run/token"
[[pipeline.steps]]
type = "render"
params = { address = "http://r", headers = { Cookie = "hunter2", X-B = "file:b" } }`+oneStep)
	var into struct {
		Address string            `toml:"address"`
		Headers map[string]string `toml:"headers"`
	}
	if err := c.Pipeline.Steps[0].Params.Decode(&into); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"X-Api-Key": "hunter2", "Authorization": "env:TOKEN", "x.dotted": "file:/run/token"}; !reflect.DeepEqual(c.Gateway.Headers, want) {
		t.Errorf("gateway: %v", c.Gateway.Headers)
	}
	if want := map[string]string{"Cookie": "hunter2", "X-B": "file:b"}; !reflect.DeepEqual(into.Headers, want) {
		t.Errorf("render: %v", into.Headers)
	}
	want := []Change{
		{`gateway.headers."x.dotted"`, `"file:/run/token"`, "test.toml:4"},
		{"gateway.headers.Authorization", `"env:TOKEN"`, "test.toml:3"},
		{"gateway.headers.X-Api-Key", "(set)", "test.toml:2"},
		{"pipeline.steps[1].address", `"http://r"`, "test.toml:7"},
		{"pipeline.steps[1].headers.Cookie", "(set)", "test.toml:7"},
		{"pipeline.steps[1].headers.X-B", `"file:b"`, "test.toml:7"},
	}
	if got := c.Changes(); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if text := fmt.Sprint(c.Changes()); strings.Contains(text, "hunter2") {
		t.Error(text)
	}
	d := Default()
	d.Gateway.Headers = map[string]string{"X-A": "hunter2"}
	if got, want := d.Changes(), []Change{{"gateway.headers.X-A", "(set)", "program"}}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
}

// TestFaultsOfHeaders repeat no value either.
func TestFaultsOfHeaders(t *testing.T) {
	const table = `want a table, such as { Authorization = "env:NAME" }`
	tests := []struct{ text, environ, want string }{
		{"gateway.headers = \"hunter2\"", "", "test.toml:1: gateway.headers: " + table},
		{"gateway.headers = [\"hunter2\"]", "", "test.toml:1: gateway.headers: " + table},
		{"[gateway.headers]\nX-Pin = 7777\nA.B = \"hunter2\"\nX-L = [\"hunter2\"]", "",
			"test.toml:2: gateway.headers.X-Pin: want a string\ntest.toml:3: gateway.headers.A: want a string\ntest.toml:4: gateway.headers.X-L: want a string"},
		{"", "COORDINATOR_GATEWAY_HEADERS=hunter2",
			`environment COORDINATOR_GATEWAY_HEADERS: gateway.headers: is a table, to be set in the file only; a value there may be "env:NAME"`},
	}
	for _, test := range tests {
		_, err := Parse("test.toml", []byte(test.text+oneStep), []string{test.environ})
		wantError(t, err, test.want)
	}
	c := mustParse(t, oneStep, "COORDINATOR_GATEWAY_HEADERS_X_A=hunter2") // names no key
	if c.Gateway.Headers != nil {
		t.Errorf("%v", c.Gateway.Headers)
	}
	err := c.Override("gateway.headers", "hunter2", "flag -x")
	wantError(t, err, `flag -x: gateway.headers: is a table, to be set in the file only; a value there may be "env:NAME"`)
}

func TestFaultsOfTLS(t *testing.T) {
	tests := []struct{ text, environ, want string }{
		{"server.tls.min_version = \"1.1\"", "", `test.toml:1: server.tls.min_version: must be "1.2" or "1.3", got "1.1"`},
		{"server.tls.min_version = \"1.3\"", "", "test.toml:1: server.tls.min_version: needs cert_file and key_file: without them there is no TLS"},
		{"", "COORDINATOR_SERVER_TLS_MIN_VERSION=1", `environment COORDINATOR_SERVER_TLS_MIN_VERSION: server.tls.min_version: must be "1.2" or "1.3", got "1"`},
		{"server.tls.min_version = 1.3", "", `test.toml:1: server.tls.min_version: want a string, got float 1.3`},
		{"gateway.h2c = \"yes\"", "", `test.toml:1: gateway.h2c: want true or false, got string "yes"`},
		{"gateway.tls = \"ca.pem\"", "", `test.toml:1: gateway.tls: want a table, got string "ca.pem"`},
	}
	for _, test := range tests {
		_, err := Parse("test.toml", []byte(test.text+oneStep), []string{test.environ})
		wantError(t, err, test.want)
	}
}

// TestErrorsOfOthersHaveAPlace too.
func TestErrorsOfOthersHaveAPlace(t *testing.T) {
	c := mustParse(t, "[gateway]\naddress = \"http://g\"\n[gateway.headers]\nX-A = \"a\"\n\"x.b\" = \"b\""+oneStep, "COORDINATOR_GATEWAY_TLS_CA_FILE=x")
	tests := []struct{ key, want string }{
		{"gateway.address", "test.toml:2: gateway.address: no 7"},
		{"gateway.headers.X-A", "test.toml:4: gateway.headers.X-A: no 7"},
		{"gateway.headers.x.b", "test.toml:3: gateway.headers.x.b: no 7"},
		{"gateway.tls.ca_file", "environment COORDINATOR_GATEWAY_TLS_CA_FILE: gateway.tls.ca_file: no 7"},
		{"gateway.timeout", "default: gateway.timeout: no 7"},
	}
	for _, test := range tests {
		wantError(t, c.Errorf(test.key, "no %d", 7), test.want)
	}
}
