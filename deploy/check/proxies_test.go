package check

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// texts are configuration files by name, with single spaces in their lines.
type texts map[string]string

// proxies are the gateways that have files in formats of their own, and what is
// wrong with such files for a coordinator with given settings.
var proxies = map[string]func(texts, settings) faults{
	"haproxy": haproxyFaults,
	"nginx":   nginxFaults,
}

func TestProxies(t *testing.T) {
	// The default configuration, with what the README says to set.
	said := regexp.MustCompile(`server\.(drain_delay = "[^"]+")`).FindStringSubmatch(readFile(t, "deploy/haproxy/README.md"))
	if said == nil {
		t.Fatal("HAProxy's README does not say what drain_delay is to be")
	}
	for name, toml := range map[string]string{
		"the default configuration": "[server]\n" + said[1],
		"that of deploy/kubernetes": readFile(t, "deploy/kubernetes/base/coordinator.toml"),
	} {
		for proxy := range proxies {
			if found := proxyFaults(t, proxy, proxyTexts(t, proxy), toml); found != "" {
				t.Errorf("%s and %s: %s", proxy, name, found)
			}
		}
	}
}

// TestProxiesPlanted changes one thing in the files, or in the coordinator's, and has
// it found.
func TestProxiesPlanted(t *testing.T) {
	for _, p := range []struct{ proxy, old, new, want string }{
		{"haproxy", "timeout server 11m", "timeout server 9m", "timeout server is 9m0s, not more than gateway.profiles.decode.timeout, 10m0s"},
		{"haproxy", "timeout client 11m", "timeout client 660", "timeout client is 660ms, not more than"},
		{"haproxy", "timeout client 11m", "", "no timeout client"},
		{"haproxy", "backend decode\n", "backend decode\ntimeout server 1m\n", "timeout server is 1m0s"},
		{"haproxy", "timeout http-keep-alive 120s", "timeout http-keep-alive 60s", "timeout http-keep-alive is 1m0s, not more than gateway.idle_conn_timeout, 1m30s"},
		{"haproxy", "check inter 1s fall 2", "check inter 3s fall 4", "checks take 15s to see that a replica drains, drain_delay is 10s"},
		{"haproxy", "check inter 1s fall 2", "inter 1s fall 2", "servers are not checked"},
		{"haproxy", "httpchk GET /readyz", "httpchk GET /healthz", "coordinators are asked for GET /healthz"},
		{"haproxy", "presetenv COORDINATOR_2 192.0.2.2:8080", "presetenv COORDINATOR_2 192.0.2.2:8081", "the coordinator listens at 8080, not at 192.0.2.2:8081"},
		{"haproxy", "req.hdr(EPP-Profile) -m str decode", "req.hdr(Phase) -m str decode", "the backend decode is not for EPP-Profile: decode"},
		{"haproxy", "-m str prefill", "-m str prefil", "the backend prefill is not for EPP-Profile: prefill"},
		{"haproxy", "use_backend encode if", "use_backend enc if", "no backend enc"},
		{"haproxy", "use_backend encode if", "#", "legs go to [decode prefill]"},
		{"haproxy", "default_backend coordinators", "default_backend decode", "what is no leg goes to [decode]"},
		{"nginx", "proxy_read_timeout 11m", "proxy_read_timeout 600", "proxy_read_timeout is 10m0s, not more than gateway.profiles.decode.timeout, 10m0s"},
		{"nginx", "proxy_read_timeout 11m;", "", "no proxy_read_timeout"},
		{"nginx", "proxy_send_timeout 180s", "proxy_send_timeout 60s", "proxy_send_timeout is 1m0s, not more than server.write_timeout, 2m0s"},
		{"nginx", "\nsend_timeout 180s", "\nsend_timeout 2m", "send_timeout is 2m0s, not more than server.write_timeout, 2m0s"},
		{"nginx", "keepalive_timeout 120s", "keepalive_timeout 75s", "keepalive_timeout is 1m15s, not more than gateway.idle_conn_timeout, 1m30s"},
		{"nginx", "keepalive_timeout 60s", "keepalive_timeout 120s", "keepalive_timeout is 2m0s, not less than server.idle_timeout, 2m0s"},
		{"nginx", "keepalive_timeout 60s;", "", "no keepalive_timeout that is less than server.idle_timeout"},
		{"nginx", "client_max_body_size 0", "client_max_body_size 1m", "bodies are limited to 1m"},
		{"nginx", "server 192.0.2.2:8080", "server 192.0.2.2:8081", "the coordinator listens at 8080, not at 192.0.2.2:8081"},
		{"nginx", "$http_epp_profile", "$http_phase", "no map of $http_epp_profile"},
		{"nginx", `"yes prefill" prefill`, `"yes prefil" prefill`, `what is "yes prefill" goes to ""`},
		{"nginx", "upstream decode {", "upstream dec {", "no upstream decode"},
		{"nginx", "default coordinators", "default decode", `what is "default" goes to "decode"`},
		{"nginx", "proxy_pass http://$servers", "proxy_pass http://decode", "proxy_pass is http://decode"},
	} {
		files := proxyTexts(t, p.proxy)
		there := false
		for name, text := range files {
			there = there || strings.Contains(text, p.old)
			files[name] = strings.ReplaceAll(text, p.old, p.new)
		}
		if !there {
			t.Errorf("%s: %q is not there to be changed", p.proxy, p.old)
			continue
		}
		if found := proxyFaults(t, p.proxy, files, readFile(t, "deploy/kubernetes/base/coordinator.toml")); !strings.Contains(found, p.want) {
			t.Errorf("%s: %q for %q was not found: want %q, have %q", p.proxy, p.new, p.old, p.want, found)
		}
	}
	for _, p := range []struct{ proxy, toml, want string }{
		{"haproxy", "gateway.profiles.decode.timeout = '15m'", "timeout server is 11m0s"},
		{"haproxy", "gateway.profile_header = 'Phase'", "the backend encode is not for Phase: encode"},
		{"haproxy", "server.drain_delay = '2s'", "drain_delay is 2s"},
		{"haproxy", "server.listen_addr = ':8000'", "the coordinator listens at 8000"},
		{"nginx", "gateway.profiles.decode.timeout = '15m'", "proxy_read_timeout is 11m0s"},
		{"nginx", "gateway.profile_header = 'Phase'", "no map of $http_phase"},
		{"nginx", "gateway.idle_conn_timeout = '150s'", "keepalive_timeout is 2m0s"},
		{"nginx", "server.idle_timeout = '60s'", "keepalive_timeout is 1m0s, not less"},
		{"nginx", "server.write_timeout = '5m'", "send_timeout is 3m0s"},
		{"nginx", "server.listen_addr = ':8000'", "the coordinator listens at 8000"},
	} {
		if found := proxyFaults(t, p.proxy, proxyTexts(t, p.proxy), p.toml); !strings.Contains(found, p.want) {
			t.Errorf("%s: %s was not found: want %q, have %q", p.proxy, p.toml, p.want, found)
		}
	}
}

// proxyFaults returns what is wrong, in lines.
func proxyFaults(t *testing.T, proxy string, files texts, toml string) string {
	t.Helper()
	s, err := settingsOf(toml, nil)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(proxies[proxy](files, s), "\n")
}

// proxyTexts reads the configuration of a proxy, all files of it.
func proxyTexts(t *testing.T, proxy string) texts {
	t.Helper()
	found := texts{}
	for _, pattern := range []string{"*.cfg", "*.conf"} {
		names, err := filepath.Glob(filepath.Join(repository, "deploy", proxy, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for line := range strings.Lines(string(text)) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
			found[filepath.Base(name)] = strings.Join(lines, "\n")
		}
	}
	return found
}

// agreement collects where a proxy's times and ports are not as a coordinator's
// settings want them.
type agreement struct {
	settings settings
	unit     time.Duration // of times that have none
	faults   faults
}

// more finds a directive that is left out, or whose time is not more than a setting.
func (a *agreement) more(name string, values []string, key string) {
	if len(values) == 0 {
		a.faults.add("no %s that is more than %s", name, key)
	}
	for _, value := range values {
		if have, than := a.time(value), a.settings.duration(key); have <= than || than < 0 {
			a.faults.add("%s is %v, not more than %s, %v", name, have, key, than)
		}
	}
}

// less finds a directive that is left out, or whose time is not less than a setting.
func (a *agreement) less(name string, values []string, key string) {
	if len(values) == 0 {
		a.faults.add("no %s that is less than %s", name, key)
	}
	for _, value := range values {
		if have, than := a.time(value), a.settings.duration(key); have <= 0 || have >= than {
			a.faults.add("%s is %v, not less than %s, %v", name, have, key, than)
		}
	}
}

// time returns 0 for what is none, which is not more than anything.
func (a *agreement) time(value string) time.Duration {
	if d, err := time.ParseDuration(value); err == nil {
		return d
	}
	d, err := time.ParseDuration(value + "ns")
	if err != nil {
		return 0
	}
	return d * a.unit
}

// coordinators finds addresses at which no coordinator listens.
func (a *agreement) coordinators(addresses []string) {
	if len(addresses) == 0 {
		a.faults.add("there are no coordinators")
	}
	want := a.settings.port("server.listen_addr")
	for _, address := range addresses {
		if (settings{"address": address}).port("address") != want {
			a.faults.add("the coordinator listens at %d, not at %s", want, address)
		}
	}
}
