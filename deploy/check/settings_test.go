package check

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

// settings are the values of a configuration by key, those that it leaves out too.
type settings map[string]any

// settingsOf returns what a coordinator has of a file and an environment. Defaults
// are those of conf/coordinator.toml, which has every key.
func settingsOf(text string, environ []string) (settings, error) {
	defaults, err := os.ReadFile(filepath.Join(repository, "conf/coordinator.toml"))
	if err != nil {
		return nil, err
	}
	s := settings{}
	for _, t := range []string{string(defaults), text} {
		var tree map[string]any
		if _, err := toml.Decode(t, &tree); err != nil {
			return nil, err
		}
		s.set("", tree)
	}
	for key := range s {
		name := "COORDINATOR_" + strings.ToUpper(strings.ReplaceAll(key, ".", "_")) + "="
		for _, entry := range environ {
			if value, ok := strings.CutPrefix(entry, name); ok {
				s[key] = value
			}
		}
	}
	return s, nil
}

func (s settings) set(prefix string, tree map[string]any) {
	for key, value := range tree {
		if below, ok := value.(map[string]any); ok {
			s.set(prefix+key+".", below)
		} else {
			s[prefix+key] = value
		}
	}
}

func (s settings) text(key string) string { return fmt.Sprint(s[key]) }

// duration returns a negative one for what is none, so that nothing agrees with it.
func (s settings) duration(key string) time.Duration {
	d, err := time.ParseDuration(s.text(key))
	if err != nil {
		return -1
	}
	return d
}

// port returns the port of an address, or -1.
func (s settings) port(key string) int32 {
	_, port, err := net.SplitHostPort(s.text(key))
	if err != nil {
		return -1
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		return -1
	}
	return int32(n)
}
