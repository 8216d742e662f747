// Command docs keeps the handbook true: it writes docs/configuration.md from the
// annotated conf/coordinator.toml, and checks the links within all pages. Its
// tests run the commands that the pages show.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/llm-coordinator/coordinator/conf"
)

// Pages of the handbook, from the root of the repository.
const (
	configurationPage = "docs/configuration.md"
	operationsPage    = "docs/operations.md"
)

func main() {
	root := flag.String("root", ".", "`directory` of the repository")
	flag.Parse()
	if err := run(*root); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

// run writes what is generated, and then checks all links.
func run(root string) error {
	page, err := configuration(root)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(root, configurationPage), page, 0o644); err != nil {
		return err
	}
	broken, err := brokenLinks(root)
	if err != nil {
		return err
	}
	for _, b := range broken {
		fmt.Fprintln(os.Stderr, b)
	}
	if len(broken) > 0 {
		return fmt.Errorf("%d links are broken", len(broken))
	}
	return nil
}

// configuration makes the page of the configuration.
func configuration(root string) ([]byte, error) {
	operations, err := os.ReadFile(filepath.Join(root, operationsPage))
	if err != nil {
		return nil, err
	}
	rules, err := parseReloadRules(string(operations))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", operationsPage, err)
	}
	sections, err := parseAnnotated(string(conf.Annotated))
	if err != nil {
		return nil, fmt.Errorf("coordinator.toml: %w", err)
	}
	return writeConfiguration(sections, rules), nil
}
