package check

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// pickerConfig is what we use of llm-d's EndpointPickerConfig. Its types are in a
// module that is not for use elsewhere, so this is what its documentation says.
type pickerConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Plugins    []struct {
		Name       string            `json:"name,omitempty"`
		Type       string            `json:"type"`
		Parameters map[string]string `json:"parameters,omitempty"`
	} `json:"plugins"`
	SchedulingProfiles []struct {
		Name    string `json:"name"`
		Plugins []struct {
			PluginRef string `json:"pluginRef"`
			Weight    *int   `json:"weight,omitempty"`
		} `json:"plugins"`
	} `json:"schedulingProfiles"`
}

// pickerFaults looks at the configurations of endpoint pickers: plugins that are
// named but not there, headers and profiles that no leg has, pools that are too wide.
func (m *manifests) pickerFaults() (f faults) {
	for name, p := range m.pools {
		s := m.services[string(p.Spec.EndpointPickerRef.Name)]
		if s == nil {
			continue // said of the pool
		}
		pods := m.podsOf(s.Spec.Selector)
		if pods == nil {
			continue
		}
		text := ""
		for _, v := range pods.Spec.Volumes {
			if v.ConfigMap != nil && m.configs[v.ConfigMap.Name] != nil {
				text = m.configs[v.ConfigMap.Name].Data["config.yaml"]
			}
		}
		var c pickerConfig
		raw, err := yaml.YAMLToJSONStrict([]byte(text))
		if err == nil {
			err = decodeStrict(raw, &c)
		}
		if err != nil || c.Kind != "EndpointPickerConfig" {
			f.add("InferencePool %s: the configuration of its picker: %v", name, err)
			continue
		}
		m.checkPicker(&f, name, &c, strings.Join(pods.Spec.Containers[0].Args, " "))
	}
	return f
}

func (m *manifests) checkPicker(f *faults, pool string, c *pickerConfig, args string) {
	plugins := map[string]bool{}
	byHeader := ""
	for _, p := range c.Plugins {
		plugins[p.Type] = true
		if p.Type == "header-profile-handler" {
			byHeader = p.Parameters["headerName"]
		}
	}
	profiles := map[string]bool{}
	for _, p := range c.SchedulingProfiles {
		profiles[p.Name] = true
		for _, ref := range p.Plugins {
			if !plugins[ref.PluginRef] {
				f.add("InferencePool %s: its picker's profile %s has a plugin %s that there is not", pool, p.Name, ref.PluginRef)
			}
		}
	}
	role := string(m.pools[pool].Spec.Selector.MatchLabels["llm-d.ai/role"])
	if byHeader != "" && !strings.Contains(args, "--allow-experimental-plugins=true") {
		f.add("InferencePool %s: its picker refuses header-profile-handler, which is experimental", pool)
	}
	for _, route := range m.routes {
		for _, rule := range route.Spec.Rules {
			if string(rule.BackendRefs[0].Name) != pool {
				continue
			}
			for _, match := range rule.Matches {
				for _, h := range match.Headers {
					switch {
					case byHeader == "" && h.Value != role:
						f.add("InferencePool %s: gets the legs of %s, its workers are for %q", pool, h.Value, role)
					case byHeader != "" && (!strings.EqualFold(byHeader, string(h.Name)) || !profiles[h.Value]):
						f.add("InferencePool %s: its picker has no profile for %s: %s", pool, h.Name, h.Value)
					}
				}
			}
		}
	}
}
