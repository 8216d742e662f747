package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync"
	"time"
)

// peakMemory measures how much a process takes at most, of what it says that its
// requests hold.
func (b *bench) peakMemory(ctx context.Context) error {
	const name = "peak memory, 8 requests of four 5 MB images"
	b.note("%s", name)
	var charged, peak []float64
	for range b.heldTurns {
		c, p, err := b.peakOnce(ctx)
		if err != nil {
			return err
		}
		charged, peak = append(charged, c/(1<<20)), append(peak, p/(1<<20))
	}
	r := ratio(name+", of the bytes in flight", "MB", charged, peak, 3)
	r.Beside = "charged"
	b.rows = append(b.rows, r)
	return nil
}

// peakOnce returns how many bytes were charged at most, and the most memory that
// a fresh process took.
func (b *bench) peakOnce(ctx context.Context) (charged, peak float64, err error) {
	s, stop, err := b.stage(ctx, 0, false)
	if err != nil {
		return 0, 0, err
	}
	defer stop()
	watched, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	var failure error
	watching.Go(func() { charged, failure = mostCharged(watched, s.coordinator.admin) })
	report, err := measure(ctx, s.coordinator, heavy, 8, b.effort.peak, time.Minute)
	cancel()
	watching.Wait()
	if err := errors.Join(err, failure); err != nil {
		return 0, 0, err
	}
	return charged, float64(report.Process.PeakRSS), nil
}

// mostCharged watches the bytes in flight until ctx ends, and returns the most
// that it has seen.
func mostCharged(ctx context.Context, admin string) (most float64, err error) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		text, err := get(ctx, admin+"/metrics")
		if ctx.Err() != nil {
			return most, nil
		}
		if err != nil {
			return 0, err
		}
		value, err := gauge(text, "llm_d_coordinator_inflight_bytes")
		if err != nil {
			return 0, err
		}
		most = max(most, value)
		select {
		case <-again.C:
		case <-ctx.Done():
			return most, nil
		}
	}
}

// gauge returns a gauge without labels from Prometheus' text format.
func gauge(text []byte, name string) (float64, error) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if value, ok := bytes.CutPrefix(lines.Bytes(), []byte(name+" ")); ok {
			return strconv.ParseFloat(string(value), 64)
		}
	}
	return 0, errors.New("no metric " + name)
}
