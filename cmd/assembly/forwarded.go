package assembly

import (
	"net/http"
	"slices"

	"github.com/llm-coordinator/coordinator/conf"
	"github.com/llm-coordinator/coordinator/transport/wire"
)

// forwardedHeaders returns the names of pipeline.forward_response_headers in
// canonical form, or says which cannot be forwarded.
func forwardedHeaders(cfg *conf.Config) ([]string, error) {
	const key = "pipeline.forward_response_headers"
	var names []string
	for _, spelt := range cfg.Pipeline.ForwardResponseHeaders {
		name := http.CanonicalHeaderKey(spelt)
		switch {
		case !wire.IsToken(spelt):
			return nil, cfg.Errorf(key, "want names of HTTP headers, got %q", spelt)
		case wire.Reserved(name, cfg.Gateway.ProfileHeader):
			return nil, cfg.Errorf(key, "%s is the coordinator's own to set, or about a connection or a body", spelt)
		case slices.Contains(names, name):
			return nil, cfg.Errorf(key, "%s is there twice", spelt)
		}
		names = append(names, name)
	}
	return names, nil
}
