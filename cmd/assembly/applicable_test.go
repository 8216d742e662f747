package assembly

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llm-coordinator/coordinator/conf"
)

// TestKeysThatNeedARestart are these and no others, and the handbook names them. A
// key that is new is to be put in force by a reload, or added here and there.
func TestKeysThatNeedARestart(t *testing.T) {
	var got []string
	for _, key := range conf.Keys(conf.Config{}) {
		if needsRestart(key) {
			got = append(got, key)
		}
	}
	want := []string{"log_format", "server.listen_addr", "server.read_timeout", "server.idle_timeout", "server.tls.cert_file",
		"server.tls.key_file", "server.tls.client_ca_file", "server.tls.min_version", "admin.listen_addr", "admin.token"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Reload\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, key := range got {
		if strings.HasPrefix(key, "server.tls.") {
			key = "server.tls"
		}
		if !strings.Contains(section, "`"+key+"`") {
			t.Errorf("%s is not in the handbook", key)
		}
	}
}
