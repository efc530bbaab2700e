package rules

import (
	"slices"
	"strings"
	"unicode"
)

const (
	nearby   = 3       // lines that are shown around a change
	maxCells = 1 << 24 // pairs of lines that are compared
)

// visible replaces what moves the text around it in a terminal.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\t' {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

func lines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

// difference returns the lines that were removed (-) and added (+), and some around them.
func difference(was, now string) string {
	a, b := lines(was), lines(now)
	var all []string
	add := func(sign string, lines []string) {
		for _, line := range lines {
			all = append(all, sign+visible(line))
		}
	}
	if len(a)*len(b) <= maxCells {
		// common[i][j] is how many lines a[i:] and b[j:] have in common.
		common := make([][]int32, len(a)+1)
		for i := range common {
			common[i] = make([]int32, len(b)+1)
		}
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
					common[i][j] = common[i+1][j+1] + 1
				}
			}
		}
		for len(a) > 0 && len(b) > 0 {
			switch i, j := len(common)-1-len(a), len(common[0])-1-len(b); {
			case a[0] == b[0]:
				add(" ", a[:1])
				a, b = a[1:], b[1:]
			case common[i+1][j] >= common[i][j+1]:
				add("-", a[:1])
				a = a[1:]
			default:
				add("+", b[:1])
				b = b[1:]
			}
		}
	}
	add("-", a)
	add("+", b)
	return around(all)
}

// around returns the lines that are changes, and those around them.
func around(lines []string) string {
	var b strings.Builder
	shown := false
	for i, line := range lines {
		before, near := shown, lines[max(i-nearby, 0):min(i+nearby+1, len(lines))]
		if shown = slices.ContainsFunc(near, func(l string) bool { return l[0] != ' ' }); shown {
			b.WriteString(line + "\n")
		} else if before {
			b.WriteString("…\n")
		}
	}
	return b.String()
}
