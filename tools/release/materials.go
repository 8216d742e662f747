package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
)

// materials writes the bill of materials of a binary, and checks that it names each
// module that the linker says is in there.
func (r *release) materials(path, binary string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "tool", "cyclonedx-gomod", "bin", "-json", "-std", "-noserial", "-notimestamp",
		"-version", r.Version, "-output", path, binary)
	if err := command(cmd); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text, err = withoutTool(text)
	if err != nil {
		return err
	}
	if err := checkMaterials(text, info.Deps); err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// withoutTool takes the checksums of the tool that made a bill of materials out of
// it: they are of a binary that each machine builds for itself.
func withoutTool(bill []byte) ([]byte, error) {
	var all map[string]any
	if err := json.Unmarshal(bill, &all); err != nil {
		return nil, err
	}
	metadata, _ := all["metadata"].(map[string]any)
	tools, _ := metadata["tools"].([]any)
	for _, tool := range tools {
		if t, ok := tool.(map[string]any); ok {
			delete(t, "hashes")
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	return append(text, '\n'), err
}

// checkMaterials reports what is missing in a bill of materials.
func checkMaterials(bill []byte, modules []*debug.Module) error {
	var found struct {
		BOMFormat  string
		Components []struct{ Name, Version string }
	}
	if err := json.Unmarshal(bill, &found); err != nil {
		return err
	}
	if found.BOMFormat != "CycloneDX" || len(modules) == 0 {
		return fmt.Errorf("a bill of materials in the format %q of %d modules", found.BOMFormat, len(modules))
	}
	there := map[string]bool{}
	for _, c := range found.Components {
		there[c.Name+"@"+c.Version] = true
	}
	var missing []error
	for _, m := range modules {
		if m.Replace != nil {
			m = m.Replace
		}
		if !there[m.Path+"@"+m.Version] {
			missing = append(missing, fmt.Errorf("the bill of materials does not have %s %s", m.Path, m.Version))
		}
	}
	return errors.Join(missing...)
}
