package enginetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/sobek"
)

// Request is one that was made.
type Request struct {
	Method, URL string
	Body        string
	Headers     map[string]string // as the script set them
	Tags        map[string]string
	Status      int // 0: there was no whole answer
}

// client is what requests are made with.
type client struct{ http.Client }

func newClient() client {
	return client{http.Client{
		Transport:     &http.Transport{},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (c *client) close() { c.CloseIdleConnections() }

// params are the options of a request, as far as scripts use them.
type params struct {
	headers  map[string]string
	tags     map[string]string
	timeout  time.Duration
	expected *statuses
}

// statuses is what expectedStatuses returns.
type statuses struct{ ranges [][2]int }

func (s *statuses) has(status int) bool {
	for _, r := range s.ranges {
		if r[0] <= status && status <= r[1] {
			return true
		}
	}
	return false
}

func (v *vu) http() map[string]any {
	send := func(method string, hasBody bool) func(sobek.FunctionCall) sobek.Value {
		return func(call sobek.FunctionCall) sobek.Value {
			if hasBody {
				return v.request(method, call.Argument(0), call.Argument(1), call.Argument(2))
			}
			return v.request(method, call.Argument(0), sobek.Undefined(), call.Argument(1))
		}
	}
	return map[string]any{
		"get": send(http.MethodGet, false), "post": send(http.MethodPost, true), "del": send(http.MethodDelete, true),
		"expectedStatuses": v.expectedStatuses,
	}
}

func (v *vu) expectedStatuses(call sobek.FunctionCall) sobek.Value {
	s := &statuses{}
	for _, arg := range call.Arguments {
		switch x := arg.Export().(type) {
		case int64:
			s.ranges = append(s.ranges, [2]int{int(x), int(x)})
		case map[string]any:
			low, ok := x["min"].(int64)
			high, ok2 := x["max"].(int64)
			if !ok || !ok2 || len(x) != 2 {
				v.refuse("expectedStatuses: %v", arg)
			}
			s.ranges = append(s.ranges, [2]int{int(low), int(high)})
		default:
			v.refuse("expectedStatuses: %v", arg)
		}
	}
	return v.rt.ToValue(s)
}

// params reads the options of a request. What k6 would pass over in silence is
// refused.
func (v *vu) params(value sobek.Value) params {
	p := params{timeout: time.Minute, expected: &statuses{[][2]int{{200, 399}}}}
	if sobek.IsUndefined(value) || sobek.IsNull(value) {
		return p
	}
	o := value.ToObject(v.rt)
	for _, key := range o.Keys() {
		member := o.Get(key)
		var ok bool
		switch key {
		case "headers":
			p.headers, ok = v.strings(key, member), true
		case "tags":
			p.tags, ok = v.tags(member), true
		case "timeout":
			var ms float64
			ms, ok = asFloat(member)
			p.timeout = time.Duration(ms * float64(time.Millisecond))
		case "redirects":
			ok = member.Export() == int64(0) // nobody needs another number
		case "responseCallback":
			p.expected, ok = member.Export().(*statuses)
		}
		if !ok {
			v.refuse("http: option %q: %v: there is none, or not with such a value", key, member)
		}
	}
	return p
}

func asFloat(value sobek.Value) (float64, bool) {
	switch n := value.Export().(type) {
	case int64:
		return float64(n), true
	case float64:
		return n, true
	}
	return 0, false
}

// strings reads an object of strings.
func (v *vu) strings(what string, value sobek.Value) map[string]string {
	o := value.ToObject(v.rt)
	all := map[string]string{}
	for _, key := range o.Keys() {
		text, ok := o.Get(key).Export().(string)
		if !ok {
			v.refuse("%s: %s is %v, which is no string", what, key, o.Get(key))
		}
		all[key] = text
	}
	return all
}

func (v *vu) tags(value sobek.Value) map[string]string {
	if sobek.IsUndefined(value) || sobek.IsNull(value) {
		return nil
	}
	return v.strings("tags", value)
}

// request makes one, and returns a response as k6 does: status 0 if there was no
// whole answer.
func (v *vu) request(method string, address, body, options sobek.Value) sobek.Value {
	p := v.params(options)
	target, err := url.Parse(address.String())
	if err != nil || target.Hostname() != "127.0.0.1" {
		v.refuse("http: %v is not on loopback", address)
	}
	text, isText := body.Export().(string)
	if !isText && !sobek.IsUndefined(body) && !sobek.IsNull(body) {
		v.refuse("http: a body that is no string: %v", body)
	}
	began := time.Now()
	status, answer, waited, err := v.engine.exchange(method, target.String(), text, p)
	took := time.Since(began)
	if err != nil {
		status, answer = 0, nil
	}
	v.engine.Requests = append(v.engine.Requests, Request{method, target.String(), text, p.headers, p.tags, status})
	v.engine.metrics.addRequest(p, status, waited, took)
	return v.response(status, answer, waited, took, err)
}

// exchange makes a request, and says how long its headers took.
func (e *Engine) exchange(method, address, body string, p params) (status int, answer []byte, waited time.Duration, err error) {
	ctx, cancel := context.WithTimeout(e.ctx, p.timeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return 0, nil, 0, err
	}
	for name, value := range p.headers {
		r.Header.Set(name, value)
	}
	began := time.Now()
	resp, err := e.client.Do(r)
	if err != nil {
		return 0, nil, 0, err
	}
	defer resp.Body.Close()
	waited = time.Since(began)
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, waited, err
}

func (v *vu) response(status int, answer []byte, waited, took time.Duration, err error) sobek.Value {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	o := v.rt.NewObject()
	members := map[string]any{
		"status": status, "body": nil, "error": "",
		"timings": map[string]any{"sending": 0, "waiting": ms(waited), "receiving": ms(took - waited), "duration": ms(took)},
		"json": func(call sobek.FunctionCall) sobek.Value {
			found, err := at(v.parse(jsonText(answer)), call.Argument(0))
			if err != nil {
				panic(v.rt.NewGoError(err))
			}
			return found
		},
	}
	if err != nil {
		members["error"] = err.Error()
	} else {
		members["body"] = string(answer)
	}
	for name, value := range members {
		_ = o.Set(name, value) // a new object takes everything
	}
	return o
}

// at walks a path as in "data.0.id"; what is not there is undefined.
func at(value, path sobek.Value) (sobek.Value, error) {
	if sobek.IsUndefined(path) {
		return value, nil
	}
	for key := range strings.SplitSeq(path.String(), ".") {
		o, ok := value.(*sobek.Object)
		if !ok {
			return sobek.Undefined(), nil
		}
		if _, err := strconv.Atoi(key); err != nil && strings.ContainsAny(key, "#*?@") {
			return nil, fmt.Errorf("json: path %q: %w", path, errors.ErrUnsupported)
		}
		if value = o.Get(key); value == nil {
			return sobek.Undefined(), nil
		}
	}
	return value, nil
}
