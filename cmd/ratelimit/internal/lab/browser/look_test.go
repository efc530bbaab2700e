package browser

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
)

// Everything that the pages show, in each size and colour.
var pages = []shownPage{
	{"lab", "/"},
	{"poisson", "/?traffic=poisson&algorithms=fixed_window,sliding_window,sliding_log,token_bucket,leaky_bucket,gcra&load=1.2&burst=40"},
	{"in-flight", "/?traffic=poisson&algorithms=fixed_window,leaky_bucket,in_flight&load=3&takes=30&atOnce=40&rule=in_flight"},
	{"clients", "/?traffic=clients&load=3&clients=16&periods=6"},
	{"days", "/?traffic=bursty&rate=1000&period=1d&burst=500&periods=7&load=2&rule=leaky_bucket"},
	{"drawn", "/?traffic=drawn&drawn=0,0,9,24,30,22,4,0,0,0,60,60,3,0,0,8,8,8,8,8&burst=30"},
	{"mistake", "/?rate=0"},
	{"overload", "/overload"},
	{"overload-slow", "/overload?workers=64&load=1.1&critical=40&seconds=20"},
	{"overload-flood", "/overload?load=20&seconds=10"},
	{"replay", "/replay"},
	{"operators", operatorsPath},
	{"operators-client", operatorsPath + "?value=alice"},
	{"operators-banned", operatorsPath + "?rule=login&value=203.0.113.9"},
}

type shownPage struct{ name, path string }

// prepare brings a page into the state that is looked at.
func (page shownPage) prepare(p *tab) {
	switch page.name {
	case "mistake":
		p.forgive("400 (Bad Request)")
	case "clients": // in the middle of a run
		get[bool](p, `(time.value = 130, time.dispatchEvent(new Event('input')))`)
	case "operators", "operators-banned":
		get[bool](p, `(document.querySelectorAll('details').forEach((d) => d.open = true), true)`)
	}
}

// collisions are texts that overlap, leave the screen or are cut off.
const collisions = `(() => {
	const texts = [], found = [], seen = (e) => e.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !e.closest('.unseen, pre');
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const n = walker.currentNode, e = n.parentElement;
		if (!n.data.trim() || !seen(e) || e.closest('script, option, details:not([open]) > :not(summary)')) continue;
		const range = document.createRange();
		range.selectNodeContents(n);
		for (const r of range.getClientRects()) if (r.width > 1 && r.height > 1) texts.push({ text: n.data.trim(), r, e });
	}
	for (const a of texts) {
		if ((a.r.left < -1 || a.r.right > innerWidth + 1) && !a.e.closest('.wide')) found.push('off the screen: ' + a.text);
		for (const b of texts) {
			if (a === b || a.e === b.e) continue;
			const w = Math.min(a.r.right, b.r.right) - Math.max(a.r.left, b.r.left), h = Math.min(a.r.bottom, b.r.bottom) - Math.max(a.r.top, b.r.top);
			if (w > 2 && h > 4) found.push('overlap: ' + a.text + ' and ' + b.text);
		}
	}
	for (const e of document.querySelectorAll('button, select, .chips span, dd, dt, th, td, h1, h2, h3, p, output')) {
		if (seen(e) && e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline') found.push('cut off: ' + e.textContent);
	}
	if (document.documentElement.scrollWidth > innerWidth) found.push('the page is ' + document.documentElement.scrollWidth + ' wide');
	return [...new Set(found)];
})()`

// Nothing overlaps, leaves the screen or is cut off. SCREENSHOTS names a folder to
// save pictures in, to be looked at.
func TestNothingOverlaps(t *testing.T) {
	for _, page := range pages {
		for _, width := range []int64{320, 390, 768, 1280, 1920} {
			for _, dark := range []bool{false, true} {
				look := screen{width: width, height: 900, dark: dark}
				name := fmt.Sprintf("%s-%d", page.name, width)
				if dark {
					name += "-dark"
				}
				if dark && (width == 320 || width > 1280) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					p := open(t, look, at(page.path))
					page.prepare(p)
					for _, found := range get[[]string](p, collisions) {
						t.Error(found)
					}
					if dir := os.Getenv("SCREENSHOTS"); dir != "" {
						png, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
						if err != nil {
							t.Fatal(err)
						}
						if err := os.WriteFile(filepath.Join(dir, name+".png"), png, 0o644); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
	}
}

//go:embed testdata/axe-core/axe.min.js
var axe string

type violation struct {
	ID, Impact, Help string
	Nodes            []struct{ HTML, FailureSummary string }
}

const runAxe = `axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'] }).then((r) => r.violations)`

func violations(p *tab) []violation {
	p.t.Helper()
	p.run(chromedp.Evaluate[chromedp.Void](axe))
	return get[[]violation](p, runAxe)
}

func TestAccessible(t *testing.T) {
	for _, page := range pages {
		for _, look := range []screen{{width: 1280, height: 900}, {width: 1280, height: 900, dark: true}, {width: 390, height: 844}, {width: 390, height: 844, dark: true}} {
			t.Run(fmt.Sprintf("%s-%d-%t", page.name, look.width, look.dark), func(t *testing.T) {
				p := open(t, look, at(page.path))
				page.prepare(p)
				for _, v := range violations(p) {
					t.Errorf("%s (%s): %s: %+v", v.ID, v.Impact, v.Help, v.Nodes)
				}
			})
		}
	}
}
