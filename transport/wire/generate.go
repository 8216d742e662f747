package wire

// GeneratePath is the route of workers that take token ids instead of text.
const GeneratePath = "/inference/v1/generate"

// Generate is POST /inference/v1/generate: the client sends token ids, and
// features if it has rendered media itself.
var Generate = &Protocol{
	Name:     "generate",
	Path:     GeneratePath,
	prompt:   generatePrompt,
	tokensIn: true,
}

// generatePrompt checks what a worker of an older version would fall over.
func generatePrompt(b *Body) (Prompt, error) {
	ids := b.Get("token_ids")
	n, ok := CountIDs(ids, 0)
	if !ok || n == 0 {
		return Prompt{}, Invalid("invalid_prompt", "token_ids must be a non-empty array of non-negative integers")
	}
	if !IsNull(b.Get("content_parts")) {
		return Prompt{}, Invalid("invalid_media", "content_parts are not served: send features")
	}
	params := b.Get("sampling_params")
	if !editable(params) {
		return Prompt{}, Invalid("invalid_prompt", "sampling_params must be an object")
	}
	if extra := Lookup(params, "extra_args"); !editable(extra) {
		return Prompt{}, Invalid("invalid_prompt", "sampling_params.extra_args must be an object")
	}
	features, err := parseFeatures(b.Get("features"), n, true)
	if err != nil {
		return Prompt{}, Invalid("invalid_prompt", "%v", err)
	}
	return Prompt{Given: Tokens{IDs: ids, Count: n, Features: features}}, nil
}

// editable reports whether a value is absent, null, or an object that legs can
// add to.
func editable(value []byte) bool {
	if IsNull(value) {
		return true
	}
	_, err := ParseBody(value)
	return err == nil
}

// nullTensors returns features with null for tensors that are empty or missing,
// or nil if they are whole: newer workers refuse features without kwargs_data.
func nullTensors(features []byte, f *Features) Text {
	if !f.any() || f.Kwargs != nil && f.Tensors() && f.knownOnly() {
		return nil
	}
	body, err := ParseBody(features)
	if err != nil {
		return nil
	}
	e := body.Edit()
	e.Set("kwargs_data", f.tensorMap())
	return e.Text()
}

// withoutTensors returns features without tensors, or nil if there are none.
func withoutTensors(features []byte, f *Features) Text {
	if f.Kwargs == nil {
		return nil
	}
	e := editOf(features)
	e.Delete("kwargs_data")
	return e.Text()
}

// knownOnly reports whether there is no modality that we do not know.
func (f *Features) knownOnly() bool {
	only := true
	EachMember(f.Hashes, func(name, _ []byte) bool { _, only = modalityOf(name); return only })
	return only
}

// tensorMap is kwargs_data with null for each item that is empty or missing.
func (f *Features) tensorMap() Text {
	t := Text{openBrace}
	hashes, kwargs := byName(f.Hashes), byName(f.Kwargs)
	EachMember(f.Hashes, func(name, list []byte) bool {
		key := unescape(name[1 : len(name)-1])
		if &list[0] != &hashes[string(key)][0] { // the name stands again further on
			return true
		}
		if len(t) > 1 {
			t = append(t, comma)
		}
		items := listOf(kwargs[string(key)]).all
		t = append(t, name[:cap(name)-cap(list)], []byte("[")) // up to the value
		i := 0
		EachElement(list, func([]byte) bool {
			if i > 0 {
				t = append(t, comma)
			}
			if i < len(items) && len(items[i]) > len(`""`) {
				t = append(t, items[i])
			} else {
				t = append(t, null)
			}
			i++
			return true
		})
		t = append(t, []byte("]"))
		return true
	})
	return append(t, closeBrace)
}

var null = []byte("null")
