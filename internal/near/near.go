// Package near finds the word that a misspelt one is meant to be, for errors.
package near

import "strings"

// Word returns the known word that a word is nearly: with at most two slips, and
// fewer in short words; "" if there is none. Case, '_', '-' and spaces are no slips.
func Word(word string, known []string) (best string) {
	least := 3
	for _, k := range known {
		if d := distance(plain(word), plain(k)); d < least && 3*d <= len(k) {
			best, least = k, d
		}
	}
	return best
}

// plain is a word without what differs by style: chargeOn, charge-on and charge_on.
func plain(word string) string { return style.Replace(strings.ToLower(word)) }

var style = strings.NewReplacer("_", "", "-", "", " ", "")

// distance counts the insertions, deletions, substitutions and swaps of neighbours
// that make one word of another. Words that are too long to be a slip are far apart.
func distance(a, b string) int {
	if max(len(a), len(b)) > 64 {
		return 64
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before, last, row = last, row, before
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
