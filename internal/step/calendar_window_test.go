package step

import (
	"testing"
	"time"
)

// A state of the next window, which a clock that stepped back has left behind, and a filled
// one are free when their own window ends.
func TestACalendarWindowIsFreeAtItsOwnEnd(t *testing.T) {
	const hour = int64(time.Hour / time.Microsecond)
	noon := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC).UnixMicro()
	today := noon - 12*hour
	l := Limit{Rate: 3, Algorithm: CalendarWindow, Calendar: "day@UTC"}
	p := l.Params(1, 0, l.Row())
	for name, c := range map[string]struct {
		state State
		left  int64
		reset int64
	}{
		"today's":    {State{A: today, B: 2}, 1, 12 * hour},
		"tomorrow's": {State{A: today + 24*hour, B: 2}, 1, 36 * hour},
		"filled":     {p.Step.UsedUntil(noon+hour, noon, p), 3 - MaxUnits, 12 * hour},
	} {
		current, _ := p.At(c.state, noon)
		if left, reset := p.Step.Left(current, noon, p); left != c.left || reset != c.reset {
			t.Errorf("%s: %d left, free in %d h; want %d and %d h", name, left, reset/hour, c.left, c.reset/hour)
		}
	}
}
