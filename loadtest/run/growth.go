package main

import (
	"context"
	"fmt"

	"github.com/llm-coordinator/coordinator/loadtest/load"
)

// growth is a line of the table that tells how costs grow. There is no bound.
type growth struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Floor float64 `json:"floor"`
	Ours  float64 `json:"coordinator"`
}

// growing measures how costs grow with what is asked.
func (b *bench) growing(ctx context.Context) error {
	if err := b.largerRequests(ctx); err != nil {
		return err
	}
	for _, n := range b.effort.growth {
		floor, ours, err := b.held(ctx, n)
		if err != nil {
			return err
		}
		b.lines = append(b.lines,
			growth{fmt.Sprintf("%d streams, a chunk", n), "µs", floor.CPUPerEvent, ours.CPUPerEvent},
			growth{fmt.Sprintf("%d streams, memory of each", n), "KB", floor.BytesPerStream / 1024, ours.BytesPerStream / 1024})
	}
	return nil
}

func (b *bench) largerRequests(ctx context.Context) error {
	s, stop, err := b.stage(ctx, 0, false)
	if err != nil {
		return err
	}
	defer stop()
	measured := func(name string, r load.Request, clients int) error {
		b.note("%s", name)
		var cost [2]float64
		for i, t := range []*server{s.floor, s.coordinator} {
			if _, err := measure(ctx, t, r, clients, b.effort.count, b.warm); err != nil {
				return err
			}
			report, err := measure(ctx, t, r, clients, b.effort.count, b.turn)
			if err != nil {
				return err
			}
			cost[i] = cpu(report)
		}
		b.lines = append(b.lines, growth{name, "µs", cost[0], cost[1]})
		return nil
	}
	for _, n := range []int{1, 4, 16} {
		r := oneImage
		r.Images, r.ImageBytes = n, 100*kb
		if err := measured(fmt.Sprintf("images of 100 KB: %d, a request", n), r, 4); err != nil {
			return err
		}
	}
	for _, n := range []int{1, 32, 1024} {
		r := text
		r.PromptBytes = n << 10
		if err := measured(fmt.Sprintf("prompt of %d KB, a request", n), r, 8); err != nil {
			return err
		}
	}
	return nil
}
