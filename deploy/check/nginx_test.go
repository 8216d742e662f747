package check

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// directive is one of nginx: its words, and what is in its block, if it has one.
type directive struct {
	words []string
	block []directive
}

// nginxWord is a quoted text, a sign that ends something, a comment, or a word.
var nginxWord = regexp.MustCompile(`"[^"]*"|[;{}]|#[^\n]*|[^\s;{}]+`)

// parseNginx reads a file as nginx does, with the files that it includes.
func parseNginx(files texts, name string) ([]directive, error) {
	text, ok := files[name]
	if !ok {
		return nil, fmt.Errorf("no file %s", name)
	}
	tokens := nginxWord.FindAllString(text, -1)
	list, err := parseBlock(files, &tokens)
	if err == nil && len(tokens) > 0 {
		err = fmt.Errorf("%s: a } too much", name)
	}
	return list, err
}

// parseBlock takes directives from the tokens, up to the } or the end.
func parseBlock(files texts, tokens *[]string) (list []directive, err error) {
	var d directive
	for len(*tokens) > 0 {
		token := (*tokens)[0]
		if token == "}" {
			break
		}
		*tokens = (*tokens)[1:]
		switch {
		case strings.HasPrefix(token, "#"):
			continue
		case token == "{":
			if d.block, err = parseBlock(files, tokens); err != nil {
				return nil, err
			}
			if len(*tokens) == 0 {
				return nil, fmt.Errorf("%v: a } too few", d.words)
			}
			*tokens = (*tokens)[1:]
		case token != ";":
			d.words = append(d.words, strings.Trim(token, `"`))
			continue
		}
		if len(d.words) == 2 && d.words[0] == "include" {
			included, err := parseNginx(files, d.words[1])
			if err != nil {
				return nil, err
			}
			list = append(list, included...)
		} else if len(d.words) > 0 {
			list = append(list, d)
		}
		d = directive{}
	}
	return list, nil
}

// find returns the directives that begin with these words, in blocks too.
func find(list []directive, words ...string) (found []directive) {
	for _, d := range list {
		if len(d.words) >= len(words) && strings.Join(d.words[:len(words)], " ") == strings.Join(words, " ") {
			found = append(found, d)
		}
		found = append(found, find(d.block, words...)...)
	}
	return found
}

// arguments returns the first word after the name of all directives of that name.
func arguments(list []directive, name string) (values []string) {
	for _, d := range find(list, name) {
		values = append(values, strings.Join(d.words[1:min(2, len(d.words))], ""))
	}
	return values
}

// nginx is a configuration of nginx that is being compared.
type nginx struct {
	all []directive
	agreement
}

// nginxFaults compares what nginx does with what a coordinator expects.
func nginxFaults(files texts, s settings) faults {
	all, err := parseNginx(files, "nginx.conf")
	if err != nil {
		return faults{err.Error()}
	}
	n := &nginx{all: all, agreement: agreement{settings: s, unit: time.Second}}
	var servers []directive
	for _, d := range find(all, "server") {
		servers = append(servers, d.block...) // those of an upstream have none
	}
	n.more("proxy_read_timeout", arguments(servers, "proxy_read_timeout"), "gateway.profiles.decode.timeout")
	n.more("proxy_send_timeout", arguments(servers, "proxy_send_timeout"), "server.write_timeout")
	n.more("send_timeout", arguments(servers, "send_timeout"), "server.write_timeout")
	n.more("keepalive_timeout", arguments(servers, "keepalive_timeout"), "gateway.idle_conn_timeout")
	if limits := arguments(servers, "client_max_body_size"); len(limits) != 1 || limits[0] != "0" {
		n.faults.add("bodies are limited to %s, the coordinator's own 413 is for clients", strings.Join(limits, ", "))
	}
	n.checkRoutes(servers)
	for _, upstream := range find(all, "upstream", "coordinators") {
		n.coordinators(arguments(upstream.block, "server"))
		n.less("keepalive_timeout", arguments(upstream.block, "keepalive_timeout"), "server.idle_timeout")
	}
	return n.faults
}

// checkRoutes: the header's value, of one who is believed, says which workers.
func (n *nginx) checkRoutes(servers []directive) {
	variable := "$http_" + strings.ReplaceAll(strings.ToLower(n.settings.text("gateway.profile_header")), "-", "_")
	routes := find(n.all, "map", "$from_coordinator "+variable)
	if len(routes) != 1 || len(routes[0].words) != 3 {
		n.faults.add("no map of %s from coordinators", variable)
		return
	}
	want := map[string]string{"default": "coordinators"}
	for _, role := range roles {
		want["yes "+role] = role
	}
	for _, d := range routes[0].block {
		if value := d.words[0]; want[value] == "" {
			n.faults.add("what is %q goes to workers, or nowhere", value)
		}
	}
	for value, upstream := range want {
		to := ""
		for _, d := range routes[0].block {
			if d.words[0] == value && len(d.words) == 2 {
				to = d.words[1]
			}
		}
		if to != upstream {
			n.faults.add("what is %q goes to %q", value, to)
		}
		if len(find(n.all, "upstream", upstream)) != 1 {
			n.faults.add("no upstream %s", upstream)
		}
	}
	if pass := arguments(servers, "proxy_pass"); len(pass) != 1 || pass[0] != "http://"+routes[0].words[2] {
		n.faults.add("proxy_pass is %s", strings.Join(pass, ", "))
	}
}
