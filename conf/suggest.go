package conf

import (
	"fmt"
	"strings"
)

// suggest returns " (did you mean …?)" with the known name closest to a misspelt one, or nothing if none is close.
// Upper and lower case count as the same here, since keys do not.
func suggest(name string, known []field) string {
	const farthest = 2
	best, closest := "", farthest+1
	for _, f := range known {
		// A name of two letters would be close to any other such.
		d := distance(strings.ToLower(name), f.name)
		if d < closest && d < len(f.name)-1 {
			best, closest = f.name, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", best)
}

// distance counts the letters to insert, drop or replace to get from a to b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
