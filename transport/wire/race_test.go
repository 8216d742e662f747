//go:build race

package wire_test

// underRace: the race detector makes what has no goroutines slow for nothing.
const underRace = true
