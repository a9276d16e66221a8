// Package suggest finds the known name that somebody probably meant by a misspelled one.
//
// Its functions are [Name] and [Hint]. A name that differs in half of its letters, or in more than
// three, is never suggested.
package suggest

import (
	"fmt"
	"strings"
)

// Name returns the known name that is closest to name, or "" if none is close. Case does not
// matter.
func Name(name string, known []string) string {
	best, least := "", min(len(name)/2, 3)
	name = strings.ToLower(name)
	for _, k := range known {
		lower := strings.ToLower(k)
		// A person may write a name of any length, and comparing takes the product of both lengths.
		if len(name)-len(lower) > least || len(lower)-len(name) > least {
			continue
		}
		d := distance(name, lower)
		if d <= least && (best == "" || d < least) {
			best, least = k, d
		}
	}
	return best
}

// Hint returns `; did you mean "x"?` for the known name that is closest to name, or "" if none is
// close.
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
