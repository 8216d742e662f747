package conf

import (
	"errors"
	"io/fs"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// badFiles has, for each testdata/*.bad.toml, the whole error. "FILE" stands for the path.
var badFiles = map[string]string{
	"unknown_key": `FILE:2: server.listen_adr: unknown key (did you mean listen_addr?)
FILE:3: server.passthrough_rutes: unknown key (did you mean passthrough_routes?)
FILE:5: sever: unknown key (did you mean server?)
FILE:9: gateway.tls.cafile: unknown key (did you mean ca_file?)
FILE:11: gateway.profiles.render.timeout: unknown key
FILE:12: gateway.profiles.encodee: unknown key (did you mean encode?)
FILE:14: actors.pools.decode.sise: unknown key (did you mean size?)`,
	"case": `FILE:1: Log_Level: unknown key (did you mean log_level?)
FILE:2: LOG_FORMAT: unknown key (did you mean log_format?)
FILE:3: Server: unknown key (did you mean server?)`,
	"types": `FILE:1: log_level: want an integer, got string "2"
FILE:2: log_format: want a string, got boolean true
FILE:3: admin: want a table, got string "off"
FILE:5: server.read_timeout: want a duration such as "30s", got integer 30
FILE:6: server.write_timeout: want a duration such as "30s", got string "30"
FILE:7: server.idle_timeout: must not be negative, got -5s
FILE:8: server.max_request_body_size: want an integer, got float 64.5
FILE:10: gateway.address: want a string, got an array
FILE:12: gateway.breaker.enabled: want true or false, got string "yes"
FILE:13: gateway.breaker.failure_ratio: want a number, got a date or time
FILE:14: gateway.profiles: want a table, got an array
FILE:17: actors.pools.decode.size: want an integer, got a table
FILE:19: pipeline.kv_connector: want a string, got integer 1`,
	"ranges": `FILE:1: log_level: must be from 1 to 5, got 6
FILE:2: log_format: must be "json" or "text", got "xml"
FILE:4: server.listen_addr: want host:port or ":8080", got "8080"
FILE:5: server.read_timeout: must be longer than 0s
FILE:6: server.shutdown_timeout: must be at most 24h0m0s, got 25h0m0s
FILE:7: server.drain_delay: must be at most 24h0m0s, got 48h0m0s
FILE:8: server.max_request_body_size: must be from 1 to 4095, got 0
FILE:10: admin.listen_addr: want host:port or ":8080", got "localhost:70000"
FILE:12: gateway.address: want an address such as http://host:80, got "inference-gateway:80"
FILE:13: gateway.profile_header: want the name of an HTTP header, got "EPP Profile"
FILE:14: gateway.timeout: must be longer than 0s
FILE:15: gateway.max_idle_conns_per_host: must be from 0 to 100000, got -1
FILE:17: gateway.breaker.consecutive_failures: must be from 1 to 1000000, got 0
FILE:18: gateway.breaker.failure_ratio: must be from 0 to 1, got 1.5
FILE:19: gateway.breaker.min_requests: must be from 1 to 1000000, got 0
FILE:20: gateway.breaker.interval: must be longer than 0s
FILE:21: gateway.breaker.half_open_requests: must be from 1 to 1000000, got 0
FILE:23: gateway.profiles.decode.timeout: must be longer than 0s
FILE:24: gateway.profiles.decode.breaker.failure_ratio: must be from 0 to 1, got NaN
FILE:26: actors.queue_timeout: must be longer than 0s
FILE:27: actors.max_inflight_requests: must be from 0 to 1000000, got -1
FILE:29: actors.pools.decode.size: must be from 1 to 100000, got 0
FILE:30: actors.pools.prefill.queue: must be from 0 to 100000, got -1
FILE:32: pipeline.kv_connector: must not be empty`,
	"terms": `FILE:2: server.tenant_header: want the name of an HTTP header or "", got "tenant:"
FILE:4: gateway.retry.max_attempts: must be from 1 to 10, got 0
FILE:5: gateway.retry.base_delay: must be at most max_delay (2s), got 3s
FILE:6: gateway.retry.budget_ratio: must be from 0 to 1, got NaN
FILE:7: gateway.retry.min_retries: must be from 0 to 1000000, got -1
FILE:9: gateway.profiles.encode.retry.max_attempts: must be from 1 to 10, got 11
FILE:10: gateway.profiles.encode.retry.max_delay: must be at least base_delay (3s), got 1s
FILE:11: gateway.profiles.render.retry.base_delay: must be at most max_delay (2s), got 5s
FILE:12: gateway.profiles.decode.retry.budget_ratio: unknown key
FILE:14: pipeline.request_timeout: must be at most 24h0m0s, got 25h0m0s
FILE:15: pipeline.kv_lease: must be longer than 0s
FILE:16: pipeline.max_batch_size: must be from 1 to 10000, got 0`,
	"batch": `FILE:4: pipeline.max_batch_size: must be at most 8, as many requests as may be in flight (actors.max_inflight_requests, else size and queue of actors.pools.decode)`,
	"steps": `FILE:2: pipeline.steps[1].type: missing: which phase is this step?
FILE:3: pipeline.steps[1].param: unknown key (did you mean params?)
FILE:5: pipeline.steps[2].type: want the name of a phase, got string ""
FILE:8: pipeline.steps[3].type: want the name of a phase, got integer 7
FILE:9: pipeline.steps[3].params: want a table, got string "none"
FILE:13: pipeline.steps[4].address: unknown key (a step's settings go under [pipeline.steps.params])`,
	"steps_table":  "FILE:1: pipeline.steps: want a list of tables, each headed [[pipeline.steps]], got a table",
	"steps_inline": "FILE:2: pipeline.steps: want a list of tables, each headed [[pipeline.steps]], got an array",
	"no_steps":     "FILE:3: pipeline.steps: at least a decode step is needed",
	"empty_steps":  "FILE:3: pipeline.steps: at least a decode step is needed",
	"empty":        "FILE:1: pipeline.steps: at least a decode step is needed",
	"quoted_keys": `FILE:1: "log.level": unknown key (did you mean log_level?)
FILE:3: server."": unknown key
FILE:4: server."listen\naddr": unknown key (did you mean listen_addr?)`,
	"syntax":          `FILE:3: expected value but found '\n' instead`,
	"syntax_end":      `FILE:1: unexpected EOF; expected '"'`,
	"duplicate_key":   "FILE:4: Key 'server.listen_addr' has already been defined.",
	"duplicate_table": "FILE:3: Key 'server' has already been defined.",
	"overflow":        "FILE:1: 9223372036854775808 is out of range for int64",
}

func TestBadFiles(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.bad.toml")
	if err != nil || len(paths) != len(badFiles) {
		t.Errorf("%d files for %d errors (%v)", len(paths), len(badFiles), err)
	}
	for name, want := range badFiles {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("testdata", name+".bad.toml")
			c, err := Load(path, nil)
			if c != nil {
				t.Error("there is a configuration all the same")
			}
			wantError(t, err, strings.ReplaceAll(want, "FILE", path))
		})
	}
}

func TestGoodFiles(t *testing.T) {
	tests := map[string]func(c *Config){
		"default": func(*Config) {},
		"inline": func(c *Config) {
			c.Actors.Pools.Decode = Pool{Size: 1, Queue: 0}
			c.Actors.Pools.Release.Queue = 7
			c.Gateway.Breaker.FailureRatio = 1
			c.Gateway.Profiles.Render.Breaker.Enabled = new(false)
		},
		"limits": func(c *Config) {
			c.LogLevel, c.LogFormat = 5, "text"
			c.Server.ListenAddr = "[::1]:0"
			c.Server.DrainDelay = 24 * time.Hour
			c.Server.MaxRequestBodySize = 4095
			c.Admin.ListenAddr = ""
			c.Gateway.Address = "https://[fd00::1]:8443/"
			c.Gateway.StreamIdleTimeout = 0
			c.Gateway.Breaker.FailureRatio = 0
			c.Server.TenantHeader = ""
			c.Gateway.Retry = Retry{MaxAttempts: 10, BudgetRatio: 1}
			c.Pipeline.RequestTimeout = 24 * time.Hour
			c.Actors.Pools.Prefill = Pool{Size: 100_000, Queue: 100_000}
		},
		"all": func(c *Config) {
			c.LogLevel, c.LogFormat = 3, "text"
			c.Server = Server{"0.0.0.0:1", time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second, 6, []string{"/a", "/b/*"},
				"X-Tenant", ServerTLS{"c.pem", "k.pem", "ca.pem", "1.3"}}
			c.Admin.ListenAddr = ":2"
			c.Gateway = Gateway{
				Address: "http://gw", ProfileHeader: "X-Profile", Timeout: 7 * time.Second, MaxIdleConnsPerHost: 8,
				IdleConnTimeout: 9 * time.Second, StreamIdleTimeout: 10 * time.Second,
				H2C: true, Headers: map[string]string{"Authorization": "env:TOKEN", "X-Team": "a"},
				TLS:     ClientTLS{"gca.pem", "gc.pem", "gk.pem", "gw.test"},
				Breaker: Breaker{false, 11, 0.12, 13, 14 * time.Second, 15 * time.Second, 16},
				Retry:   Retry{4, 43 * time.Millisecond, 44 * time.Second, 0.45, 46},
				Profiles: Profiles{
					Encode: Profile{Timeout: new(40 * time.Second)},
					Prefill: Profile{new(17 * time.Second), ProfileBreaker{
						new(true), new(18), new(0.19), new(20), new(21 * time.Second), new(22 * time.Second), new(23)},
						ProfileRetry{new(5), new(47 * time.Millisecond), new(48 * time.Second)}},
					Decode: Profile{Timeout: new(24 * time.Second), Breaker: ProfileBreaker{FailureRatio: new(1.0)}},
					Render: RenderProfile{ProfileBreaker{HalfOpenRequests: new(25)}, ProfileRetry{MaxAttempts: new(1)}},
				},
			}
			c.Actors = Actors{26 * time.Second, 27, 53, 50, Pools{
				Media: Pool{36, 37}, Render: Pool{28, 29}, Encode: Pool{38, 39}, Passthrough: Pool{41, 42}, Prefill: Pool{30, 31}, Decode: Pool{32, 33}, Release: Pool{34, 35}, Broker: Pool{54, 55}}}
			c.Pipeline.KVConnector, c.Pipeline.ECConnector, c.Pipeline.UseOpenAIFormat = "kv-nixl", "ec-nixl", false
			c.Pipeline.RequestTimeout, c.Pipeline.KVLease, c.Pipeline.MaxBatchSize = 51*time.Second, 52*time.Second, 21
			c.Pipeline.ForwardResponseHeaders = []string{"x-a", "x-b"}
		},
	}
	paths, err := filepath.Glob("testdata/*.good.toml")
	if err != nil || len(paths) != len(tests) {
		t.Errorf("%d files for %d tests (%v)", len(paths), len(tests), err)
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Load(filepath.Join("testdata", name+".good.toml"), nil)
			if err != nil {
				t.Fatal(err)
			}
			want := Default()
			change(&want)
			if len(got.Pipeline.Steps) != 1 || got.Pipeline.Steps[0].Type != "decode" {
				t.Errorf("steps are %+v", got.Pipeline.Steps)
			}
			got.Pipeline.Steps, got.origins = nil, nil
			if !reflect.DeepEqual(*got, want) {
				t.Errorf("got  %+v\nwant %+v", *got, want)
			}
		})
	}
}

func TestGatewayAddress(t *testing.T) {
	const form = "want an address such as http://host:80, got "
	tests := map[string]string{
		"http://host":           "",
		"https://host/":         "",
		"HTTP://host:65535":     "",
		"":                      form + `""`,
		"ftp://host":            form + `"ftp://host"`,
		"http://:80":            form + `"http://:80"`,
		"//host":                form + `"//host"`,
		"http://host:65536":     "there is no port 65536",
		"http://host:0":         "there is no port 0",
		"http://host:x":         form + "something that is no URL",
		"http://host/v1":        `must end after the host and port, got "http://host/v1"`,
		"http://host?a":         `must end after the host and port, got "http://host?a"`,
		"http://host?":          `must end after the host and port, got "http://host?"`,
		"http://host#":          `must end after the host and port, got "http://host#"`,
		"http://me:secret@host": "must not have a user or password in it",
		"me:secret@host":        "must not have a user or password in it",
	}
	for address, want := range tests {
		if got := addressFault(address); got != want {
			t.Errorf("%q: got %q, want %q", address, got, want)
		}
	}
}

func TestMissingFile(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "none.toml"), nil)
	if !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "configuration: ") {
		t.Errorf("error is %v", err)
	}
}

// A megabyte of brackets overflowed the stack of the library; what is let through must not.
func TestDeepFile(t *testing.T) {
	_, err := Parse("test.toml", []byte("a="+strings.Repeat("[", maxFileSize-2)), nil)
	wantError(t, err, "test.toml:1: unexpected EOF; expected value")
	const depth = maxFileSize/2 - 1
	_, err = Parse("test.toml", []byte("a="+strings.Repeat("[", depth)+strings.Repeat("]", depth)), nil)
	wantError(t, err, `test.toml:1: a: unknown key
test.toml:1: pipeline.steps: at least a decode step is needed`)
}

func TestHugeFile(t *testing.T) {
	_, err := Parse("test.toml", make([]byte, maxFileSize+1), nil)
	wantError(t, err, "test.toml:1: larger than 65536 bytes, so hardly a configuration")
}
