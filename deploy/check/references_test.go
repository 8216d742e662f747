package check

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// faults collects what is wrong with a build.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// unresolved finds names and labels that lead to nothing.
func (m *manifests) unresolved() (f faults) {
	m.unresolvedServices(&f)
	m.unresolvedWorkloads(&f)
	m.unresolvedSelectors(&f)
	m.unresolvedRoutes(&f)
	m.unresolvedPools(&f)
	for name, b := range m.bindings {
		if m.roles[b.RoleRef.Name] == nil {
			f.add("RoleBinding %s: no Role %s", name, b.RoleRef.Name)
		}
		for _, s := range b.Subjects {
			if m.accounts[s.Name] == nil {
				f.add("RoleBinding %s: no ServiceAccount %s", name, s.Name)
			}
		}
	}
	return f
}

// podsOf returns the only Deployment whose pods have the labels, or nil.
func (m *manifests) podsOf(selector map[string]string) (pods *corev1.PodTemplateSpec) {
	for _, d := range m.deployments {
		if labels.SelectorFromSet(selector).Matches(labels.Set(d.Spec.Template.Labels)) {
			if pods != nil {
				return nil
			}
			pods = &d.Spec.Template
		}
	}
	return pods
}

func (m *manifests) unresolvedServices(f *faults) {
	for name, s := range m.services {
		pods := m.podsOf(s.Spec.Selector)
		if pods == nil {
			f.add("Service %s: its selector %v does not match the pods of one Deployment", name, s.Spec.Selector)
			continue
		}
		for _, p := range s.Spec.Ports {
			if containerPort(pods, p.TargetPort) == 0 {
				f.add("Service %s: no container has its port %v", name, &p.TargetPort)
			}
		}
	}
	for name, mon := range m.monitors {
		found := false
		for _, s := range m.services {
			if selects(&mon.Spec.Selector, s.Labels) {
				for _, e := range mon.Spec.Endpoints {
					found = found || servicePort(s, e.Port) != 0
				}
			}
		}
		if !found {
			f.add("ServiceMonitor %s: no Service with its labels has the port that it scrapes", name)
		}
	}
}

func (m *manifests) unresolvedWorkloads(f *faults) {
	for name, d := range m.deployments {
		spec := d.Spec.Template.Spec
		if !selects(d.Spec.Selector, d.Spec.Template.Labels) {
			f.add("Deployment %s: its selector does not match its pods", name)
		}
		if m.accounts[spec.ServiceAccountName] == nil {
			f.add("Deployment %s: no ServiceAccount %q", name, spec.ServiceAccountName)
		}
		volumes := map[string]bool{}
		for _, v := range spec.Volumes {
			volumes[v.Name] = true
			if v.ConfigMap != nil && m.configs[v.ConfigMap.Name] == nil {
				f.add("Deployment %s: no ConfigMap %s", name, v.ConfigMap.Name)
			}
		}
		for _, c := range spec.Containers {
			for _, v := range c.VolumeMounts {
				if !volumes[v.Name] {
					f.add("Deployment %s: no volume %s", name, v.Name)
				}
			}
			for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if p != nil && p.HTTPGet != nil && containerPort(&d.Spec.Template, p.HTTPGet.Port) == 0 {
					f.add("Deployment %s: a probe of a port %v that there is not", name, &p.HTTPGet.Port)
				}
			}
		}
	}
}

func (m *manifests) unresolvedSelectors(f *faults) {
	for name, a := range m.autoscalers {
		if ref := a.Spec.ScaleTargetRef; ref.Kind != "Deployment" || m.deployments[ref.Name] == nil {
			f.add("HorizontalPodAutoscaler %s: no %s %s", name, ref.Kind, ref.Name)
		} else if m.deployments[ref.Name].Spec.Replicas != nil {
			f.add("HorizontalPodAutoscaler %s: the Deployment says how many replicas, too", name)
		}
	}
	for name, b := range m.budgets {
		if m.podsOf(b.Spec.Selector.MatchLabels) == nil {
			f.add("PodDisruptionBudget %s: its selector matches no pods", name)
		}
	}
	for name, p := range m.networkPolicies {
		if m.podsOf(p.Spec.PodSelector.MatchLabels) == nil {
			f.add("NetworkPolicy %s: its selector matches no pods", name)
		}
	}
}

func (m *manifests) unresolvedRoutes(f *faults) {
	for name, r := range m.routes {
		for _, p := range r.Spec.ParentRefs {
			gw := m.gateways[string(p.Name)]
			if gw == nil {
				f.add("HTTPRoute %s: no Gateway %s", name, p.Name)
			} else if p.SectionName != nil && listenerOf(gw, *p.SectionName) == nil {
				f.add("HTTPRoute %s: the Gateway has no listener %s", name, *p.SectionName)
			}
		}
		for _, rule := range r.Spec.Rules {
			if len(rule.BackendRefs) == 0 {
				f.add("HTTPRoute %s: a rule without a backend", name)
			}
			for _, b := range rule.BackendRefs {
				m.unresolvedBackend(f, name, b.BackendObjectReference)
			}
		}
	}
}

func (m *manifests) unresolvedBackend(f *faults, route string, b gatewayv1.BackendObjectReference) {
	group, kind := "", "Service"
	if b.Group != nil {
		group = string(*b.Group)
	}
	if b.Kind != nil {
		kind = string(*b.Kind)
	}
	switch group + "/" + kind {
	case "/Service":
		s := m.services[string(b.Name)]
		if s == nil || b.Port == nil || !hasPort(s, int32(*b.Port)) {
			f.add("HTTPRoute %s: no Service %s with port %v", route, b.Name, deref(b.Port))
		}
	case "inference.networking.k8s.io/InferencePool":
		if m.pools[string(b.Name)] == nil {
			f.add("HTTPRoute %s: no InferencePool %s", route, b.Name)
		}
	default:
		f.add("HTTPRoute %s: a backend of kind %s/%s", route, group, kind)
	}
}

// unresolvedPools also finds pickers that pick for another pool than the one that
// refers to them.
func (m *manifests) unresolvedPools(f *faults) {
	for name, p := range m.pools {
		ref := p.Spec.EndpointPickerRef
		s := m.services[string(ref.Name)]
		if s == nil || ref.Port == nil || !hasPort(s, int32(ref.Port.Number)) {
			f.add("InferencePool %s: no Service %s with its port", name, ref.Name)
			continue
		}
		pods := m.podsOf(s.Spec.Selector)
		if pods == nil {
			continue // said of the Service
		}
		env := pods.Spec.Containers[0].Env
		args := strings.Join(pods.Spec.Containers[0].Args, " ")
		if !strings.Contains(args, "--pool-name=$(POOL_NAME)") || valueOf(env, "POOL_NAME") != name {
			f.add("InferencePool %s: its picker picks for %q", name, valueOf(env, "POOL_NAME"))
		}
	}
}

func selects(s *metav1.LabelSelector, set map[string]string) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && !selector.Empty() && selector.Matches(labels.Set(set))
}

// containerPort returns the number of a port of pods, or 0 if none has it.
func containerPort(pods *corev1.PodTemplateSpec, port intstr.IntOrString) int32 {
	for _, c := range pods.Spec.Containers {
		for _, p := range c.Ports {
			if port.StrVal != "" && p.Name == port.StrVal || port.StrVal == "" && p.ContainerPort == port.IntVal {
				return p.ContainerPort
			}
		}
	}
	return 0
}

// servicePort returns the number of the port of that name, or 0.
func servicePort(s *corev1.Service, name string) int32 {
	for _, p := range s.Spec.Ports {
		if p.Name == name {
			return p.Port
		}
	}
	return 0
}

func hasPort(s *corev1.Service, number int32) bool {
	for _, p := range s.Spec.Ports {
		if p.Port == number {
			return true
		}
	}
	return false
}

func listenerOf(gw *gatewayv1.Gateway, name gatewayv1.SectionName) *gatewayv1.Listener {
	for i, l := range gw.Spec.Listeners {
		if l.Name == name {
			return &gw.Spec.Listeners[i]
		}
	}
	return nil
}

// valueOf returns what a variable of a container is set to.
func valueOf(env []corev1.EnvVar, name string) string {
	for _, e := range env {
		if e.Name == name {
			return e.Value
		}
	}
	return ""
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}
