package check

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// unhardened finds pods that may do more than they need, and rollouts that take
// replicas away before others are there.
func (m *manifests) unhardened() (f faults) {
	for name, d := range m.deployments {
		spec := d.Spec.Template.Spec
		pod := spec.SecurityContext
		if pod == nil || !deref(pod.RunAsNonRoot) || pod.SeccompProfile == nil || pod.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			f.add("Deployment %s: its pods may be root, or call what they like", name)
		}
		for _, c := range spec.Containers {
			s := c.SecurityContext
			if s == nil || deref(s.AllowPrivilegeEscalation) || s.AllowPrivilegeEscalation == nil ||
				s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 {
				f.add("Deployment %s: the container %s has capabilities or may get some", name, c.Name)
			}
			if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
				f.add("Deployment %s: the container %s has no limit of memory, or asks for no CPU", name, c.Name)
			}
			if c.Name == "coordinator" && (s == nil || !deref(s.ReadOnlyRootFilesystem)) {
				f.add("Deployment %s: its root can be written to", name)
			}
		}
		if spec.Containers[0].Name != "coordinator" {
			continue
		}
		if spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
			f.add("Deployment %s: its pods get a token of the API server", name)
		}
		if r := d.Spec.Strategy.RollingUpdate; r == nil || r.MaxUnavailable == nil || r.MaxUnavailable.IntValue() != 0 {
			f.add("Deployment %s: a rollout may take replicas away", name)
		}
		if len(spec.TopologySpreadConstraints) == 0 {
			f.add("Deployment %s: all replicas may be on one node", name)
		}
	}
	return f
}
