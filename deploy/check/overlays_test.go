package check

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	kubernetes = repository + "/deploy/kubernetes"
	onePool    = kubernetes + "/overlays/gaie-one-pool"
	perRole    = kubernetes + "/overlays/gaie-pool-per-role"
	plain      = kubernetes + "/overlays/plain"
)

// TestOverlays builds each overlay as it is.
func TestOverlays(t *testing.T) {
	c := newChecker(t)
	for _, dir := range []string{kubernetes + "/base", plain, onePool, perRole} {
		text, err := kustomize(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, fault := range c.faults(text) {
			t.Errorf("%s: %s", filepath.Base(dir), fault)
		}
	}
}

// TestComponents builds overlays as an operator would make them, with everything
// that can be added and under names of their own.
func TestComponents(t *testing.T) {
	c := newChecker(t)
	for _, overlay := range []string{plain, onePool, perRole} {
		legs := ""
		if overlay != plain {
			legs = "  - COMPONENTS/legs-apart\n"
		}
		text := buildOwn(t, overlay, `namePrefix: team-
namespace: serving
components:
  - COMPONENTS/service-monitor
  - COMPONENTS/admin-token
  - COMPONENTS/pool-wait-scaling
`+legs+gatewayAt("http://team-inference-gateway-istio:8081"))
		for _, fault := range c.faults(text) {
			t.Errorf("%s: %s", filepath.Base(overlay), fault)
		}
		wants := []string{"file:/etc/coordinator-admin/token", "type: Bearer", "llm_d_coordinator_pool_wait_seconds_mean"}
		if legs != "" {
			wants = append(wants, "sectionName: legs", "sectionName: http", "port: 8081")
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s: %q is not in it", filepath.Base(overlay), want)
			}
		}
	}
}

// gatewayAt is the patch by which an operator says where the Gateway is.
func gatewayAt(address string) string {
	return `patches:
  - target: {kind: Deployment, labelSelector: app=llm-d-coordinator}
    patch: |-
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: any}
      spec: {template: {spec: {containers: [{name: coordinator, env: [{name: COORDINATOR_GATEWAY_ADDRESS, value: "` + address + `"}]}]}}}
`
}

// buildOwn builds a kustomization that is made of an overlay.
func buildOwn(t *testing.T, overlay, rest string) string {
	t.Helper()
	dir := t.TempDir()
	relative := func(to string) string {
		abs, err := filepath.Abs(to)
		if err != nil {
			t.Fatal(err)
		}
		rel, err := filepath.Rel(dir, abs)
		if err != nil {
			t.Fatal(err)
		}
		return rel
	}
	own := "resources: [" + relative(overlay) + "]\n" + strings.ReplaceAll(rest, "COMPONENTS", relative(kubernetes+"/components"))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(own), 0o600); err != nil {
		t.Fatal(err)
	}
	text, err := kustomize(dir)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestPlanted changes one thing in what was built, and has it found.
func TestPlanted(t *testing.T) {
	c := newChecker(t)
	built := map[string]string{}
	for _, dir := range []string{plain, onePool, perRole} {
		text, err := kustomize(dir)
		if err != nil {
			t.Fatal(err)
		}
		built[dir] = text
	}
	monitored := buildOwn(t, plain, "components: [COMPONENTS/service-monitor]\n")
	apart := buildOwn(t, onePool, "components: [COMPONENTS/legs-apart]\n"+gatewayAt("http://inference-gateway-istio:8081"))
	for _, p := range []struct{ in, old, new, want string }{
		{built[plain], "readOnlyRootFilesystem: true", "readOnlyRootFileSystem: true", `unknown field "spec.template.spec.containers[0].securityContext.readOnlyRootFileSystem"`},
		{built[plain], "averageUtilization: 70", "averageUtilisation: 70", `unknown field "spec.metrics[0].resource.target.averageUtilisation"`},
		{built[plain], "      maxSurge: 1", "      maxSurge: 1\n      maxSurge: 2", `key "maxSurge" already set in map`},
		{built[plain], "containerPort: 8080", "containerPort: 8081", "the container's port http is 8081, the configuration listens at 8080"},
		{built[plain], "listen_addr = \":9090\"", "listen_addr = \":9091\"", "the container's port admin is 9090, the configuration listens at 9091"},
		{built[plain], "- port: 9090", "- port: 9091", "lets in at [8080 9091]"},
		{built[plain], "targetPort: http", "targetPort: https", "no container has its port https"},
		{built[plain], "terminationGracePeriodSeconds: 330", "terminationGracePeriodSeconds: 310", "terminationGracePeriodSeconds is 5m10s"},
		{built[plain], "shutdown_timeout = \"5m\"", "shutdown_timeout = \"10m\"", "may take 10m18s"},
		{built[plain], "drain_delay      = \"10s\"", "drain_delay      = \"0s\"", "serves for 5s"},
		{built[plain], "max_inflight_size = 1024", "max_inflight_size = 2048", "the memory limit is 1536 MB, the Go runtime keeps to 2400 MB"},
		{built[plain], "kv_connector", "kv_conector", "coordinator check"},
		{built[plain], "path: /readyz", "path: /ready", "the readiness probe /ready of port http: 404 Not Found"},
		{built[plain], "- /etc/coordinator/coordinator.toml", "- /etc/coordinator/other.toml", "nothing is mounted at /etc/coordinator/other.toml"},
		{built[plain], "runAsNonRoot: true", "runAsNonRoot: false", "its pods may be root"},
		{built[plain], "maxUnavailable: 0", "maxUnavailable: 1", "a rollout may take replicas away"},
		{built[plain], "    kind: Deployment\n    name: llm-d-coordinator", "    kind: Deployment\n    name: coordinator", "no Deployment coordinator"},
		{monitored, "  - interval: 15s", "  - intervall: 15s", `unknown field "spec.endpoints[0].intervall"`},
		{built[onePool], "failureMode: FailClose", "failureMod: FailClose", `unknown field "spec.endpointPickerRef.failureMod"`},
		{built[onePool], "targetPorts:", "targetPortNumber:", `unknown field "spec.targetPortNumber"`},
		{built[onePool], "gatewayClassName:", "gatewayclassname:", `unknown field "spec.gatewayclassname"`},
		{built[onePool], "timeouts:\n      request: 0s", "timeouts:\n      requests: 0s", `unknown field "spec.rules[0].timeouts.requests"`},
		{built[onePool], "      name: workers\n", "      name: worker\n", "no InferencePool worker"},
		{built[onePool], "          value: workers\n", "          value: all\n", `its picker picks for "all"`},
		{built[onePool], "- name: EPP-Profile", "- name: Phase", "legs carry EPP-Profile, not Phase"},
		{built[onePool], "- name: prefill\n", "- name: prefil\n", "its picker has no profile for EPP-Profile: prefill"},
		{built[onePool], "inference-gateway-istio:80", "inference-gateway-istio:81", "not of the Gateway and a port of it"},
		{apart, "inference-gateway-istio:8081", "inference-gateway-istio:80", "the listener http, where the legs of HTTPRoute legs are not"},
		{apart, "sectionName: legs", "sectionName: http", "the listener legs, where the legs of HTTPRoute legs are not"},
		{built[onePool], "--allow-experimental-plugins=true", "--allow-experimental-plugins=false", "refuses header-profile-handler"},
		{built[perRole], "      llm-d.ai/role: prefill", "      llm-d.ai/role: decode", `gets the legs of prefill, its workers are for "decode"`},
		{built[perRole], "    name: endpoint-picker-decode\n    port:", "    name: endpoint-picker-d\n    port:", "no Service endpoint-picker-d with its port"},
	} {
		if !strings.Contains(p.in, p.old) {
			t.Errorf("%q is not there to be changed", p.old)
			continue
		}
		found := c.faults(strings.ReplaceAll(p.in, p.old, p.new))
		if !strings.Contains(strings.Join(found, "\n"), p.want) {
			t.Errorf("%q for %q was not found: want %q, have %q", p.new, p.old, p.want, found)
		}
	}
}
