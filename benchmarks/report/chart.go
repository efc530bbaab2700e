package main

import (
	"fmt"
	"strings"
)

// A chart's measures, in its own units.
const (
	chartWidth = 760
	barLeft    = 110
	barWidth   = 430 // of the fastest
	barHeight  = 16
	barStep    = 22
	panelHead  = 34
	chartHead  = 64
	charted    = 128 // callers
)

// style is for light pages and dark ones: the picture has no ground of its own.
const style = `<style>
text{font:13px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:#57606a}
.t{font-size:16px;font-weight:600}.t,.n{fill:#1f2328}.n{font-weight:600}
.a{fill:#2f6fde}.p{fill:#b6bfc9}
@media (prefers-color-scheme:dark){text{fill:#9ea7b3}.t,.n{fill:#e6edf3}.a{fill:#4c8dff}.p{fill:#57606a}}
</style>
`

// draw shows the limiters beside each other, a panel for each scene that is drawn.
func draw(m measured) string {
	var panels strings.Builder
	top := chartHead
	for _, s := range scenes {
		if s.drawn {
			top = panel(&panels, m, s, top)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		chartWidth, top, chartWidth, top)
	fmt.Fprintf(&b, "<title>Requests a second with %d callers</title>\n%s", charted, style)
	fmt.Fprintf(&b, `<text x="0" y="22" class="t">Requests a second with %d callers</text>`+"\n", charted)
	b.WriteString(`<text x="0" y="44">in brackets: ours, as a multiple of the peer</text>` + "\n")
	b.WriteString(panels.String())
	b.WriteString("</svg>\n")
	return b.String()
}

// panel draws a scene, if it was measured, and returns where the next one begins.
func panel(b *strings.Builder, m measured, s scene, top int) int {
	ours := s.benchmark(s.ours, charted)
	if _, ok := m.rate(ours); !ok {
		return top
	}
	fastest := 0.0
	names := append([]string{s.ours}, s.peers...)
	for _, name := range names {
		rate, _ := m.rate(s.benchmark(name, charted))
		fastest = max(fastest, rate)
	}
	fmt.Fprintf(b, `<text x="0" y="%d" class="n">%s</text>`+"\n", top+18, s.title)
	top += panelHead - 6
	for _, name := range names {
		of := s.benchmark(name, charted)
		rate, ok := m.rate(of)
		if !ok {
			continue
		}
		class, label, value := "p", name, fmt.Sprintf("%s (%s ×)", grouped(rate), short(m.times(ours, of)))
		if name == s.ours {
			class, label, value = "a", "ours", grouped(rate)
		}
		width := max(rate/fastest*barWidth, 1.5)
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect class="%s" x="%d" y="%d" width="%.4g" height="%d" rx="2"/><text x="%.4g" y="%d">%s</text>`+"\n",
			barLeft-8, top+13, label, class, barLeft, top, width, barHeight, barLeft+width+8, top+13, value+m.failures(of))
		top += barStep
	}
	return top + 10
}
