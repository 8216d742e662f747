package broker

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// send makes one attempt, and has its answer delivered or another attempt made.
func (b *Broker) send(m *message) {
	status, body, after, err := b.attempt(m)
	answered := func(s *State) { s.Answered++ }
	switch {
	case b.ctx.Err() != nil:
		b.aside(m, m.internal.Retries, time.Now(), func(s *State) { s.Back++ })
	case err == nil && !worthAnother(status):
		b.deliver(m, &result{ID: m.data.ID, Status: status, Payload: string(body)}, answered)
	case errors.Is(err, context.DeadlineExceeded):
		b.deliver(m, m.failure(deadlineExceeded, "the deadline passed, or the attempt took too long"), func(s *State) { s.Expired++ })
	case err != nil && status == 0:
		b.deliver(m, m.failure(inferenceError, "the gateway cannot be reached"), func(s *State) { s.Failed++ })
	case err == nil && !m.deadline().After(time.Now()):
		b.deliver(m, &result{ID: m.data.ID, Status: status, Payload: string(body)}, answered)
	default:
		b.aside(m, m.internal.Retries+1, time.Now().Add(b.pause(m, after)), func(s *State) { s.Retried++ })
	}
}

// worthAnother reports whether an answer of that status is not the last word.
func worthAnother(status int) bool { return status == http.StatusTooManyRequests || status >= 500 }

// attempt sends a request. A status with an error is an answer that broke off. after
// is the answer's Retry-After.
func (b *Broker) attempt(m *message) (status int, body []byte, after time.Duration, err error) {
	ctx, cancel := context.WithDeadline(b.ctx, earlier(m.deadline(), time.Now().Add(b.options.RequestTimeout)))
	defer cancel()
	endpoint := m.data.Endpoint
	if endpoint == "" {
		endpoint = "/v1/completions"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(b.options.Gateway, "/")+endpoint, bytes.NewReader(m.data.Payload))
	if err != nil {
		return 0, nil, 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range m.data.Headers {
		r.Header.Set(name, value)
	}
	if tenant := m.data.Metadata[b.options.FairnessAttribute]; tenant != "" {
		r.Header.Set(b.options.FairnessHeader, tenant[:min(256, len(tenant))])
	}
	answer, err := b.http.Do(r)
	if err != nil {
		return 0, nil, 0, err
	}
	defer answer.Body.Close()
	if s, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		after = time.Duration(s) * time.Second
	}
	body, err = io.ReadAll(answer.Body)
	return answer.StatusCode, body, after, err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// pause is how long a request waits for its next attempt: what the answer asks for, if
// that is more, but no more than about half of the time that is left.
func (b *Broker) pause(m *message, after time.Duration) time.Duration {
	left := time.Until(m.deadline())
	longest := min(b.options.Backoff<<min(m.internal.Retries, 10), time.Minute, left)
	own := longest/2 + time.Duration(rand.Float64()*float64(longest/2))
	if after <= own {
		return own
	}
	return time.Duration(float64(min(after, left/2)) * (1 + rand.Float64()/4))
}
