package accuracy

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/internal/simulate"
)

// A row of a picture is one column's outcomes: bars of what came, and the curve
// of what was served in the last period.
type row struct {
	b        *strings.Builder
	top      int
	shape    shape
	outcomes []simulate.Outcome
}

// bars draws what was admitted and, on top of it, what was denied. A full bar
// is most requests.
func (r row) bars(most int) {
	var admitted, denied [bins]int
	for i, q := range r.shape.requests {
		if bin := r.shape.bin(q); bin >= 0 && r.outcomes[i].Allowed {
			admitted[bin]++
		} else if bin >= 0 {
			denied[bin]++
		}
	}
	base := float64(r.top + barsHeight)
	scale := float64(barsHeight) / float64(most)
	width := float64(plotWidth) / float64(bins)
	var filled, hollow strings.Builder
	for i := range bins {
		x, a := plotLeft+float64(i)*width, 0.0
		if admitted[i] > 0 {
			a = max(float64(admitted[i])*scale, leastBar)
			fmt.Fprintf(&filled, "M%.4g %.4gh%.3gv%.3gh-%.3gz", x+1, base, width-2, -a, width-2)
		}
		if denied[i] > 0 {
			d := max(float64(denied[i])*scale, leastBar)
			fmt.Fprintf(&hollow, "M%.4g %.4gh%.3gv%.3gh-%.3gz", x+1.5, base-a-.5, width-3, 1-d, width-3)
		}
	}
	fmt.Fprintf(r.b, `<path class="a" d="%s"/><path class="d" d="%s"/>`+"\n", &filled, &hollow)
}

// curve draws the units served in the last period, and returns the most.
func (r row) curve() int64 {
	base := float64(r.top + barsHeight + 6 + curveHeight)
	const scale = curveHeight / (2.0 * rate)
	units := r.units()
	within, beyond := make([]float64, len(units)), make([]float64, len(units))
	var most int64
	for i, u := range units {
		within[i], beyond[i] = scale*float64(min(u, rate)), scale*float64(max(u-rate, 0))
		most = max(most, u)
	}
	limit := base - scale*rate
	fmt.Fprintf(r.b, `<path class="c" d="%s"/><path class="x" d="%s"/>`, area(base, within), area(limit, beyond))
	fmt.Fprintf(r.b, `<path class="b" d="M%d %.4gh%d"/><path class="l" d="M%d %.4gh%d"/>`+"\n", plotLeft, base, plotWidth, plotLeft, limit, plotWidth)
	return most
}

// units is the most units served in the last period, for each column of the
// plot.
func (r row) units() []int64 {
	log := new(simulate.Log)
	for i, q := range r.shape.requests {
		if r.outcomes[i].Allowed {
			log.Add(r.outcomes[i].Served, q.Cost)
		}
	}
	at := func(column int) time.Duration {
		return r.shape.from + pictureLength*time.Duration(column*columnWidth)/plotWidth
	}
	units := make([]int64, plotWidth/columnWidth)
	for i := range units {
		units[i] = log.Most(at(i), at(i+1), period)
	}
	return units
}

// area is the path of a surface on a base line.
func area(base float64, heights []float64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "M%d %.4g", plotLeft, base)
	last := 0.0
	for i, h := range heights {
		if h != last {
			fmt.Fprintf(&b, "H%dV%.4g", plotLeft+columnWidth*i, base-h)
			last = h
		}
	}
	fmt.Fprintf(&b, "H%dV%.4gz", plotLeft+plotWidth, base)
	return b.String()
}

func (r row) label(c column, most int64) {
	line := func(y int, class, text string) {
		fmt.Fprintf(r.b, `<text%s x="20" y="%d">%s</text>`, class, r.top+y, text)
	}
	line(14, ` class="n"`, c.title)
	line(30, "", c.detail)
	if delay := r.longestDelay(); delay > 0 {
		line(46, "", "waits of up to "+seconds(delay))
	}
	class := ""
	if most > rate {
		class = ` class="o"`
	}
	line(66, class, fmt.Sprintf("up to %d in a minute", most))
	r.b.WriteByte('\n')
}

func (r row) longestDelay() (longest time.Duration) {
	for i, q := range r.shape.requests {
		if r.outcomes[i].Allowed && r.shape.bin(q) >= 0 {
			longest = max(longest, r.outcomes[i].Served-q.At)
		}
	}
	return longest
}
