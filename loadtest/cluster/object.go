package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
)

// object is a JSON object whose values have not been looked at. It is a map and
// not a struct because encoding/json matches a struct's fields without regard to
// case, which workers do not.
type object map[string]json.RawMessage

// parseObject reads text that is one JSON object and nothing else. Of a repeated
// key the last value counts; repeated names the others.
func parseObject(text []byte) (o object, repeated []string, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	if start, err := d.Token(); err != nil {
		return nil, nil, err
	} else if start != json.Delim('{') {
		return nil, nil, errors.New("not an object")
	}
	o = object{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		key, _ := token.(string) // the decoder lets nothing else pass as a key
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, err
		}
		if _, ok := o[key]; ok {
			repeated = append(repeated, key)
		}
		o[key] = value
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, errors.New("something follows the object")
	}
	return o, repeated, nil
}

// has reports whether the field is there and not null.
func (o object) has(name string) bool {
	value, ok := o[name]
	return ok && string(value) != "null"
}

// truth reads a boolean; a missing one is false.
func (o object) truth(name string) (bool, error) {
	var b bool
	if !o.has(name) {
		return false, nil
	}
	if json.Unmarshal(o[name], &b) != nil {
		return false, badSchema(name, "%s: Input should be a valid boolean", name)
	}
	return b, nil
}

// text reads a string; a missing one is "".
func (o object) text(name string) (string, error) {
	var s string
	if !o.has(name) {
		return "", nil
	}
	if json.Unmarshal(o[name], &s) != nil {
		return "", badSchema(name, "%s: Input should be a valid string", name)
	}
	return s, nil
}

// number reads a number; there is false without one.
func (o object) number(name string) (n float64, there bool, err error) {
	if !o.has(name) {
		return 0, false, nil
	}
	if json.Unmarshal(o[name], &n) != nil {
		return 0, false, badSchema(name, "%s: Input should be a valid number", name)
	}
	return n, true, nil
}

// integer reads a whole number, for which 3.0 passes as it does with workers.
func (o object) integer(name string) (n int, there bool, err error) {
	f, there, err := o.number(name)
	if err != nil || !there {
		return 0, false, err
	}
	if n, err := strconv.Atoi(string(o[name])); err == nil {
		return n, true, nil
	}
	if f != float64(int(f)) {
		return 0, false, badSchema(name, "%s: Input should be a valid integer", name)
	}
	return int(f), true, nil
}

// inner reads an object; a missing one is nil.
func (o object) inner(name string) (object, error) {
	if !o.has(name) {
		return nil, nil
	}
	inner, _, err := parseObject(o[name])
	if err != nil {
		return nil, badSchema(name, "%s: Input should be a valid dictionary", name)
	}
	return inner, nil
}

// list reads an array; a missing one is nil.
func (o object) list(name string) ([]json.RawMessage, error) {
	var items []json.RawMessage
	if !o.has(name) {
		return nil, nil
	}
	if json.Unmarshal(o[name], &items) != nil {
		return nil, badSchema(name, "%s: Input should be a valid list", name)
	}
	return items, nil
}

// same reports whether two JSON texts hold the same members and values, numbers
// spelt alike. Order of keys and white space do not count.
func same(a, b json.RawMessage) bool {
	va, errA := readExactly(a)
	vb, errB := readExactly(b)
	return errA == nil && errB == nil && reflect.DeepEqual(va, vb)
}

// readExactly reads a JSON value with numbers as they are spelt.
func readExactly(text json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// encode writes JSON as the workers do: without escapes for HTML.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // v is made of this package's own types
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
