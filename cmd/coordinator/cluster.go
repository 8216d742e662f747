package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/llm-coordinator/coordinator/loadtest/cluster"
)

// simulate runs the simulated cluster alone.
func simulate(ctx context.Context, args, _ []string, stdout, stderr io.Writer) error {
	fs := flags("cluster", stderr)
	var o cluster.Options
	addr := fs.String("addr", "127.0.0.1:9100", "`address` of the gateway and render service")
	fs.StringVar(&o.Model, "model", cluster.DefaultModel, "`name` of the model that is served")
	fs.StringVar(&o.KV, "kv", cluster.KVNixl, "kv `connector` of the workers: kv-nixl, kv-shared-storage, kv-sglang, kv-lmcache, kv-mooncake, kv-moriio or kv-offloading")
	fs.StringVar(&o.WorkerHeader, "worker-header", "X-Prefill-Worker", "`name` of the header by which the gateway names a prefill worker, where others are told of it")
	fs.StringVar(&o.EC, "ec", cluster.ECNixl, "ec `connector` of the workers: ec-nixl, ec-shared-storage or ec-mooncake")
	fs.StringVar(&o.GenerateParams, "generate-params", cluster.GenerateParamsChecked,
		"where workers read transfer params on the generate `route`: old, new or checked (new, and both places must agree)")
	fs.BoolVar(&o.CacheDecodes, "cache-decodes", false, "a prompt that was decoded is cached: a conditional decode of it is served")
	fs.IntVar(&o.TensorBytes, "tensor-bytes", 64, "size of an image's rendered tensor")
	fs.BoolVar(&o.Metadata, "metadata", false, "render answers mm_metadata: tensors without their pixels")
	fs.DurationVar(&o.EncodeDelay, "encode-delay", 0, "time an encode takes")
	fs.StringVar(&o.ProfileHeader, "profile-header", "EPP-Profile", "`name` of the header that chooses the workers")
	fs.DurationVar(&o.TokenInterval, "token-interval", 20*time.Millisecond, "pause between two tokens")
	fs.DurationVar(&o.RenderDelay, "render-delay", 0, "time a render takes")
	fs.DurationVar(&o.PrefillDelay, "prefill-delay", 0, "time a prefill takes")
	fs.DurationVar(&o.Lease, "lease", 30*time.Second, "time a prefill worker keeps KV that nobody fetches")
	fs.IntVar(&o.MaxRecorded, "max-recorded", 10_000, "legs that are remembered")
	fs.BoolVar(&o.OmitBodies, "omit-bodies", false, "do not remember bodies: for load tests")
	if err := parse(fs, args); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	c := cluster.New(o)
	defer c.Close()
	if err := c.Start(*addr); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "simulated cluster on %s, model %s, %s; state: %s/_cluster/state\n", c.URL(), o.Model, o.KV, c.URL())
	<-ctx.Done()
	return nil
}
