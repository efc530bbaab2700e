package browser

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/simulate"
)

// What a control of the plot's time does.
func TestTimeCanBeMoved(t *testing.T) {
	p := open(t, desktop, lab+"/?traffic=edges&load=1&algorithms=fixed_window")
	p.run(chromedp.Focus(chromedp.CSS("#time")), chromedp.KeyEvent(kb.Home))
	p.until(`document.querySelector('[data-name=admitted] dd').textContent === '0'`)
	get[bool](p, `(time.value = 60, time.dispatchEvent(new Event('input')))`)
	if got := shown(p, algorithms.FixedWindow); got.admitted != "100" || got.worst != "100" || got.falseAdmits != "0" {
		t.Errorf("at 1:00: %+v", got)
	}
	if text := get[string](p, `time.getAttribute('aria-valuetext')`); text != "1:00 of 4:00" {
		t.Errorf("the slider says %q", text)
	}
	if text := get[string](p, `document.querySelector('.now').textContent`); text != "0 left" {
		t.Errorf("the plot says %q", text)
	}
	p.run(chromedp.Focus(chromedp.CSS("#time")), chromedp.KeyEvent(kb.End))
	p.until(`document.querySelector('[data-name=admitted] dd').textContent === '400'`)
}

// Play goes from the beginning to the end, moving or, for who wants no motion, in
// steps.
func TestPlay(t *testing.T) {
	for _, still := range []bool{false, true} {
		p := open(t, screen{width: 1280, height: 900, still: still}, lab+"/?traffic=steady&load=1&algorithms=sliding_log")
		get[bool](p, `(window.seen = new Set(), window.frames = 0, new MutationObserver(() => {
			seen.add(document.querySelector('[data-name=admitted] dd').textContent);
		}).observe(document.getElementById('rows'), { subtree: true, childList: true, characterData: true }),
			window.frame = window.requestAnimationFrame, window.requestAnimationFrame = (f) => { frames++; return frame(f); }, true)`)
		p.run(chromedp.Focus(chromedp.CSS("#play")), chromedp.KeyEvent(" "))
		p.until(`document.getElementById('play').textContent === 'Pause'`)
		p.until(`document.getElementById('play').textContent === 'Play' && time.value === time.max`)
		if n := get[int](p, `seen.size`); n < 5 || still && n > 13 {
			t.Errorf("still %t: %d numbers on the way", still, n)
		}
		if n := get[int](p, `frames`); still && n > 0 {
			t.Errorf("%d frames of motion", n)
		}
		if got := shown(p, algorithms.SlidingLog).admitted; got != "400" {
			t.Errorf("still %t: in the end %s admitted", still, got)
		}
	}
}

// A stroke of the mouse, and the keys, make traffic of one's own.
func TestDrawing(t *testing.T) {
	p := open(t, desktop, lab+"/?traffic=steady&load=0.1&algorithms=fixed_window")
	box := get[struct{ X, Y, Width, Height float64 }](p, `draw.scrollIntoView({ block: 'center' }), draw.getBoundingClientRect().toJSON()`)
	before := get[string](p, "window.before = "+plots)
	p.run(chromedp.DragAndDropXY(box.X+box.Width*0.2, box.Y+box.Height*0.9, box.X+box.Width*0.4, box.Y+box.Height*0.1))
	p.until("window.before !== " + plots)
	counts := drawn(p)
	if len(counts) != 60 || counts[12] == 0 || counts[23] <= counts[13] || counts[40] > 1 || get[string](p, plots) == before {
		t.Errorf("By hand: %d", counts)
	}
	for i := 13; i < 24; i++ {
		if counts[i] < counts[i-1] {
			t.Errorf("a straight stroke upwards: %d", counts)
		}
	}
	p.run(chromedp.Focus(chromedp.CSS("#draw")), chromedp.KeyEvent(kb.ArrowRight+kb.ArrowRight+kb.Home+kb.ArrowUp+kb.ArrowUp+kb.ArrowUp+kb.ArrowDown))
	part := drawn(p)
	if at := get[string](p, `draw.getAttribute('aria-valuetext')`); !strings.HasPrefix(at, "2 requests from ") {
		t.Errorf("the keys leave %q, %d", at, part)
	}
	want := computed(t, simulate.Drawn(part, 4*time.Minute), algorithms.Limit{Rate: 100, Period: time.Minute, Algorithm: algorithms.FixedWindow})
	p.until(fmt.Sprintf(`document.querySelector('[data-name=admitted] dd').textContent === %q && document.querySelector('[data-name=denied] dd').textContent === %q`, want.admitted, want.denied))
	if got := shown(p, algorithms.FixedWindow); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// drawn is the curve in the page's address.
func drawn(p *tab) (counts []int) {
	p.t.Helper()
	for text := range strings.SplitSeq(get[string](p, `new URLSearchParams(location.search).get('drawn')`), ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			p.t.Fatal(err)
		}
		counts = append(counts, n)
	}
	return counts
}

// Everything can be reached and used without a mouse.
func TestKeyboard(t *testing.T) {
	p := open(t, desktop, lab+"/?traffic=poisson")
	var order []string
	for range 60 {
		p.run(chromedp.KeyEvent(kb.Tab))
		at := get[string](p, `(() => { const e = document.activeElement; return e === document.body ? '' : [e.tagName.toLowerCase(), e.id || e.name || e.dataset.copy || e.getAttribute('aria-label') || e.textContent.trim().slice(0, 20)].join(' ') + (e.type === 'checkbox' ? ' ' + e.value : ''); })()`)
		if at == "" || len(order) > 0 && at == order[0] {
			break
		}
		order = append(order, at)
	}
	got := strings.Join(order, "\n")
	const want = `a Lab
a Overload
a Replay
input rate
select period
input burst
input algorithms fixed_window
input algorithms sliding_window
input algorithms sliding_log
input algorithms token_bucket
input algorithms leaky_bucket
input algorithms gcra
input algorithms in_flight
input traffic
input load
input periods
input seed
div draw
button play
input time
button share
input rule
button yaml
pre Rule file
pre Commands
button go
pre Go program
summary What the numbers mea`
	if got != want {
		t.Errorf("the order is\n%s", got)
	}
	if n := get[int](p, `document.querySelectorAll('[tabindex]:not([tabindex="0"])').length`); n != 0 {
		t.Errorf("%d elements out of order", n)
	}
	// The last algorithm stays chosen, and choosing with the space bar works.
	p = open(t, desktop, lab+"/?algorithms=gcra")
	p.run(chromedp.Focus(chromedp.CSS("[value=sliding_log]")), chromedp.KeyEvent(" "))
	p.until(`document.querySelectorAll('#rows article').length === 2`)
	p.run(chromedp.KeyEvent(" "))
	p.until(`document.querySelectorAll('#rows article').length === 1`)
	if !get[bool](p, `document.querySelector('[name=algorithms][value=gcra]').disabled`) {
		t.Error("the last algorithm can be taken away")
	}
}

// A reset asks first, and a reload afterwards repeats nothing.
func TestAnOperatorResets(t *testing.T) {
	p := open(t, desktop, at(operatorsPath+"?rule=per-ip&value=198.51.100.7"))
	if get[bool](p, `document.querySelector('[value=reset]').checkVisibility()`) {
		t.Error("one click resets")
	}
	get[bool](p, `([...document.querySelectorAll('summary')].find((s) => s.textContent === 'Reset…').click(), document.querySelector('[value=reset]').click(), true)`)
	const done = `location.search.startsWith('?look=') && document.querySelector('[role=status]').textContent.startsWith('Reset at ')`
	p.until(done)
	get[bool](p, `(window.old = true, location.reload(), true)`)
	p.until(`!window.old && performance.getEntriesByType('navigation')[0].type === 'reload' && ` + done)
	if text := get[string](p, `location.search + document.querySelector('h2').textContent`); strings.Contains(text, "198.51") || !strings.HasSuffix(text, "One client of per-ip") {
		t.Error(text)
	}
}
