package main

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/cmd/assembly"
	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/transport/files/filestest"
)

// special are values for keys that do not take just any.
var special = map[string]string{
	"COORDINATOR_LOG_FORMAT":                "text",
	"COORDINATOR_SERVER_TLS_MIN_VERSION":    "1.3",
	"COORDINATOR_SERVER_LISTEN_ADDR":        "127.0.0.1:8081",
	"COORDINATOR_ADMIN_LISTEN_ADDR":         "127.0.0.1:9091",
	"COORDINATOR_GATEWAY_ADDRESS":           "https://gateway",
	"COORDINATOR_PIPELINE_KV_CONNECTOR":     "kv-nixl",
	"COORDINATOR_PIPELINE_EC_CONNECTOR":     "ec-nixl",
	"COORDINATOR_SERVER_PASSTHROUGH_ROUTES": "/v1/models",
	// As many as a batch may have at least.
	"COORDINATOR_ACTORS_MAX_INFLIGHT_REQUESTS": "9",
}

// onlyWithoutTLS is changed in a reload of its own.
const onlyWithoutTLS = "COORDINATOR_GATEWAY_H2C"

// TestReloadDoesWhatThePageSays: a coordinator reads again a file in which every
// key has another value.
func TestReloadDoesWhatThePageSays(t *testing.T) {
	var environ []string
	cfg, err := conf.Parse("coordinator.toml", conf.Annotated, environ)
	if err != nil {
		t.Fatal(err)
	}
	c, err := assembly.New(cfg, assembly.Options{Load: func() (*conf.Config, error) {
		return conf.Parse("coordinator.toml", conf.Annotated, environ)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	page, err := parseReloadRules(readFile(t, operationsPage))
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	reload := func(of func(key) bool) {
		environ = changed(t, said, page, of)
		done, err := c.Reload()
		if err != nil {
			t.Fatal(err)
		}
		for name, does := range said {
			applied, restart := slices.Contains(done.Applied, name), slices.Contains(done.Restart, name)
			if applied != (does != restarts) || restart != (does != inForce) {
				t.Errorf("%s: the page says %q; applied: %v, needs a restart: %v", name, does, applied, restart)
			}
		}
		clear(said)
	}
	reload(func(k key) bool { return k.Variable == onlyWithoutTLS })
	reload(func(k key) bool { return k.Variable != onlyWithoutTLS })
}

// changed sets other values for keys, and notes what the page says of them. Steps
// are left out: what is in pipeline is all one.
func changed(t *testing.T, said map[string]string, page reloadRules, of func(key) bool) (environ []string) {
	t.Helper()
	ca := filestest.NewCA(t, "test")
	dir := filestest.NewDir(t)
	files := map[string]string{"ca_file": dir.Write("ca", ca.PEM)}
	files["cert_file"], files["key_file"] = dir.Pair("own", ca, "127.0.0.1")
	for _, s := range annotatedSections(t) {
		for _, k := range s.Keys {
			if s.Step != "" || k.Variable == "" || !of(k) {
				continue
			}
			environ = append(environ, k.Variable+"="+another(t, files, k))
			said[k.Name] = page.of(k.Name)
		}
	}
	return environ
}

// another returns a value for a key that is not its default.
func another(t *testing.T, files map[string]string, k key) string {
	t.Helper()
	for name, file := range files {
		if strings.HasSuffix(k.Name, name) {
			return file
		}
	}
	value := unquoted(k.Default)
	if other := special[k.Variable]; other != "" {
		return other
	}
	switch kind(k) {
	case "boolean":
		return strconv.FormatBool(value != "true")
	case "integer":
		n, err := strconv.Atoi(value)
		if err != nil {
			t.Fatal(err)
		}
		return strconv.Itoa(n + 1)
	case "number":
		return value + "1"
	case "duration":
		return value + "1ms"
	}
	return value + "x"
}
