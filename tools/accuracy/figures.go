package accuracy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// figures are what a document shows, by the names that mark their places in it.
type figures map[string]string

// A result is a shape with the score of each column.
type result struct {
	shape  shape
	scores []score
}

// add adds every figure of the results, and the tables of them.
func (f figures) add(results []result) {
	for _, r := range results {
		for i, s := range r.scores {
			name := r.shape.slug + "/" + columns[i].slug + "/"
			f[name+"most"] = thousands(int(s.Worst))
			f[name+"false-admits"] = percent(s.falseAdmitShare()) + " %"
			f[name+"false-denials"] = percent(s.falseDenialShare()) + " %"
			f[name+"total"] = total(s, r.scores[exact]) + " %"
			f[name+"mean-delay"] = seconds(s.meanDelay())
			f[name+"max-delay"] = seconds(s.MaxDelay)
		}
	}
	f["traffic"] = trafficTable(results)
	f["worst"] = scoreTable(results, func(s, _ score) string {
		return signed("+", s.overshoot()) + " / " + signed("−", s.undershoot())
	})
	f["errors"] = scoreTable(results, func(s, _ score) string {
		return percent(s.falseAdmitShare()) + " / " + percent(s.falseDenialShare())
	})
	f["totals"] = scoreTable(results, total)
}

// cloudflareTable puts sliding_window on many clients beside what Cloudflare's
// study found.
func cloudflareTable(v verdict, s score) string {
	return table{
		{"", "Cloudflare, 2017", "here, many clients"},
		{"requests", "400,000,000", thousands(v.requests)},
		{"clients", "270,000", thousands(v.clients)},
		{"clients over the limit", "", thousands(v.over)},
		{"limited, but not over the limit", "0", thousands(v.wronglyDenied)},
		{"over the limit, but never limited", "3", thousands(v.wronglyFree)},
		{"requests wrongly allowed or limited", "0.003 %", percent(100*float64(v.wrong)/float64(v.requests)) + " %"},
		{"the estimate is off by, on average", "6 %", percent(s.estimateError()) + " %"},
	}.String()
}

func trafficTable(results []result) string {
	t := table{{"traffic", "requests", ""}}
	for _, r := range results {
		t = append(t, []string{r.shape.title, thousands(len(r.shape.requests)), r.shape.about})
	}
	return t.String()
}

// scoreTable has a row for each shape and a column for each column.
func scoreTable(results []result, cell func(s, exact score) string) string {
	head := []string{"traffic"}
	for _, c := range columns {
		head = append(head, strings.TrimSuffix(c.title+"<br>"+c.detail, "<br>"))
	}
	t := table{head}
	for _, r := range results {
		row := []string{r.shape.title}
		for _, s := range r.scores {
			row = append(row, cell(s, r.scores[exact]))
		}
		t = append(t, row)
	}
	return t.String()
}

// total is what was served in all, beside what the exact limit serves.
func total(s, exact score) string {
	if s.Units < exact.Units {
		return signed("−", 100*float64(exact.Units-s.Units)/float64(exact.Units))
	}
	return signed("+", 100*float64(s.Units-exact.Units)/float64(exact.Units))
}

func signed(sign string, x float64) string {
	if x == 0 {
		return "0"
	}
	return sign + percent(x)
}

// percent has two digits that matter, or all before the point. Only zero is 0.
func percent(x float64) string {
	switch {
	case x == 0:
		return "0"
	case x < 0.1:
		return fmt.Sprintf("%.3f", x)
	case x < 1:
		return fmt.Sprintf("%.2f", x)
	case x < 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.0f", x)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// A table is rows, the first of them the head.
type table [][]string

// String is the table in Markdown: numbers to the right, and a column without a
// head to the left.
func (t table) String() string {
	var b strings.Builder
	for i, row := range t {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|---|")
			for _, head := range row[1:] {
				if head == "" {
					b.WriteString("---|")
				} else {
					b.WriteString("--:|")
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}
