// Package report shows what load tests have measured: one as a page that needs
// nothing but a browser, or two beside each other, as text or as such a page.
package report

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/llm-coordinator/coordinator/loadtest/load"
	"github.com/llm-coordinator/coordinator/loadtest/scrape"
)

// File is a report as loadtest/run writes it: what clients saw and, if the
// coordinator's metrics were read meanwhile, what it did.
type File struct {
	*load.Report
	Coordinator *scrape.Figures `json:"coordinator,omitempty"`
}

// Read reads a report from a file.
func Read(name string) (*File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f := &File{}
	if err := json.Unmarshal(text, f); err != nil {
		return nil, fmt.Errorf("%s is no report of a load test, which -o writes: %w", name, err)
	}
	if f.Report == nil || f.DurationSeconds <= 0 || f.Settings.Request.Kind == "" {
		return nil, fmt.Errorf("%s is no report of a load test, which -o writes", name)
	}
	return f, nil
}
