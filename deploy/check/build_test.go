package check

import (
	"fmt"
	"strings"

	promv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	poolv1 "sigs.k8s.io/gateway-api-inference-extension/api/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// kustomize returns the manifests of a directory with a kustomization.
func kustomize(dir string) (string, error) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return "", err
	}
	text, err := made.AsYaml()
	return string(text), err
}

// manifests are all objects of a build by name. They are of one namespace.
type manifests struct {
	deployments     map[string]*appsv1.Deployment
	services        map[string]*corev1.Service
	configs         map[string]*corev1.ConfigMap
	accounts        map[string]*corev1.ServiceAccount
	autoscalers     map[string]*autoscalingv2.HorizontalPodAutoscaler
	budgets         map[string]*policyv1.PodDisruptionBudget
	networkPolicies map[string]*networkingv1.NetworkPolicy
	roles           map[string]*rbacv1.Role
	bindings        map[string]*rbacv1.RoleBinding
	gateways        map[string]*gatewayv1.Gateway
	routes          map[string]*gatewayv1.HTTPRoute
	pools           map[string]*poolv1.InferencePool
	monitors        map[string]*promv1.ServiceMonitor
}

// decode reads a build strictly: what has no field in the types of its API is an
// error, and so is an object that is there twice or of a kind that is not expected.
func decode(text string) (*manifests, error) {
	m := &manifests{}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		raw, err := yaml.YAMLToJSONStrict([]byte(doc))
		if err != nil {
			return nil, err
		}
		var head metav1.TypeMeta
		if err := yaml.Unmarshal(raw, &head); err != nil {
			return nil, err
		}
		if err := m.add(head.APIVersion+"/"+head.Kind, raw); err != nil {
			return nil, fmt.Errorf("%s: %w", head.Kind, err)
		}
	}
	return m, nil
}

func (m *manifests) add(kind string, raw []byte) error {
	switch kind {
	case "apps/v1/Deployment":
		return put(&m.deployments, raw)
	case "v1/Service":
		return put(&m.services, raw)
	case "v1/ConfigMap":
		return put(&m.configs, raw)
	case "v1/ServiceAccount":
		return put(&m.accounts, raw)
	case "autoscaling/v2/HorizontalPodAutoscaler":
		return put(&m.autoscalers, raw)
	case "policy/v1/PodDisruptionBudget":
		return put(&m.budgets, raw)
	case "networking.k8s.io/v1/NetworkPolicy":
		return put(&m.networkPolicies, raw)
	case "rbac.authorization.k8s.io/v1/Role":
		return put(&m.roles, raw)
	case "rbac.authorization.k8s.io/v1/RoleBinding":
		return put(&m.bindings, raw)
	case "gateway.networking.k8s.io/v1/Gateway":
		return put(&m.gateways, raw)
	case "gateway.networking.k8s.io/v1/HTTPRoute":
		return put(&m.routes, raw)
	case "inference.networking.k8s.io/v1/InferencePool":
		return put(&m.pools, raw)
	case "monitoring.coreos.com/v1/ServiceMonitor":
		return put(&m.monitors, raw)
	}
	return fmt.Errorf("no type is known for %s", kind)
}

// put decodes one object and keeps it by its name.
func put[T any, P interface {
	*T
	metav1.Object
}](objects *map[string]P, raw []byte) error {
	obj := P(new(T))
	if err := decodeStrict(raw, obj); err != nil {
		return err
	}
	if *objects == nil {
		*objects = map[string]P{}
	}
	if (*objects)[obj.GetName()] != nil {
		return fmt.Errorf("%s is there twice", obj.GetName())
	}
	(*objects)[obj.GetName()] = obj
	return nil
}

// decodeStrict reads JSON as the API server does with strict validation: names of
// fields in their own spelling, each of them known and there once.
func decodeStrict(raw []byte, into any) error {
	faults, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		return err
	}
	if len(faults) > 0 {
		return fmt.Errorf("%v", faults)
	}
	return nil
}
