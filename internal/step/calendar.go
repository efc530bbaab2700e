package step

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Calendar divides time into the days, weeks, months, quarters or years of a time
// zone. Each of its windows begins at the first instant that has its date: a day may
// have 23 or 25 hours, and midnight need not exist. Windows never go back: where a clock
// is set back over midnight, the window that has begun stays.
type Calendar struct {
	unit unit
	day  int // on which the months begin; a shorter month's begins on its last day
	zone *time.Location
	text string
	id   uint64 // of the text

	near atomic.Pointer[Windows] // that were asked for last
}

// A Window is one of a calendar's.
type Window struct {
	// Date is midnight of the window's first day as if in UTC, in µs since 1970. It
	// names the window: processes whose zones' rules differ agree on it.
	Date int64
	// Begin and End are when the window begins and when the next one does, in µs.
	Begin, End int64
}

func (w Window) holds(now int64) bool { return w.Begin <= now && now < w.End }

// Windows are those before, at and after a time, and the next one.
type Windows [4]Window

// A unit is what a calendar counts in: windows have numbers, and numbers dates. Dates
// are days since 1970.
type unit struct {
	name   string
	number func(date int64, day int) int64
	date   func(number int64, day int) int64
}

var units = []unit{
	{
		"day",
		func(date int64, _ int) int64 { return date },
		func(number int64, _ int) int64 { return number },
	},
	{
		"week", // from Monday; 1970 began on a Thursday
		func(date int64, _ int) int64 { return floorDiv(date+3, 7) },
		func(number int64, _ int) int64 { return 7*number - 3 },
	},
	months("month", 1),
	months("quarter", 3),
	months("year", 12),
}

// months is a unit of several months.
func months(name string, several int64) unit {
	first := func(number int64, day int) int64 {
		year, month := floorDiv(number*several, 12), time.Month((number*several)%12+1)
		last := time.Date(int(year), month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		return daysOf(time.Date(int(year), month, min(day, last), 0, 0, 0, 0, time.UTC))
	}
	return unit{name, func(date int64, day int) int64 {
		year, month, _ := time.Unix(date*secondsOfDay, 0).UTC().Date()
		number := (12*int64(year) + int64(month) - 1) / several
		if date < first(number, day) {
			number--
		}
		return number
	}, first}
}

const secondsOfDay = 24 * 60 * 60

// daysOf is the date of a time on its own clock.
func daysOf(t time.Time) int64 {
	year, month, day := t.Date()
	return floorDiv(time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix(), secondsOfDay)
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

// maxText bounds a calendar's text. The longest zone of the database has 32 bytes.
const maxText = 64

// calendars has those that were read, by their texts.
var calendars sync.Map

// ParseCalendar reads "month@Europe/Berlin", or "month:15@UTC" for months that begin on
// the 15th. The error says what to write instead. Equal texts are one Calendar.
func ParseCalendar(text string) (*Calendar, error) {
	if c, ok := calendars.Load(text); ok {
		return c.(*Calendar), nil
	}
	c, err := parseCalendar(text)
	if err != nil {
		return nil, err
	}
	one, _ := calendars.LoadOrStore(text, c)
	return one.(*Calendar), nil
}

func parseCalendar(text string) (*Calendar, error) {
	name, zone, ok := strings.Cut(text, "@")
	name, on, hasDay := strings.Cut(name, ":")
	at := slices.IndexFunc(units, func(u unit) bool { return u.name == name })
	switch {
	case len(text) > maxText:
		return nil, fmt.Errorf("a calendar has at most %d bytes, got %d", maxText, len(text))
	case at < 0:
		return nil, fmt.Errorf("unknown window %q; write day, week, month, quarter or year, an @ and a time zone, as in month@Europe/Berlin", name)
	case !ok || zone == "":
		return nil, fmt.Errorf("%s needs a time zone; write %s@UTC or %s@Europe/Berlin", text, name, name)
	case zone == "Local":
		return nil, errors.New(`Local differs from machine to machine; name the zone, as in "` + name + `@Europe/Berlin"`)
	}
	c := &Calendar{unit: units[at], day: 1, text: text, id: idOf(text)}
	if hasDay {
		day, err := strconv.Atoi(on)
		if name != "month" || err != nil || day < 1 || day > 31 || strconv.Itoa(day) != on {
			return nil, fmt.Errorf("%q: only a month begins on another day, from 1 to 31, as in month:15@UTC", text)
		}
		if day == 1 {
			return nil, fmt.Errorf("%q begins on the first in any case; write month@%s", text, zone)
		}
		c.day = day
	}
	var err error
	if c.zone, err = time.LoadLocation(zone); err != nil {
		return nil, fmt.Errorf("%q: this program cannot load the time zone: %w; check its name, or import _ \"time/tzdata\" where the machine has no zones", text, err)
	}
	return c, nil
}

// DayAfter is when the day after a date begins, for a calendar of days. The date is
// midnight as if in UTC.
func (c *Calendar) DayAfter(date time.Time) time.Time {
	return time.UnixMicro(c.begin(daysOf(date) + 1))
}

// String is the text form.
func (c *Calendar) String() string { return c.text }

// idOf is FNV-1a.
func idOf(text string) uint64 {
	id := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		id = (id ^ uint64(text[i])) * 0x100000001b3
	}
	return id
}

// Around returns the windows around a time in µs since 1970.
func (c *Calendar) Around(now int64) *Windows {
	if w := c.near.Load(); w != nil && w[1].holds(now) {
		return w
	}
	w := c.around(now)
	c.near.Store(w)
	return w
}

func (c *Calendar) around(now int64) *Windows {
	date := daysOf(time.UnixMicro(now).In(c.zone))
	number := c.unit.number(date, c.day) + 1 // the clock may have been set back over midnight
	for c.begin(number) > now {
		number--
	}
	var begins [len(Windows{}) + 1]int64
	for i := range begins {
		begins[i] = c.begin(number - 1 + int64(i))
	}
	windows := new(Windows)
	for i := range windows {
		windows[i] = Window{c.unit.date(number-1+int64(i), c.day) * secondsOfDay * 1e6, begins[i], begins[i+1]}
	}
	return windows
}

// begin is when a window begins, in µs: the first instant whose date is the window's, or
// a later one where the zone left that out.
func (c *Calendar) begin(number int64) int64 {
	midnight := c.unit.date(number, c.day) * secondsOfDay  // as if in UTC
	at := time.Unix(midnight-2*secondsOfDay, 0).In(c.zone) // no zone is two days from UTC
	for {
		_, offset := at.Zone()
		from, to := at.ZoneBounds()
		if !to.IsZero() && !to.After(at) { // the last day of a leap year: go.dev/issue/81583
			to = at.Truncate(secondsOfDay * time.Second).Add(secondsOfDay * time.Second)
		}
		first := midnight - int64(offset)
		if !from.IsZero() {
			first = max(first, from.Unix())
		}
		if to.IsZero() || first < to.Unix() {
			return first * 1e6
		}
		at = to
	}
}
