package check

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// haproxy is a configuration of HAProxy: lines, in words, by section.
type haproxy struct {
	sections map[string][][]string // by its words, such as "backend decode"
	agreement
}

// haproxyFaults compares what HAProxy does with what a coordinator expects.
func haproxyFaults(files texts, s settings) faults {
	h := &haproxy{agreement: agreement{settings: s, unit: time.Millisecond}}
	h.parse(files["haproxy.cfg"])
	for _, side := range []string{"timeout server", "timeout client"} {
		h.more(side, h.values(side), "gateway.profiles.decode.timeout")
		h.more(side, h.values(side), "server.write_timeout")
	}
	h.more("timeout http-keep-alive", h.values("timeout http-keep-alive"), "gateway.idle_conn_timeout")
	h.checkRoutes()
	h.checkCoordinators()
	return h.faults
}

func (h *haproxy) parse(text string) {
	h.sections = map[string][][]string{}
	section := ""
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "global", "defaults", "frontend", "backend", "listen":
			section = strings.Join(words, " ")
			h.sections[section] = [][]string{}
		default:
			h.sections[section] = append(h.sections[section], words)
		}
	}
}

// lines returns what follows a keyword in a section.
func (h *haproxy) lines(section, keyword string) (rests []string) {
	for _, words := range h.sections[section] {
		if rest, ok := strings.CutPrefix(strings.Join(words, " "), keyword+" "); ok {
			rests = append(rests, rest)
		}
	}
	return rests
}

// values returns what follows a keyword in all sections.
func (h *haproxy) values(keyword string) (rests []string) {
	for section := range h.sections {
		rests = append(rests, h.lines(section, keyword)...)
	}
	return rests
}

// checkRoutes: legs by the header, and all that is left to the coordinators.
func (h *haproxy) checkRoutes() {
	const gateway = "frontend gateway"
	var legs []string
	header := strings.ToLower("req.hdr(" + h.settings.text("gateway.profile_header") + ")")
	for _, rule := range h.lines(gateway, "use_backend") {
		backend, condition, _ := strings.Cut(rule, " ")
		legs = append(legs, backend)
		if h.sections["backend "+backend] == nil {
			h.faults.add("no backend %s", backend)
		}
		if !strings.Contains(strings.ToLower(condition), header+" -m str "+backend+" }") {
			h.faults.add("the backend %s is not for %s: %s", backend, h.settings.text("gateway.profile_header"), backend)
		}
	}
	if slices.Sort(legs); !slices.Equal(legs, roles) {
		h.faults.add("legs go to %v", legs)
	}
	if rest := h.lines(gateway, "default_backend"); len(rest) != 1 || rest[0] != "coordinators" {
		h.faults.add("what is no leg goes to %v", rest)
	}
}

func (h *haproxy) checkCoordinators() {
	const coordinators = "backend coordinators"
	if asked := h.lines(coordinators, "option httpchk"); len(asked) != 1 || asked[0] != "GET /readyz" {
		h.faults.add("coordinators are asked for %s", strings.Join(asked, ", "))
	}
	var addresses []string
	for _, server := range h.lines(coordinators, "server") {
		address := strings.Fields(server)[1]
		if name, ok := strings.CutPrefix(address, `"${`); ok {
			address = strings.Join(h.lines("global", "presetenv "+strings.TrimSuffix(name, `}"`)), ", ")
		}
		addresses = append(addresses, address)
	}
	h.coordinators(addresses)
	h.checkNotice()
}

// checkNotice: a replica that drains is left out before it closes its listener. The
// last check may be begun just before, and take its own time.
func (h *haproxy) checkNotice() {
	words := strings.Fields(strings.Join(h.lines("defaults", "default-server"), " "))
	given := map[string]string{}
	checked := false
	for i, word := range words {
		checked = checked || word == "check"
		if i+1 < len(words) {
			given[word] = words[i+1]
		}
	}
	fall, err := strconv.Atoi(given["fall"])
	inter := h.time(given["inter"])
	if !checked || err != nil || inter == 0 {
		h.faults.add("servers are not checked, or not by inter and fall: %v", words)
		return
	}
	if notice, delay := time.Duration(fall+1)*inter, h.settings.duration("server.drain_delay"); notice > delay {
		h.faults.add("checks take %v to see that a replica drains, drain_delay is %v", notice, delay)
	}
}
