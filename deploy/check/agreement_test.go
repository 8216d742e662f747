package check

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// lastTraces is how long the coordinator may take for traces when all requests have
// ended (docs/operations.md, Traces).
const lastTraces = 3 * time.Second

// headroom is how much of the memory limit the Go runtime's own must leave: what it
// does not count, and what it overshoots by.
const headroom = 1.2

// roles are the values of the header that legs carry, in order.
var roles = []string{"decode", "encode", "prefill"}

// checker finds what is wrong with builds, with the help of coordinators that run.
type checker struct {
	t   *testing.T // whose end is theirs
	img *image
	dir string
}

func newChecker(t *testing.T) *checker {
	return &checker{t: t, img: theImage(t), dir: t.TempDir()}
}

// faults returns all that is wrong with a build.
func (c *checker) faults(text string) (f faults) {
	m, err := decode(text)
	if err != nil {
		f.add("%v", err)
		return f
	}
	f = append(f, m.unresolved()...)
	f = append(f, m.unhardened()...)
	f = append(f, m.pickerFaults()...)
	name, d := m.coordinator()
	if d == nil {
		f.add("no Deployment has a container \"coordinator\"")
		return f
	}
	p, err := c.pod(m, d)
	if err != nil {
		f.add("Deployment %s: %v", name, err)
		return f
	}
	p.checkPorts(m, &f)
	p.checkTimes(&f)
	p.checkRoutes(m, &f)
	c.checkRunning(p, &f)
	return f
}

// coordinator returns the Deployment that is the coordinator's.
func (m *manifests) coordinator() (name string, pods *corev1.PodTemplateSpec) {
	for name, d := range m.deployments {
		if d.Spec.Template.Spec.Containers[0].Name == "coordinator" {
			return name, &d.Spec.Template
		}
	}
	return "", nil
}

// pod is a coordinator's pod, and the configuration that it gets there.
type pod struct {
	*corev1.PodTemplateSpec
	container corev1.Container
	toml      string
	environ   []string
	settings  settings
}

// pod finds the configuration as the coordinator would: by its argument, the volume
// that is mounted there, and the environment. Secrets are made up.
func (c *checker) pod(m *manifests, pods *corev1.PodTemplateSpec) (*pod, error) {
	p := &pod{PodTemplateSpec: pods, container: pods.Spec.Containers[0]}
	if len(p.container.Args) != 2 || p.container.Args[0] != "--config" {
		return nil, fmt.Errorf("the arguments %q do not name a configuration", p.container.Args)
	}
	file := p.container.Args[1]
	for _, e := range p.container.Env {
		p.environ = append(p.environ, e.Name+"="+e.Value)
	}
	for _, v := range pods.Spec.Volumes {
		for _, mount := range p.container.VolumeMounts {
			switch {
			case mount.Name != v.Name:
			case v.ConfigMap != nil && mount.MountPath == path.Dir(file) && m.configs[v.ConfigMap.Name] != nil:
				p.toml = m.configs[v.ConfigMap.Name].Data[path.Base(file)]
			case v.Secret != nil:
				if err := p.makeSecrets(mount.MountPath, filepath.Join(c.dir, v.Name)); err != nil {
					return nil, err
				}
			}
		}
	}
	if p.toml == "" {
		return nil, fmt.Errorf("nothing is mounted at %s", file)
	}
	var err error
	p.settings, err = settingsOf(p.toml, p.environ)
	return p, err
}

// makeSecrets has variables that name files below a mount name files here.
func (p *pod) makeSecrets(mount, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i, entry := range p.environ {
		name, file, ok := strings.Cut(entry, "=file:"+mount+"/")
		if !ok {
			continue
		}
		here := filepath.Join(dir, file)
		if err := os.WriteFile(here, []byte("made-up\n"), 0o600); err != nil {
			return err
		}
		p.environ[i] = name + "=file:" + here
	}
	return nil
}

func (p *pod) checkPorts(m *manifests, f *faults) {
	public, admin := p.settings.port("server.listen_addr"), p.settings.port("admin.listen_addr")
	for name, want := range map[string]int32{"http": public, "admin": admin} {
		if got := containerPort(p.PodTemplateSpec, intstr.FromString(name)); got != want {
			f.add("the container's port %s is %d, the configuration listens at %d", name, got, want)
		}
	}
	for name, s := range m.services {
		if m.podsOf(s.Spec.Selector) != p.PodTemplateSpec {
			continue
		}
		for _, sp := range s.Spec.Ports {
			if sp.Name == "http" && containerPort(p.PodTemplateSpec, sp.TargetPort) != public || sp.Name == "admin" && sp.Port != admin {
				f.add("Service %s: its port %s is not where the configuration listens", name, sp.Name)
			}
			if sp.Name != "http" && sp.Name != "admin" {
				f.add("Service %s: a port %s that the coordinator does not have", name, sp.Name)
			}
		}
	}
	for name, policy := range m.networkPolicies {
		var open []int32
		for _, rule := range policy.Spec.Ingress {
			for _, port := range rule.Ports {
				open = append(open, port.Port.IntVal)
				if port.Port.IntVal == admin && len(rule.From) == 0 {
					f.add("NetworkPolicy %s: anybody may come to the operators' listener", name)
				}
			}
		}
		if slices.Sort(open); !slices.Equal(open, []int32{min(public, admin), max(public, admin)}) {
			f.add("NetworkPolicy %s: lets in at %v, the configuration listens at %d and %d", name, open, public, admin)
		}
	}
}

func (p *pod) checkTimes(f *faults) {
	var preStop time.Duration
	if l := p.container.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
		preStop = time.Duration(l.PreStop.Sleep.Seconds) * time.Second
	}
	delay, shutdown := p.settings.duration("server.drain_delay"), p.settings.duration("server.shutdown_timeout")
	need := preStop + delay + shutdown + lastTraces
	grace := time.Duration(deref(p.Spec.TerminationGracePeriodSeconds)) * time.Second
	if delay < 0 || shutdown < 0 || grace < need {
		f.add("terminationGracePeriodSeconds is %v, preStop, drain_delay, shutdown_timeout and traces may take %v", grace, need)
	}
	r := p.container.ReadinessProbe
	if r == nil || preStop+delay < time.Duration(r.PeriodSeconds*r.FailureThreshold)*time.Second {
		f.add("a replica that drains serves for %v, which is less than its readiness takes to be noticed", preStop+delay)
	}
}

// checkRoutes: legs are told apart by the coordinator's own header, everything else
// goes to it, and it calls a Gateway where that listens.
func (p *pod) checkRoutes(m *manifests, f *faults) {
	if len(m.gateways) == 0 {
		return
	}
	legs := map[string]bool{}
	rest := false
	for name, route := range m.routes {
		for _, rule := range route.Spec.Rules {
			for _, match := range rule.Matches {
				rest = rest || len(match.Headers) == 0
				for _, h := range match.Headers {
					if !strings.EqualFold(string(h.Name), p.settings.text("gateway.profile_header")) {
						f.add("HTTPRoute %s: legs carry %s, not %s", name, p.settings.text("gateway.profile_header"), h.Name)
					}
					legs[h.Value] = true
				}
			}
			if rule.Timeouts == nil || deref(rule.Timeouts.Request) != "0s" {
				f.add("HTTPRoute %s: a rule without timeouts.request 0s: long answers may be cut", name)
			}
		}
	}
	for _, profile := range roles {
		if !legs[profile] {
			f.add("no HTTPRoute is for the legs of %s", profile)
		}
	}
	if !rest {
		f.add("no HTTPRoute sends to the coordinator what is no leg")
	}
	p.checkGateway(m, f)
}

// checkGateway: the coordinator calls a listener of the Gateway, and one that has the
// legs. At another each leg would come back to the coordinator.
func (p *pod) checkGateway(m *manifests, f *faults) {
	address := p.settings.text("gateway.address")
	found := false
	for name, gw := range m.gateways {
		for _, l := range gw.Spec.Listeners {
			if !strings.HasPrefix(address, "http://"+name) || !strings.HasSuffix(address, fmt.Sprintf(":%d", l.Port)) {
				continue
			}
			found = true
			for route, r := range m.routes {
				if hasLegs(r) && !attaches(r, name, l.Name) {
					f.add("gateway.address is %s, the listener %s, where the legs of HTTPRoute %s are not", address, l.Name, route)
				}
			}
		}
	}
	if !found {
		f.add("gateway.address is %s, which is not of the Gateway and a port of it", address)
	}
}

// hasLegs reports whether a route tells requests apart by a header.
func hasLegs(r *gatewayv1.HTTPRoute) bool {
	for _, rule := range r.Spec.Rules {
		for _, match := range rule.Matches {
			if len(match.Headers) > 0 {
				return true
			}
		}
	}
	return false
}

// attaches reports whether a route is of a listener: by its name, or of all.
func attaches(r *gatewayv1.HTTPRoute, gateway string, listener gatewayv1.SectionName) bool {
	for _, parent := range r.Spec.ParentRefs {
		if string(parent.Name) == gateway && (parent.SectionName == nil || *parent.SectionName == listener) {
			return true
		}
	}
	return false
}

// checkRunning starts a coordinator as the pod would.
func (c *checker) checkRunning(p *pod, f *faults) {
	file := filepath.Join(c.dir, "coordinator.toml")
	if err := os.WriteFile(file, []byte(p.toml), 0o600); err != nil {
		f.add("%v", err)
		return
	}
	if err := checkConfig(c.t, c.img.binary(), file, p.environ); err != nil {
		f.add("%v", err)
		return
	}
	cmd := command(c.t, c.img.binary(), "--config", file)
	cmd.Env = append(append(slices.Clone(p.environ), loopback...), "COORDINATOR_SERVER_DRAIN_DELAY=0s")
	running, err := start(c.t, cmd)
	if err != nil {
		f.add("%v", err)
		return
	}
	for name, probe := range map[string]*corev1.Probe{"liveness": p.container.LivenessProbe, "readiness": p.container.ReadinessProbe} {
		if probe == nil || probe.HTTPGet == nil {
			f.add("no %s probe", name)
		} else if err := running.answers(probe.HTTPGet.Path); err != nil || probe.HTTPGet.Port.StrVal != "http" {
			f.add("the %s probe %s of port %s: %v", name, probe.HTTPGet.Path, &probe.HTTPGet.Port, err)
		}
	}
	if limit := p.container.Resources.Limits.Memory().Value(); float64(limit) < headroom*float64(running.memory) {
		f.add("the memory limit is %d MB, the Go runtime keeps to %d MB and needs a fifth more", limit>>20, running.memory>>20)
	}
	if err := running.stop(); err != nil {
		f.add("%v", err)
	}
}
