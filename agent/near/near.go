// Package near finds the known name that somebody has probably meant.
//
// Its functions are [Name] and [Hint]. What is as far as half of the name, or more than three
// letters, is not near.
package near

import (
	"fmt"
	"strings"
)

// Name returns which of the known names was probably meant by name, or "" if none is near. Case
// does not matter.
func Name(name string, known []string) string {
	best, least := "", min(len(name)/2, 3)
	for _, k := range known {
		d := distance(strings.ToLower(name), strings.ToLower(k))
		if d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// Hint returns `; did you mean "x"?` for the known name that was probably meant by name, or "" if
// none is near.
func Hint(name string, known []string) string {
	if k := Name(name, known); k != "" {
		return fmt.Sprintf("; did you mean %q?", k)
	}
	return ""
}

// distance returns the Levenshtein distance of a and b in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
