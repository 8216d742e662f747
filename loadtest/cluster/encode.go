package cluster

import (
	"encoding/json"
	"net/http"
	"slices"
)

// encode is the encode worker: it computes the embedding of one medium and answers
// one token and how to fetch the embedding.
func (l *leg) encode() error {
	if err := l.check(); err != nil {
		return err
	}
	if err := l.takePush(); err != nil {
		return err
	}
	p, err := l.encodeTask()
	if err == nil {
		err = l.checkPush(p)
	}
	if err != nil {
		l.violate("%v", err)
		return err
	}
	if err := l.loadMedia(p); err != nil {
		return err
	}
	im := &p.images[0]
	work := l.beginEncoding(im.hash)
	err = l.answerEncoding(p, im)
	l.endEncoding(work, err == nil && !l.fault.spoilsAnswer())
	return err
}

func (l *leg) answerEncoding(p *prompt, im *image) error {
	c := l.cluster
	if err := c.pause(l.request.Context(), c.options.EncodeDelay); err != nil {
		return err
	}
	text := l.newText(p, p.reply(), 1, 1)
	text.embedding = l.giveEmbedding(im)
	l.nameWorker()
	return l.answer(http.StatusOK, text.encoded())
}

// beginEncoding notes that an image is encoded, and a violation if that was done
// for this request already. A retry of an encode that has no answer is none.
func (l *leg) beginEncoding(hash string) *encoding {
	c, id := l.cluster, l.record.RequestID
	work := &encoding{leg: id}
	c.mu.Lock()
	request := c.requests.of(id)
	earlier := earlierEncoding(request.encoding[hash], id)
	request.encoding[hash] = append(request.encoding[hash], work)
	c.mu.Unlock()
	if earlier != nil && c.options.EC != ECMooncake { // which has one for each place of an image
		l.violate("image %s is encoded more than once, before by %s", hash, earlier.leg)
	}
	return work
}

// earlierEncoding returns one that makes a leg's needless, nil if there is none. One
// with the leg's own id comes first: there is no excuse for that.
func earlierEncoding(before []*encoding, id string) *encoding {
	var found *encoding
	for _, other := range before {
		switch own := other.leg == id; {
		case own && !other.over:
			return other
		case other.answered:
			found = other
		}
	}
	return found
}

func (l *leg) endEncoding(work *encoding, answered bool) {
	l.cluster.mu.Lock()
	defer l.cluster.mu.Unlock()
	work.answered, work.over = answered, !answered
}

// encodeTask reads what is to be encoded. It is stricter than a real worker, which
// takes anything: an encode leg has one form.
func (l *leg) encodeTask() (*prompt, error) {
	switch l.api {
	case &chatAPI:
		return l.encodePartTask("messages", "max_tokens")
	case &responsesAPI:
		return l.encodePartTask("input", responseLimit, "store")
	case &generateAPI:
		return l.encodeTokensTask()
	}
	return nil, badValue("", "An encode has no %s format.", l.api.object)
}

// encodePartTask reads {"model","messages":[{"role","content":[part]}],"tokens",
// "max_tokens","stream"}, or the same with other names and more members.
func (l *leg) encodePartTask(messages, limit string, more ...string) (*prompt, error) {
	members := append(more, messages, "tokens", limit, "stream", "model?", "mm_processor_kwargs?", "media_io_kwargs?")
	err := l.body.hasOnly("", members...)
	if err == nil {
		err = l.isCapped(l.body, limit)
	}
	if err == nil {
		err = isOnePart(l.body, messages)
	}
	if err != nil {
		return nil, err
	}
	p, err := l.api.prompt(l.cluster.vocabulary, l.body)
	if err != nil {
		return nil, err
	}
	if len(p.images) != 1 {
		return nil, badValue(messages, "An encode has exactly one medium.")
	}
	tokens, err := l.body.inner("tokens")
	if err != nil {
		return nil, err
	}
	if err := tokens.hasOnly("tokens", "token_ids", "features"); err != nil {
		return nil, err
	}
	task, err := readEncodeTokens(tokens, "mm_hashes", "mm_placeholders")
	if err != nil {
		return nil, err
	}
	im := p.images[0]
	if im.hash != task.images[0].hash || im.modality != task.images[0].modality {
		return nil, badValue("tokens", "mm_hashes has the %s %s, the %s is %s.", task.images[0].modality, task.images[0].hash, im.modality, im.hash)
	}
	if im.length != task.images[0].length || !slices.Equal(p.span(&im), task.ids[1:]) {
		return nil, badValue("tokens", "The tokens are not those of the image's placeholder.")
	}
	if known := l.knownImage(im.hash, func(known *renderedImage) bool { return known.part == im.part }); known == unknownImage {
		return nil, badValue(messages, "The part is not the client's, byte for byte.")
	}
	return p, l.checkEncodeTask(task)
}

// encodeTokensTask reads {"model","token_ids","features","sampling_params",
// "stream"}.
func (l *leg) encodeTokensTask() (*prompt, error) {
	err := l.body.hasOnly("", "token_ids", "features", "sampling_params", "stream", "model?")
	if err == nil {
		err = l.sampling.hasOnly("sampling_params", "max_tokens")
	}
	if err == nil {
		err = l.isCapped(l.sampling, "max_tokens")
	}
	if err != nil {
		return nil, err
	}
	task, err := readEncodeTokens(l.body, "mm_hashes", "mm_placeholders", "kwargs_data")
	if err != nil {
		return nil, err
	}
	im := &task.images[0]
	if im.tensors == "" {
		return nil, badValue("features", "kwargs_data is null: there is nothing to encode.")
	}
	sum := sumOf(im.tensors)
	if known := l.knownImage(im.hash, func(known *renderedImage) bool { return known.tensorSum == sum }); known == unknownImage {
		return nil, badValue("features", "kwargs_data is not what render gave.")
	}
	return task, l.checkEncodeTask(task)
}

// isCapped checks that an encode asks for one token, in one piece.
func (l *leg) isCapped(sampling object, limit string) error {
	if string(sampling[limit]) != "1" || string(l.body["stream"]) != "false" || l.api.typed && string(l.body["store"]) != "false" {
		return badValue(limit, "An encode must have %s 1 and stream false, and not be stored.", limit)
	}
	return nil
}

// isOnePart checks that the messages, or the input, are one message of the user of
// one part.
func isOnePart(o object, field string) error {
	wrong := badValue(field, "An encode has one message of the user with one part.")
	messages, err := o.list(field)
	if err != nil || len(messages) != 1 {
		return wrong
	}
	message, _, err := parseObject(messages[0])
	if err != nil || string(message["role"]) != `"user"` || message.hasOnly(field, "role", "content") != nil {
		return wrong
	}
	if parts, err := message.list("content"); err != nil || len(parts) != 1 {
		return wrong
	}
	return nil
}

// readEncodeTokens reads token ids and the features of their one image, which must
// have the given members and no others.
func readEncodeTokens(o object, members ...string) (*prompt, error) {
	var ids []int
	if json.Unmarshal(o["token_ids"], &ids) != nil {
		return nil, badSchema("token_ids", "token_ids: Input should be a list of token ids")
	}
	f, err := o.inner("features")
	if err != nil {
		return nil, err
	}
	if err := f.hasOnly("features", members...); err != nil {
		return nil, err
	}
	images, err := readFeatures(f, len(ids))
	if err != nil {
		return nil, err
	}
	if len(images) != 1 || !isServed(images[0].modality) {
		return nil, badValue("features", "An encode has exactly one medium.")
	}
	if ids[0] != bos || images[0].offset != 1 || images[0].length != len(ids)-1 {
		return nil, badValue("token_ids", "The tokens of an encode are the first of the prompt and those of the placeholder.")
	}
	return newPrompt(ids, nil, images), nil
}
