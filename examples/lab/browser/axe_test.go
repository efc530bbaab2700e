package browser

import (
	_ "embed"
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
)

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
