package conf

import (
	"slices"
	"testing"
	"time"
)

func TestEnvironment(t *testing.T) {
	c := mustParse(t, "[server]\nlisten_addr = \":1\"\nread_timeout = \"1s\""+oneStep,
		"COORDINATOR_SERVER_LISTEN_ADDR=:2",
		"COORDINATOR_LOG_LEVEL=4",
		"COORDINATOR_GATEWAY_TIMEOUT=1m30s",
		"COORDINATOR_GATEWAY_BREAKER_ENABLED=false",
		"COORDINATOR_GATEWAY_BREAKER_FAILURE_RATIO=0.25",
		"COORDINATOR_GATEWAY_PROFILES_PREFILL_BREAKER_MIN_REQUESTS=3",
		"COORDINATOR_ACTORS_POOLS_DECODE_SIZE=7",
		"COORDINATOR_ADMIN_LISTEN_ADDR=",
	)
	if c.Server.ListenAddr != ":2" || c.Server.ReadTimeout != time.Second || c.LogLevel != 4 ||
		c.Gateway.Timeout != 90*time.Second || c.Gateway.Breaker.Enabled || c.Gateway.Breaker.FailureRatio != 0.25 ||
		c.Gateway.BreakerOf("prefill").MinRequests != 3 || c.Actors.Pools.Decode.Size != 7 || c.Admin.ListenAddr != "" {
		t.Errorf("got %+v", c)
	}
}

// Kubernetes sets variables for Services; a Service named as we are named must not keep us from starting.
func TestEnvironmentOfOthers(t *testing.T) {
	c := mustParse(t, oneStep,
		"COORDINATOR_PORT=tcp://10.0.0.1:80",
		"COORDINATOR_SERVICE_HOST=10.0.0.1",
		"COORDINATOR_GATEWAY_PORT_80_TCP=tcp://10.0.0.1:80",
		"COORDINATOR_GATEWAY=x", "COORDINATOR_PIPELINE_STEPS=x", "COORDINATOR_STEPS_DECODE=x",
		"coordinator_log_level=x", "LOG_LEVEL=x", "COORDINATOR_LOG_LEVEL", "")
	if changes := c.Changes(); len(changes) != 0 {
		t.Errorf("changes are %v", changes)
	}
}

func TestEnvironmentFaults(t *testing.T) {
	_, err := Parse("test.toml", []byte("log_level = 9\n[server]\nread_timeout = 5"+oneStep), []string{
		"COORDINATOR_GATEWAY_TIMEOUT=30",
		"COORDINATOR_GATEWAY_BREAKER_ENABLED=1",
		"COORDINATOR_GATEWAY_BREAKER_FAILURE_RATIO=half",
		"COORDINATOR_GATEWAY_BREAKER_INTERVAL=-1s",
		"COORDINATOR_ACTORS_POOLS_RENDER_SIZE=99999999999999999999",
		"COORDINATOR_ACTORS_POOLS_DECODE_SIZE=0",
		"COORDINATOR_SERVER_READ_TIMEOUT=7s",
	})
	wantError(t, err, `test.toml:1: log_level: must be from 1 to 5, got 9
test.toml:3: server.read_timeout: want a duration such as "30s", got integer 5
environment COORDINATOR_ACTORS_POOLS_DECODE_SIZE: actors.pools.decode.size: must be from 1 to 100000, got 0
environment COORDINATOR_ACTORS_POOLS_RENDER_SIZE: actors.pools.render.size: want an integer, got string "99999999999999999999"
environment COORDINATOR_GATEWAY_BREAKER_ENABLED: gateway.breaker.enabled: want true or false, got string "1"
environment COORDINATOR_GATEWAY_BREAKER_FAILURE_RATIO: gateway.breaker.failure_ratio: want a number, got string "half"
environment COORDINATOR_GATEWAY_BREAKER_INTERVAL: gateway.breaker.interval: must not be negative, got -1s
environment COORDINATOR_GATEWAY_TIMEOUT: gateway.timeout: want a duration such as "30s", got string "30"`)
}

func TestVariablesAreDistinct(t *testing.T) {
	seen := map[string]string{}
	for _, key := range Keys(Config{}) {
		name := variable(keyPrefix, key)
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s are both %s", key, other, name)
		}
		seen[name] = key
	}
}

func TestSplitList(t *testing.T) {
	tests := []struct {
		text string
		want []string
	}{
		{"", []string{}},
		{"  ", []string{}},
		{"a", []string{"a"}},
		{" a , b c,d", []string{"a", "b c", "d"}},
		{"a,,b", []string{"a", "", "b"}},
	}
	for _, test := range tests {
		if got := splitList(test.text); !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
}
