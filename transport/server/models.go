package server

import "sync"

// modelNames bounds the values of the label model_name: clients choose them. A
// name takes one of the places only after it was answered with a 2xx.
type modelNames struct {
	mu    sync.RWMutex
	known map[string]bool
}

const maxModelNames = 1000

func (m *modelNames) label(name string, status int) string {
	if name == "" {
		return "unknown"
	}
	m.mu.RLock()
	known, full := m.known[name], len(m.known) >= maxModelNames
	m.mu.RUnlock()
	if known {
		return name
	}
	if full || status/100 != 2 {
		return "other"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.known) >= maxModelNames && !m.known[name] {
		return "other"
	}
	if m.known == nil {
		m.known = make(map[string]bool)
	}
	m.known[name] = true
	return name
}
