package main

import (
	"log/slog"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strings"
)

// limitMemory has the garbage collector work harder before the process takes
// much more than requests may hold and images are kept, unless the operator has
// said a limit: those bytes, an eighth more for what they are made of, and what a
// process without requests needs.
func limitMemory(inflight, kept int64, environ []string, log *slog.Logger) {
	if isSet("GOMEMLIMIT", environ) {
		return
	}
	const idle = 96 << 20
	limit := inflight + kept
	limit += limit/8 + idle
	debug.SetMemoryLimit(limit)
	log.Info("memory limit set", "bytes", limit, "by", "actors.max_inflight_size")
}

func isSet(name string, environ []string) bool {
	return slices.ContainsFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
}

// room is what the heap takes before it is collected, however little of it is
// alive. It is bought back: with 55 MB a text request took a tenth more CPU.
const room = 112 << 20

// paceCollector keeps the garbage collector from running all the time, unless
// the operator has said how often. By itself it runs when the heap has doubled: a
// coordinator whose requests are text lives in a few MB, and would collect them
// dozens of times a second. It is paced anew at the end of each cycle, by what is
// alive then. A heap of many streams grows by half only: what is dead of it lies
// for long, for a stream that waits makes no garbage that would have it collected.
func paceCollector(environ []string) {
	if isSet("GOGC", environ) {
		return
	}
	alive := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	type sentinel struct{ _ *byte } // found dead by each cycle, and revived
	var cycle func(*sentinel)
	cycle = func(s *sentinel) {
		metrics.Read(alive)
		debug.SetGCPercent(gcPercent(alive[0].Value.Uint64(), alive[1].Value.Uint64()+alive[2].Value.Uint64()))
		runtime.SetFinalizer(s, cycle)
	}
	runtime.SetFinalizer(&sentinel{}, cycle)
}

// gcPercent returns by how much a heap may grow before the next cycle: in percent of
// what is alive of it and of what else the collector has to look through, as the
// runtime counts.
func gcPercent(live, roots uint64) int {
	const least = 50
	const most = room / (4 << 20) * 100 // the runtime's least heap is 4 MB of these percent
	return int(max(least, min(most, (room-min(live, room))*100/max(live+roots, 1))))
}
