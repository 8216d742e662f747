//go:build !race

package wire_test

const underRace = false
