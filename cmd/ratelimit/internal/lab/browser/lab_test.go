package browser

import (
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/simulate"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// Numbers are what the page shows of one algorithm.
type numbers struct{ admitted, denied, worst, falseAdmits, falseDenials, longestWait string }

func shown(p *tab, a algorithms.Algorithm) numbers {
	p.t.Helper()
	get := func(name string) string {
		return get[string](p, fmt.Sprintf(`document.querySelector('[data-algorithm=%s] [data-name=%s] dd').textContent`, a, name))
	}
	return numbers{get("admitted"), get("denied"), get("worst"), get("falseAdmits"), get("falseDenials"), get("longestWait")}
}

// computed is what the page has to show, asked of the algorithms themselves.
func computed(t *testing.T, requests []simulate.Request, limit algorithms.Limit) numbers {
	t.Helper()
	outcomes, _, err := simulate.Run(requests, limit)
	if err != nil {
		t.Fatal(err)
	}
	s := simulate.Judge(requests, outcomes, limit.Rate, limit.Period, nil)
	wait := "–"
	switch seconds := s.MaxDelay.Seconds(); {
	case seconds >= 10:
		wait = fmt.Sprintf("%.0f s", seconds)
	case seconds > 0:
		wait = fmt.Sprintf("%.1f s", seconds)
	}
	return numbers{thousands(s.Admitted), thousands(s.Denied()), thousands(int(s.Worst)), thousands(s.FalseAdmits), thousands(s.FalseDenials), wait}
}

func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

// plots is everything that is drawn of the algorithms.
const plots = `[...document.querySelectorAll('#rows path')].map((p) => p.getAttribute('class') + p.getAttribute('d')).join('\n')`

// The page as it first appears: no complaint of the browser, the plots, and the
// numbers of the algorithms themselves.
func TestSmoke(t *testing.T) {
	p := open(t, desktop, lab+"/")
	requests := simulate.Traffic{Rate: 100, Period: time.Minute}.Edges(1.5, 4*time.Minute)
	for _, a := range []algorithms.Algorithm{algorithms.FixedWindow, algorithms.SlidingWindow, algorithms.TokenBucket, algorithms.LeakyBucket} {
		limit := algorithms.Limit{Rate: 100, Period: time.Minute, Algorithm: a}
		if a == algorithms.TokenBucket || a == algorithms.LeakyBucket {
			limit.Burst = 20
		}
		if got, want := shown(p, a), computed(t, requests, limit); got != want {
			t.Errorf("%s: %+v, want %+v", a, got, want)
		}
	}
	if n := get[int](p, `document.querySelectorAll('#rows article').length`); n != 4 {
		t.Errorf("%d rows", n)
	}
	if d := get[string](p, plots); strings.Count(d, "p-admittedM") != 4 || strings.Count(d, "p-deniedM") != 4 {
		t.Errorf("By hand: %.300s", d)
	}
	atOnce := func(a algorithms.Algorithm) string {
		return get[string](p, fmt.Sprintf(`(() => {
			const pair = document.querySelector('[data-algorithm=%s] [data-name=atOnce]');
			return pair.hidden ? '' : pair.lastElementChild.textContent;
		})()`, a))
	}
	if n := atOnce(algorithms.FixedWindow); n != "" || !get[bool](p, `document.getElementById('takes-field').hidden && !location.search.includes('takes')`) {
		t.Errorf("%s at once are shown without in_flight, or its fields", n)
	}
	get[bool](p, choose("algorithms", "in_flight"))
	get[bool](p, choose("takes", "1.5"))
	get[bool](p, choose("atOnce", "7"))
	p.until(`document.querySelector('[data-algorithm=in_flight] [data-name=atOnce] dd')?.textContent === '7' && yaml.textContent.length > 0`)
	get[bool](p, choose("rule", "in_flight"))
	if !get[bool](p, `document.getElementById('log').hidden && yaml.textContent.includes('limit: 7 in flight')`) {
		t.Error("a replay of in_flight is offered, or its rule is not")
	}
	for i := range requests {
		requests[i].Duration = 1500 * time.Millisecond
	}
	if got, want := shown(p, algorithms.InFlight), computed(t, requests, algorithms.MaxInFlight(7)); got.admitted != want.admitted || got.denied != want.denied {
		t.Errorf("in_flight: %+v, want %+v", got, want)
	}
	if n := atOnce(algorithms.FixedWindow); n != "175" { // 100 from 59 s, and 75 in half a second from 60 s, when the first end
		t.Errorf("fixed_window: %s at once", n)
	}
}

// choose sets a control as its user does, and tells the page.
func choose(name, value string) string {
	return fmt.Sprintf(`(() => {
		const e = document.querySelector('[name=%[1]s][value="%[2]s"]') || document.querySelector('[name=%[1]s]');
		if (e.type === 'checkbox' || e.type === 'radio') return e.click();
		e.value = %[2]q;
		e.dispatchEvent(new Event('input', { bubbles: true }));
	})(), true`, name, value)
}

func TestEachControlChangesThePlot(t *testing.T) {
	for _, c := range []struct{ start, name, value string }{
		{"", "rate", "60"},
		{"", "period", "1h"},
		{"", "burst", "55"},
		{"", "algorithms", "gcra"},
		{"", "algorithms", "fixed_window"},
		{"", "traffic", "steady"},
		{"", "traffic", "poisson"},
		{"", "traffic", "bursty"},
		{"", "traffic", "drip"},
		{"", "traffic", "clients"},
		{"?traffic=steady", "traffic", "edges"},
		{"?traffic=drawn&drawn=1,2,3", "traffic", "poisson"},
		{"?algorithms=in_flight", "atOnce", "3"},
		{"?algorithms=in_flight,gcra", "takes", "0.04"},
		{"", "load", "0.7"},
		{"", "periods", "7"},
		{"?traffic=clients", "clients", "9"},
		{"?traffic=clients", "seed", "9"},
		{"?traffic=poisson", "seed", "9"},
		{"?traffic=bursty", "seed", "9"},
	} {
		t.Run(c.start+" "+c.name+"="+c.value, func(t *testing.T) {
			p := open(t, desktop, lab+"/"+c.start)
			before := get[string](p, "window.before = "+plots)
			get[bool](p, choose(c.name, c.value))
			if c.name == "period" { // the same picture, of other times
				p.until(`document.getElementById('clock').textContent === '4:00 h'`)
			} else {
				p.until("window.before !== " + plots)
				if after := get[string](p, plots); after == before || !strings.Contains(after, "p-admittedM") {
					t.Errorf("By hand: %.300s", after)
				}
			}
			address, err := url.Parse(get[string](p, "location.href"))
			if err != nil {
				t.Fatal(err)
			}
			if got := address.Query().Get(c.name); got != c.value && c.name != "algorithms" {
				t.Errorf("the address has %s=%q", c.name, got)
			}
			// The address alone shows the same.
			again := open(t, desktop, address.String())
			if get[string](again, plots) != get[string](p, plots) {
				t.Errorf("%s shows something else", address)
			}
			if a, b := get[string](again, "new URLSearchParams(new FormData(scenario)).toString()"), get[string](p, "new URLSearchParams(new FormData(scenario)).toString()"); a != b {
				t.Errorf("%s: the controls show %s, want %s", address, a, b)
			}
		})
	}
}

// What is copied works as it is.
func TestCopied(t *testing.T) {
	p := open(t, desktop, lab+"/?rate=70&period=90s&burst=9&algorithms=token_bucket,fixed_window&rule=token_bucket")
	p.allowClipboard()
	want := algorithms.Limit{Rate: 70, Period: 90 * time.Second, Burst: 9, Algorithm: algorithms.TokenBucket}
	copied := func(button string) string {
		t.Helper()
		p.run(chromedp.Click(chromedp.CSS(button)))
		p.until(fmt.Sprintf(`document.querySelector(%q).textContent === 'Copied'`, button))
		return get[string](p, `navigator.clipboard.readText()`)
	}
	rules, err := new(rulefile.Loader).Parse("copied", []byte(copied("[data-copy=yaml]")))
	if err != nil || len(rules) != 1 || rules[0].Limit != want {
		t.Errorf("%+v, %v", rules, err)
	}
	code := copied("[data-copy=go]")
	path := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-o", os.DevNull, path)
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil || !strings.Contains(code, "MustParse(\"70/90s burst 9 token_bucket\")") {
		t.Errorf("%v\n%s\n%s", err, out, code)
	}
	link := copied("#share")
	again := open(t, desktop, link)
	if a, b := get[string](again, plots), get[string](p, plots); a != b || get[string](again, `yaml.textContent`) != get[string](p, `yaml.textContent`) {
		t.Errorf("%s shows something else", link)
	}
}

// A mistake is shown at its field and goes away with it; the plots stay meanwhile.
func TestMistakes(t *testing.T) {
	p := open(t, desktop, lab+"/")
	before := get[string](p, plots)
	get[bool](p, choose("rate", "0"))
	p.until(`!mistake.hidden && mistake.textContent === 'Requests: write a whole number from 1 to 10000' && document.querySelector('[name=rate]').getAttribute('aria-invalid') === 'true'`)
	if get[string](p, plots) != before {
		t.Error("the plots have changed")
	}
	get[bool](p, choose("rate", "100"))
	p.until(`mistake.hidden && !document.querySelector('[aria-invalid]')`)
	p.forgive("400 (Bad Request)")

	// An address may say what the slider does not offer.
	p = open(t, desktop, lab+"/?load=7.25&algorithms=gcra")
	if text := get[string](p, `document.getElementById('load-text').textContent + ' ' + document.getElementById('load').value`); text != "7.25 × the limit 7.25" {
		t.Errorf("the load is shown as %q", text)
	}

	for query, want := range map[string]string{
		"rate=abc":                  "Requests: write a whole number from 1 to 10000",
		"traffic=%3Cscript%3E":      `Traffic: there is no "<script>"`,
		"algorithms=x%22%5D":        `Counted by: there is no "x\"]"`,
		"rate=9000&load=5":          "Load: that is about 180000 requests",
		"traffic=drawn&drawn=1,x,2": "By hand: write a whole number",
		"traffic=drawn":             "By hand: draw at least one request",
		"period=%3Cimg+src%3Dx%3E":  "Period: write a time",
	} {
		p := open(t, desktop, lab+"/?"+query)
		if got := get[string](p, `mistake.textContent`); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
		p.forgive("400 (Bad Request)")
	}
}

func TestTheLabGoesAway(t *testing.T) {
	address, end, err := start(program)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	p := open(t, desktop, address)
	end()
	get[bool](p, choose("rate", "50"))
	p.until(`mistake.textContent.startsWith('The lab does not answer')`)
	p.forgive("ERR_CONNECTION_REFUSED")
}

// The pages have values at their plots, and more at the pointer.
func TestValues(t *testing.T) {
	for _, c := range []struct{ path, row, axis, tip string }{
		{"/?traffic=edges&load=1&algorithms=fixed_window", "[data-algorithm=fixed_window]", "100", "200 of 100 in the last minute"},
		{"/overload", "[data-name=fixed]", "24", "limit 24"},
		{"/replay", "#minutes", "2,283", "denied"},
	} {
		p := open(t, desktop, lab+c.path)
		if axes := get[[]string](p, fmt.Sprintf(`[...document.querySelectorAll('%s .axis')].map((e) => e.textContent)`, c.row)); !slices.Contains(axes, c.axis) {
			t.Errorf("%s: the values at the plot are %q, want %s", c.path, axes, c.axis)
		}
		box := get[struct{ X, Y, Width, Height float64 }](p, fmt.Sprintf(`(() => {
			const plot = document.querySelector('%s svg');
			plot.scrollIntoView({ block: 'center' });
			return plot.getBoundingClientRect().toJSON();
		})()`, c.row))
		p.run(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, box.X+box.Width*0.26, box.Y+box.Height/2))
		p.until(fmt.Sprintf(`document.querySelector('%s .tip:not([hidden])')?.textContent.includes('%s')`, c.row, c.tip))
		p.run(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, box.X, 1))
		p.until(`!document.querySelector('.tip:not([hidden])')`)
	}
}

// The code that is offered first is not that of the algorithm that does worst.
func TestTheOfferedRule(t *testing.T) {
	for algorithms, want := range map[string]string{
		"fixed_window,sliding_window,token_bucket": "sliding_window", "fixed_window,token_bucket": "token_bucket", "fixed_window": "fixed_window",
	} {
		p := open(t, desktop, lab+"/?algorithms="+algorithms)
		if got := get[string](p, `document.querySelector('#rule :checked').value`); got != want {
			t.Errorf("of %s, %s is offered", algorithms, got)
		}
	}
}

func TestOverload(t *testing.T) {
	p := open(t, desktop, lab+"/overload?load=5&seconds=20")
	stat := func(row, name string) string {
		return get[string](p, fmt.Sprintf(`document.querySelector('[data-name=%s] [data-name=%s] dd').textContent`, row, name))
	}
	for _, row := range []string{"fixed", "adaptive"} {
		if stat(row, "critical") != "100 %" || stat(row, "low") != "0 %" {
			t.Errorf("%s: %s of the critical requests, %s of the others", row, stat(row, "critical"), stat(row, "low"))
		}
	}
	if stat("none", "shed") != "0 %" || stat("none", "goodput") > "9 %" {
		t.Errorf("without a Shedder: %s shed, goodput %s", stat("none", "shed"), stat("none", "goodput"))
	}
	get[bool](p, choose("load", "0.5"))
	p.until(`document.querySelector('[data-name=none] [data-name=critical] dd').textContent === '100 %' && location.search.includes('load=0.5')`)
	get[bool](p, choose("seconds", "1"))
	p.until(`!mistake.hidden && mistake.textContent === 'Seconds: write a whole number from 5 to 120' && document.querySelector('[name=seconds]').getAttribute('aria-invalid') === 'true'`)
	p.forgive("400 (Bad Request)")
}
