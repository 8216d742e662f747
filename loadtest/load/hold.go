package load

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// HoldOptions say how streams are held open. Streams and both times have to be
// given.
type HoldOptions struct {
	Target
	// Request is what opens a stream; Stream is set. The server must take longer
	// over the answer than the streams are held.
	Request Request `json:"request"`
	// Streams is how many there are.
	Streams int `json:"streams"`
	// Opening is how many are opened at a time. Default 64.
	Opening int `json:"opening"`
	// OpenWithin is how long opening them all may take, beyond which Hold fails.
	OpenWithin time.Duration `json:"open_within_ns"`
	// For is how long they are held once they are open.
	For time.Duration `json:"for_ns"`
	// Opened, unless nil, is called once they are.
	Opened func() `json:"-"`
}

// HoldReport is what Hold has measured. Names in JSON are as stable as those of
// [Report].
type HoldReport struct {
	Settings HoldOptions `json:"settings"`
	// Open is how many streams had their first event, Missing the others, Broken
	// those of the open ones that ended by themselves.
	Open    int64 `json:"open"`
	Missing int64 `json:"missing"`
	Broken  int64 `json:"broken"`
	// Events are those of all streams while they were held, for HeldSeconds.
	Events      int64   `json:"events"`
	HeldSeconds float64 `json:"held_seconds"`
	// Process is of the time while the streams were held, but for RSSBefore,
	// which is from before they were opened.
	Process *Process `json:"process,omitempty"`
	// CPUPerEvent are microseconds of user and system time of the process.
	CPUPerEvent float64 `json:"cpu_us_per_event"`
	// BytesPerStream is by how much the process's memory grew.
	BytesPerStream float64 `json:"bytes_per_stream"`
}

func (o HoldOptions) withDefaults() HoldOptions {
	o.Request = o.Request.withDefaults()
	o.Request.Stream = true
	if o.Opening == 0 {
		o.Opening = 64
	}
	return o
}

func (o HoldOptions) validate() error {
	if err := o.Target.validate(); err != nil {
		return err
	}
	if o.Streams <= 0 || o.Opening < 0 || o.OpenWithin <= 0 || o.For <= 0 {
		return errors.New("load: want a number of streams, how long opening them may take, and how long they are held")
	}
	return o.Request.validate()
}

// Hold opens streams, holds them, and reports what they cost. It returns when
// nothing of it is left; its errors are those of Run, and that of ctx.
func Hold(ctx context.Context, o HoldOptions) (*HoldReport, error) {
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	transport, closeIdle := o.Target.transport(o.Streams)
	defer closeIdle()
	h := &holding{options: o, bodies: newBodies(o.Request), transport: transport, opening: make(chan struct{}, o.Opening)}
	return h.hold(ctx)
}

// holding is what the streams of a Hold share.
type holding struct {
	options   HoldOptions
	bodies    *bodies
	transport http.RoundTripper
	opening   chan struct{} // has an element for each that is being opened
	tried     sync.WaitGroup
	ended     sync.WaitGroup
	open      atomic.Int64
	broken    atomic.Int64
	events    atomic.Int64
}

func (h *holding) hold(ctx context.Context) (*HoldReport, error) {
	o := h.options
	idle, err := o.sample()
	if err != nil {
		return nil, err
	}
	held, cancel := context.WithCancel(ctx)
	defer h.ended.Wait()
	defer cancel()
	slow := time.AfterFunc(o.OpenWithin, cancel)
	for range o.Streams {
		h.tried.Add(1)
		h.ended.Go(func() { h.stream(held) })
	}
	h.tried.Wait()
	if !slow.Stop() && ctx.Err() == nil {
		return nil, errors.New("load: opening the streams took too long")
	}
	if o.Opened != nil {
		o.Opened()
	}
	before, err := o.sample()
	if err != nil {
		return nil, err
	}
	began, events := time.Now(), h.events.Load()
	timer := time.NewTimer(o.For)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r := &HoldReport{Settings: o, Open: h.open.Load(), Broken: h.broken.Load(),
		Events: h.events.Load() - events, HeldSeconds: time.Since(began).Seconds()}
	after, err := o.sample()
	if err != nil {
		return nil, err
	}
	r.Missing = int64(o.Streams) - r.Open
	r.Settings.Target.Transport, r.Settings.Header, r.Settings.Opened = nil, nil, nil
	r.spent(idle, before, after)
	return r, nil
}

func (r *HoldReport) spent(idle, before, after *Sample) {
	if after == nil {
		return
	}
	r.Process = usage(*before, *after, 0, r.Settings.PID)
	r.Process.RSSBefore = idle.RSS
	if r.Events > 0 {
		r.CPUPerEvent = float64((after.CPU() - before.CPU()).Microseconds()) / float64(r.Events)
	}
	if r.Open > 0 {
		r.BytesPerStream = float64(after.RSS-idle.RSS) / float64(r.Open)
	}
}

// stream opens a stream and reads it until ctx ends.
func (h *holding) stream(ctx context.Context) {
	opened := sync.OnceFunc(func() {
		<-h.opening
		h.tried.Done()
	})
	defer opened()
	h.opening <- struct{}{}
	c, err := newClient(h.options.Target, h.options.Request, h.bodies, h.transport)
	if err != nil || ctx.Err() != nil {
		return
	}
	c.body.renew()
	answer, err := h.transport.RoundTrip(c.request.WithContext(ctx))
	if err != nil {
		return
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return
	}
	for first := true; ; {
		n, err := answer.Body.Read(c.buf[:])
		ended := c.events.write(c.buf[:n])
		h.events.Add(ended)
		if ended > 0 && first {
			first = false
			h.open.Add(1)
			opened()
		}
		if err != nil {
			if !first && ctx.Err() == nil {
				h.broken.Add(1)
			}
			return
		}
	}
}
