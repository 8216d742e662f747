package check

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_proc/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3" // types that the files name
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/retry/host/previous_hosts/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"sigs.k8s.io/yaml"
)

const envoyDir = repository + "/deploy/envoy"

func TestEnvoy(t *testing.T) {
	for _, name := range []string{"envoy.yaml", "envoy-epp.yaml"} {
		for _, fault := range envoyFaults(readFile(t, "deploy/envoy", name)) {
			t.Errorf("%s: %s", name, fault)
		}
	}
	if found, err := filepath.Glob(envoyDir + "/*.yaml"); err != nil || len(found) != 2 {
		t.Errorf("files that are not checked: %v, %v", found, err)
	}
}

// TestEnvoyPlanted changes one thing in the files, and has it found.
func TestEnvoyPlanted(t *testing.T) {
	for _, p := range []struct{ in, old, new, want string }{
		{"envoy.yaml", "stat_prefix:", "stat_prefx:", "stat_prefx"},
		{"envoy.yaml", "unhealthy_threshold: 1", "unhealthy_treshold: 1", "unhealthy_treshold"},
		{"envoy.yaml", "stat_prefix: inference", "stat_prefix: \"\"", "StatPrefix"},
		{"envoy.yaml", "connect_timeout: 2s", "connect_timeout: -2s", "ConnectTimeout"},
		{"envoy.yaml", "filters.http.router.v3.Router", "filters.http.router.v3.Ruter", "Ruter"},
		{"envoy.yaml", "cluster: prefill,", "cluster: pre,", "no cluster pre"},
		{"envoy.yaml", "name: EPP-Profile, string_match: {exact: decode}", "name: Phase, string_match: {exact: decode}", "told apart by Phase"},
		{"envoy.yaml", "string_match: {exact: encode}", "string_match: {exact: encoder}", "legs go by [decode encoder prefill]"},
		{"envoy.yaml", "cluster: decode, timeout: 0s", "cluster: decode, timeout: 15s", "the route of decode may cut answers"},
		{"envoy.yaml", "cluster: decode, timeout: 0s", "cluster: decode, retry_policy: {retry_on: 5xx}, timeout: 0s", "legs of decode are sent again"},
		{"envoy.yaml", "port_value: 8080", "port_value: 8081", "the coordinator listens at 8080, not 8081"},
		{"envoy.yaml", "path: /readyz", "path: /healthz", "health checks"},
		{"envoy.yaml", "interval: 4s", "interval: 14s", "health checks"},
		{"envoy.yaml", "stream_idle_timeout: 0s", "stream_idle_timeout: 60s", "the listener may cut answers"},
		{"envoy.yaml", "idle_timeout: 600s", "idle_timeout: 60s", "connections of the coordinator"},
		{"envoy.yaml", "idle_timeout: 60s", "idle_timeout: 160s", "connections to the coordinator"},
		{"envoy.yaml", "max_requests: 100000, ", "", "has Envoy's own limit of requests"},
		{"envoy-epp.yaml", "request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: BUFFERED", "the picker has whole bodies kept back"},
		{"envoy-epp.yaml", "request_body_mode: FULL_DUPLEX_STREAMED", "request_body_mode: DUPLEX", "DUPLEX"},
		{"envoy-epp.yaml", "envoy_grpc: {cluster_name: endpoint-picker}", "envoy_grpc: {cluster_name: epp}", "no cluster epp"},
	} {
		text, err := os.ReadFile(filepath.Join(envoyDir, p.in))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), p.old) {
			t.Errorf("%s: %q is not there to be changed", p.in, p.old)
			continue
		}
		found := envoyFaults(strings.ReplaceAll(string(text), p.old, p.new))
		if !strings.Contains(strings.Join(found, "\n"), p.want) {
			t.Errorf("%s: %q for %q was not found: want %q, have %q", p.in, p.new, p.old, p.want, found)
		}
	}
}

// envoyFaults reads a configuration strictly and compares it with the coordinator's
// own, whose times are those of deploy/kubernetes.
func envoyFaults(text string) (f faults) {
	raw, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return faults{err.Error()}
	}
	b := &bootstrapv3.Bootstrap{}
	if err := protojson.Unmarshal(raw, b); err != nil {
		return faults{err.Error()}
	}
	if err := validateAll(b); err != nil {
		return faults{err.Error()}
	}
	ours, err := os.ReadFile(kubernetes + "/base/coordinator.toml")
	if err != nil {
		return faults{err.Error()}
	}
	s, err := settingsOf(string(ours), nil)
	if err != nil {
		return faults{err.Error()}
	}
	e := &envoy{clusters: map[string]*clusterv3.Cluster{}, settings: s, faults: &f}
	for _, c := range b.StaticResources.Clusters {
		e.clusters[c.Name] = c
		e.checkLimits(c)
	}
	for _, l := range b.StaticResources.Listeners {
		manager := unpack[*hcmv3.HttpConnectionManager](l.FilterChains[0].Filters[0].GetTypedConfig())
		e.checkListener(manager)
		e.checkRoutes(manager.GetRouteConfig().VirtualHosts[0].Routes)
	}
	e.checkCoordinator(e.clusters["coordinator"])
	return f
}

// envoy is a configuration that is being compared.
type envoy struct {
	clusters map[string]*clusterv3.Cluster
	settings settings
	faults   *faults
}

func (e *envoy) checkListener(m *hcmv3.HttpConnectionManager) {
	if !off(m.StreamIdleTimeout) || !off(m.RequestTimeout) {
		e.faults.add("the listener may cut answers or bodies that take long")
	}
	if idle := m.CommonHttpProtocolOptions.GetIdleTimeout().AsDuration(); idle <= e.settings.duration("gateway.idle_conn_timeout") {
		e.faults.add("connections of the coordinator are closed after %v, before it does so itself", idle)
	}
	for _, filter := range m.HttpFilters {
		if filter.Name != "envoy.filters.http.ext_proc" {
			continue
		}
		p := unpack[*extprocv3.ExternalProcessor](filter.GetTypedConfig())
		e.cluster(p.GrpcService.GetEnvoyGrpc().GetClusterName())
		if mode := p.ProcessingMode; mode.RequestBodyMode != extprocv3.ProcessingMode_FULL_DUPLEX_STREAMED || mode.ResponseBodyMode != mode.RequestBodyMode {
			e.faults.add("the picker has whole bodies kept back")
		}
		if p.FailureModeAllow {
			e.faults.add("without the picker legs go to any worker")
		}
	}
}

// checkRoutes: legs by the header, then all that is left to the coordinator.
func (e *envoy) checkRoutes(routes []*routev3.Route) {
	var legs []string
	for i, r := range routes {
		action := r.GetRoute()
		e.cluster(action.GetCluster())
		headers := r.Match.Headers
		name := "the coordinator"
		if len(headers) == 1 {
			name = headers[0].GetStringMatch().GetExact()
			legs = append(legs, name)
			if !strings.EqualFold(headers[0].Name, e.settings.text("gateway.profile_header")) {
				e.faults.add("legs are told apart by %s, the coordinator sends %s", headers[0].Name, e.settings.text("gateway.profile_header"))
			}
			if action.RetryPolicy != nil {
				e.faults.add("legs of %s are sent again by Envoy too", name)
			}
		}
		if !off(action.Timeout) || !off(action.IdleTimeout) {
			e.faults.add("the route of %s may cut answers", name)
		}
		if last := i == len(routes)-1; last != (len(headers) == 0 && action.GetCluster() == "coordinator") {
			e.faults.add("route %d: the coordinator's must be the last, and for everything", i)
		}
	}
	if slices.Sort(legs); !slices.Equal(legs, roles) {
		e.faults.add("legs go by %v", legs)
	}
}

func (e *envoy) cluster(name string) {
	if e.clusters[name] == nil {
		e.faults.add("no cluster %s", name)
	}
}

func (e *envoy) checkCoordinator(c *clusterv3.Cluster) {
	if c == nil {
		return // said of its route
	}
	port := c.LoadAssignment.Endpoints[0].LbEndpoints[0].GetEndpoint().Address.GetSocketAddress().GetPortValue()
	if want := e.settings.port("server.listen_addr"); int32(port) != want {
		e.faults.add("the coordinator listens at %d, not %d", want, port)
	}
	options := unpack[*httpv3.HttpProtocolOptions](c.TypedExtensionProtocolOptions["envoy.extensions.upstreams.http.v3.HttpProtocolOptions"])
	if idle := options.CommonHttpProtocolOptions.GetIdleTimeout().AsDuration(); idle == 0 || idle >= e.settings.duration("server.idle_timeout") {
		e.faults.add("connections to the coordinator are kept for %v, longer than it keeps them", idle)
	}
	noticed := time.Duration(1<<63 - 1)
	for _, h := range c.HealthChecks {
		if h.GetHttpHealthCheck().GetPath() == "/readyz" {
			noticed = 2*h.Interval.AsDuration() + h.Timeout.AsDuration()
		}
	}
	if delay := e.settings.duration("server.drain_delay"); noticed > delay {
		e.faults.add("health checks take %v to see that a replica drains, drain_delay is %v", noticed, delay)
	}
}

// checkLimits: Envoy's limits must not be met before the coordinator's pools are full.
func (e *envoy) checkLimits(c *clusterv3.Cluster) {
	decode, ok := e.settings["actors.pools.decode.size"].(int64)
	limits := c.CircuitBreakers.GetThresholds()
	if !ok || len(limits) != 1 || limits[0].MaxRequests.GetValue() < uint32(10*decode) || limits[0].MaxConnections.GetValue() < uint32(10*decode) ||
		limits[0].MaxPendingRequests.GetValue() < uint32(10*decode) {
		e.faults.add("the cluster %s has Envoy's own limit of requests, or one that ten coordinators meet", c.Name)
	}
}

// off reports whether a time-out is given and 0: left out, most have a default.
func off(d *durationpb.Duration) bool { return d != nil && d.AsDuration() == 0 }

// unpack returns what an Any holds, or nothing of its type.
func unpack[M proto.Message](a interface{ UnmarshalNew() (proto.Message, error) }) (m M) {
	if made, err := a.UnmarshalNew(); err == nil {
		m, _ = made.(M)
	}
	return m
}
