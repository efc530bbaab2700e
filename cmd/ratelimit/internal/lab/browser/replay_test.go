package browser

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func TestReplay(t *testing.T) {
	p := open(t, desktop, lab+"/replay")
	text := get[string](p, `document.body.innerText`)
	for _, want := range []string{"access.log, 20 Nov 2026, 09:00 to 19:00 UTC", "per-ip", "5/1m fixed_window", "203.0.113.9", "denies under 0.5 % of clients", "per-user not replayed: the log does not have the key user", "upload met no request of the log", hostile} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if title := get[string](p, `document.title`); title != "Replay: what rules would have done" {
		t.Errorf("a key in the log changed the page: %q", title)
	}
	if n := get[int](p, `document.querySelectorAll('#minutes svg path.p-beyond[d^=M]').length`); n != 11 {
		t.Errorf("%d rows of denials, want all, per-ip, login and eight more", n)
	}
	// Ten clients are shown, and the others on demand.
	const clients = `[...document.querySelectorAll('#clients tbody tr')].filter((r) => !r.hidden).length`
	if n := get[int](p, clients); n != 10 || !strings.Contains(text, "Show 29 more clients") || !strings.Contains(text, "and 7 more") {
		t.Errorf("%d clients are shown in\n%s", n, text)
	}
	p.run(chromedp.Click(chromedp.CSS("#clients .more")))
	p.until(clients + " === 39 && !document.querySelector('.more')")
	// A limit of the log leads into the lab.
	p.run(chromedp.Click(chromedp.CSS("#rules tbody tr:nth-child(2) a")))
	p.until(`location.pathname === '/' && document.querySelector('[data-algorithm=fixed_window] .p-head') && yaml.textContent.includes('5/1m fixed_window')`)
}

func TestNoReplay(t *testing.T) {
	address, end, err := start(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end) // after the tab, which may still load the icon
	p := newTab(t, desktop)
	p.run(chromedp.Navigate(address + "/replay"))
	p.until(`!none.hidden && none.innerText.includes('ratelimit lab -result result.json')`)
	p.forgive("404 (Not Found)")
}
