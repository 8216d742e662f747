package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// layout is where a gateway finds whom it knows.
type layout struct {
	listen       string
	networks     string // of the coordinators
	coordinators []string
	workers      map[string][]string // by role
}

// gateway is a program that routes as deploy says.
type gateway interface {
	name() string // of the program, and of its Debian package
	// asksReadiness reports whether it asks replicas whether they are ready.
	asksReadiness() bool
	// start starts it with the shipped files and the layout's addresses.
	start(t *testing.T, dir string, l layout) *process
}

// programOf returns the path of a gateway's program, or "". Debian has it in a
// directory that is not in everybody's PATH.
func programOf(g gateway) string {
	for _, name := range []string{g.name(), filepath.Join("/usr/sbin", g.name())} {
		if program, err := exec.LookPath(name); err == nil {
			return program
		}
	}
	return ""
}

// shipped is the directory of a gateway's files.
func shipped(g gateway) string { return filepath.Join("..", "deploy", g.name()) }

// haproxy takes its addresses from the environment.
type haproxy struct{}

func (haproxy) name() string        { return "haproxy" }
func (haproxy) asksReadiness() bool { return true }

func (h haproxy) start(t *testing.T, dir string, l layout) *process {
	t.Helper()
	file, err := filepath.Abs(filepath.Join(shipped(h), "haproxy.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"GATEWAY_LISTEN=" + l.listen, "COORDINATOR_NETWORKS=" + l.networks,
		"COORDINATOR_1=" + l.coordinators[0], "COORDINATOR_2=" + l.coordinators[1]}
	for role, addresses := range l.workers {
		env = append(env, strings.ToUpper(role)+"_1="+addresses[0], strings.ToUpper(role)+"_2="+addresses[1])
	}
	return startProcess(t, dir, h.name(), env, programOf(h), "-db", "-f", file)
}

// nginx reads copies of the files, in which addresses have taken the place of
// those that stand there as examples.
type nginx struct{}

func (nginx) name() string        { return "nginx" }
func (nginx) asksReadiness() bool { return false } // the free one cannot

func (n nginx) start(t *testing.T, dir string, l layout) *process {
	t.Helper()
	places := map[string]string{"listen 8080": "listen " + l.listen, "192.0.2.0/28": l.networks}
	for role, first := range map[string]int{"encode": 17, "prefill": 33, "decode": 49} {
		for i, address := range l.workers[role] {
			places[fmt.Sprintf("192.0.2.%d:8000", first+i)] = address
		}
	}
	for i, address := range l.coordinators {
		places[fmt.Sprintf("192.0.2.%d:8080", 1+i)] = address
	}
	put := 0
	for _, file := range []string{"nginx.conf", "site.conf", "gateway.conf"} {
		text, err := os.ReadFile(filepath.Join(shipped(n), file))
		if err != nil {
			t.Fatal(err)
		}
		filled := string(text)
		for from, to := range places {
			put += strings.Count(filled, from)
			filled = strings.ReplaceAll(filled, from, to)
		}
		if file == "site.conf" {
			filled += ownPlaces(dir, n.name())
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(filled), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if put != len(places) {
		t.Fatalf("%d addresses were put into the files, want %d: do they have other examples than this test?", put, len(places))
	}
	return startProcess(t, dir, n.name(), nil, programOf(n), "-e", "stderr", "-p", dir, "-c", filepath.Join(dir, "nginx.conf"),
		"-g", "daemon off; pid nginx.pid; error_log stderr;")
}

// ownPlaces are settings that keep nginx out of the directories of the system.
func ownPlaces(dir, name string) string {
	text := fmt.Sprintf("access_log %s;\n", filepath.Join(dir, name+".log"))
	for _, module := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		text += fmt.Sprintf("%s_temp_path %s;\n", module, filepath.Join(dir, module))
	}
	return text
}
