package burst

import (
	"fmt"
	"net/http"
	"strings"
	"time"
)

// The picture's measures, in its own units.
const (
	plotLeft, plotWidth = 172, 664
	pictureWidth        = 860
	halfTop, halfHeight = 84, 188
	curveHeight         = 72
	tickHeight          = 18
)

const burstStyle = `<style>
svg{--ink:#1f2328;--soft:#57606a;--line:#d0d7de;--paper:#fff;--yes:#2f6fde;--no:#bc4c00;--area:#cfe0fb;--shut:#fdeadd}
@media (prefers-color-scheme:dark){svg{--ink:#e6edf3;--soft:#9ea7b1;--line:#3d444d;--paper:#0d1117;--yes:#6ea8ff;--no:#ff9a5c;--area:#1d3a66;--shut:#3b2416}}
text{font:12px system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;fill:var(--soft)}
.t{font-size:16px;font-weight:600;fill:var(--ink)}
.h{font-size:13px;font-weight:600;fill:var(--ink)}
.w{font-weight:600;fill:var(--no)}
.y{fill:var(--yes)}
.n{fill:var(--paper);stroke:var(--no)}
.c{fill:var(--area)}
.s{fill:var(--shut)}
.l{stroke:var(--line)}
.r{fill:none;stroke:var(--soft);stroke-dasharray:3 3}
</style>
`

// draw shows both histories over one axis of time.
func draw(one, stacked history) string {
	var b strings.Builder
	height := halfTop + 2*halfHeight + 22
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n",
		pictureWidth, height, pictureWidth, height)
	fmt.Fprintf(&b, "<title>A burst of %d logins. In one decision, denied logins use up nothing; behind one another, limiters lock out the whole address.</title>\n%s", tries, burstStyle)
	fmt.Fprintf(&b, `<rect x=".5" y=".5" width="%d" height="%d" rx="8" fill="var(--paper)" stroke="var(--line)"/>`+"\n", pictureWidth-1, height-1)
	fmt.Fprintf(&b, `<text x="20" y="30" class="t">A script tries %d logins in %.0f s, from an address where people read pages</text>`+"\n", tries, (tries * tryEvery).Seconds())
	fmt.Fprintf(&b, `<text x="20" y="50">%d logins and %d requests a minute for each address</text>`+"\n", perLogin, perAddress)
	b.WriteString(`<g transform="translate(704 50)"><path class="y" d="M0-9h4v12h-4z"/><text x="10" y="1">admitted</text><path class="n" d="M80.5-8.5h3v11h-3z"/><text x="91" y="1">denied</text></g>` + "\n")
	half{&b, halfTop, one}.draw("One decision over both limits: a denied login is charged by neither")
	half{&b, halfTop + halfHeight, stacked}.draw("A limiter behind another: a denied login has been charged by the first")
	for at := time.Duration(0); at <= burstEnds; at += 15 * time.Second {
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="middle">%.0f s</text>`+"\n", across(at), height-12, at.Seconds())
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// across is where a time is, in whole units.
func across(at time.Duration) int { return plotLeft + int(at*plotWidth/burstEnds) }

// A half of the picture is one history.
type half struct {
	b   *strings.Builder
	top int
	history
}

func (h half) draw(title string) {
	logins, views, base := h.top+30, h.top+60, h.top+90+curveHeight
	fmt.Fprintf(h.b, `<path class="l" d="M20 %d.5h%d"/><text x="20" y="%d" class="h">%s</text>`+"\n", h.top-10, pictureWidth-40, h.top+12, title)
	h.shut(base)
	for i, name := range []string{"logins", "pages"} {
		fmt.Fprintf(h.b, `<text x="20" y="%d">%s</text>`, []int{logins, views}[i]+13, name)
	}
	fmt.Fprintf(h.b, `<text x="20" y="%d">left for the address,</text><text x="20" y="%d">of %d a minute</text>`+"\n", base-curveHeight+14, base-curveHeight+30, perAddress)
	h.ticks("POST /login", logins)
	h.ticks("GET /", views)
	h.curve(base)
	if h.retried.status == http.StatusOK {
		from, to, y := across(h.last.at)+8, across(h.retried.at)-4, logins+tickHeight/2
		fmt.Fprintf(h.b, `<path class="r" d="M%d %d.5H%d"/><text x="%d" y="%d" text-anchor="middle">Retry-After: %.0f, and then it is admitted</text>`+"\n",
			from, y, to, (from+to)/2, y-5, h.last.wait.Seconds())
	}
}

// ticks draws an upright stroke for each request.
func (h half) ticks(request string, top int) {
	var admitted, denied strings.Builder
	for _, a := range h.attempts {
		switch {
		case a.request != request:
		case a.status == http.StatusOK:
			fmt.Fprintf(&admitted, "M%d %dh3v%dh-3z", across(a.at)-1, top, tickHeight)
		default:
			fmt.Fprintf(&denied, "M%d.5 %d.5h2v%dh-2z", across(a.at)-1, top, tickHeight-1)
		}
	}
	fmt.Fprintf(h.b, `<path class="y" d="%s"/><path class="n" d="%s"/>`+"\n", &admitted, &denied)
}

// curve draws what the address has left.
func (h half) curve(base int) {
	var area strings.Builder
	fmt.Fprintf(&area, "M%d %d", plotLeft, base)
	for i, left := range h.left {
		fmt.Fprintf(&area, "H%dV%d", across(time.Duration(i)*tryEvery), base-int(left)*curveHeight/perAddress)
	}
	fmt.Fprintf(h.b, `<path class="c" d="%sV%dz"/><path class="l" d="M%d %d.5h%d"/>`+"\n", &area, base, plotLeft, base, plotWidth)
}

// shut marks the time in which the address is denied everything.
func (h half) shut(base int) {
	var first, last attempt
	for _, a := range h.attempts {
		if a.request == "GET /" && a.status != http.StatusOK {
			if first.status == 0 {
				first = a
			}
			last = a
		}
	}
	if first.status == 0 {
		return
	}
	from, to := across(first.at)-4, across(last.at+viewEvery)-4
	fmt.Fprintf(h.b, `<rect class="s" x="%d" y="%d" width="%d" height="%d"/>`, from, h.top+56, to-from, base-h.top-56)
	fmt.Fprintf(h.b, `<text class="w" x="%d" y="%d" text-anchor="middle">no page for %.0f s, for anybody at this address</text>`+"\n",
		(from+to)/2, base-curveHeight/2+4, (last.at - first.at + viewEvery).Seconds())
}
