package accuracy

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/internal/simulate"
)

// A picture's measures, in its own units.
const (
	plotLeft, plotWidth = 176, 660
	pictureWidth        = plotLeft + plotWidth + 24
	rowsTop, rowHeight  = 92, 92
	barsHeight          = 24
	leastBar            = 2.5
	curveHeight         = 50              // of twice the rate
	pictureLength       = 4 * time.Minute // a second is 2.75 units wide
	binLength           = 2 * time.Second
	bins                = int(pictureLength / binLength)
	columnWidth         = 2
)

const pictureStyle = `<style>
text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#57606a}
.t{font-size:16px;font-weight:600;fill:#1f2328}
.n{font:600 13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1f2328}
.o{fill:#bc4c00;font-weight:600}
.s{font-size:10px}
.a{fill:#2f6fde}
.d{fill:#fff;stroke:#9aa4af}
.c{fill:#cfe0fb}
.x{fill:#f2994a}
.l{stroke:#1f2328;stroke-dasharray:5 3}
.w{stroke:#c3cad2;stroke-dasharray:2 3}
.b{stroke:#c3cad2}
</style>
`

// draw shows a shape's traffic and what each column made of it.
func draw(s shape, outcomes [][]simulate.Outcome) string {
	var b strings.Builder
	height := rowsTop + rowHeight*len(columns) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		pictureWidth, height, pictureWidth, height)
	fmt.Fprintf(&b, "<title>%s: what each algorithm admits of it</title>\n%s", s.title, pictureStyle)
	fmt.Fprintf(&b, `<rect x=".5" y=".5" width="%d" height="%d" rx="8" fill="#fff" stroke="#d0d7de"/>`+"\n", pictureWidth-1, height-1)
	fmt.Fprintf(&b, `<text x="20" y="30" class="t">%s</text><text x="20" y="50">%s; the limit is %d per minute</text>`+"\n", s.title, s.about, rate)
	b.WriteString(legend)
	drawAxis(&b, s.from, height)
	most := mostInBin(s)
	for i, c := range columns {
		r := row{&b, rowsTop + rowHeight*i, s, outcomes[i]}
		r.bars(most)
		r.label(c, r.curve())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

const legend = `<g transform="translate(20 62)">
<rect class="a" width="10" height="10"/><text x="16" y="9">admitted</text>
<rect class="d" x="90.5" y=".5" width="9" height="9"/><text x="106" y="9">denied</text>
<rect class="c" x="168" width="18" height="10"/><text x="192" y="9">units served in the last minute</text>
<path class="l" d="M396 5h22"/><text x="424" y="9">the limit</text>
<rect class="x" x="496" width="18" height="10"/><text x="520" y="9">beyond it</text>
<path class="w" d="M600.5-1v12"/><text x="608" y="9">edge of a window</text>
</g>
`

// across is where a time is, in whole units.
func across(t time.Duration) int { return plotLeft + int(t*plotWidth/pictureLength) }

func drawAxis(b *strings.Builder, from time.Duration, height int) {
	for t := time.Duration(0); t <= pictureLength; t += period / 2 {
		x := across(t)
		if (from+t)%period == 0 {
			fmt.Fprintf(b, `<path class="w" d="M%d.5 %dV%d"/>`, x, rowsTop-4, height-28)
		}
		fmt.Fprintf(b, `<text class="s" x="%d" y="%d" text-anchor="middle">%d:%02d</text>`+"\n", x, height-14, int(t.Minutes()), int(t.Seconds())%60)
	}
}

// bin is which bar a request is in, -1 if none.
func (s shape) bin(q simulate.Request) int {
	if q.At < s.from || q.At >= s.from+pictureLength {
		return -1
	}
	return int((q.At - s.from) / binLength)
}

func mostInBin(s shape) int {
	var counts [bins]int
	for _, q := range s.requests {
		if i := s.bin(q); i >= 0 {
			counts[i]++
		}
	}
	most := 1
	for _, n := range counts {
		most = max(most, n)
	}
	return most
}
