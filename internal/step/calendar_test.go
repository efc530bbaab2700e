package step

import (
	"fmt"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

// zones are those with the oddest clocks: changes at midnight, dates that are left out
// or come twice, and offsets of half and quarter hours.
var zones = []string{
	"UTC", "Europe/Berlin", "America/Santiago", "Africa/Cairo", "Asia/Beirut", "America/Havana", "America/Asuncion",
	"America/Sao_Paulo", "Asia/Tehran", "Pacific/Apia", "Pacific/Kiritimati", "Pacific/Kwajalein", "Australia/Lord_Howe",
	"America/St_Johns", "Asia/Amman", "Atlantic/Azores", "Asia/Gaza", "Asia/Kathmandu", "Africa/Casablanca", "Antarctica/Troll",
}

// The oracle does not know midnight: it reads the local date minute by minute. A day's
// window is the latest date that has been seen so far.
func TestDaysMinuteByMinute(t *testing.T) {
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			t.Parallel()
			c := mustParse(t, "day@"+zone)
			loc := c.zone
			for _, year := range []int{1996, 2010, 2011, 2018, 2022, 2026, 2040} {
				at := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
				latest := int64(0) // date so far
				for end := at.AddDate(1, 0, 0); at.Before(end); {
					// Only the hours around a change of the clock and those around midnight can differ.
					_, change := at.In(loc).ZoneBounds()
					near := !change.IsZero() && change.Sub(at) < 26*time.Hour
					for m := at; m.Before(at.Add(24 * time.Hour)); m = m.Add(time.Minute) {
						if !near && m.Minute() != 0 && m.Minute() != 59 {
							continue
						}
						latest = max(latest, daysOf(m.In(loc)))
						w := c.Around(m.UnixMicro())[1]
						if w.Date != latest*secondsOfDay*1e6 || !w.holds(m.UnixMicro()) {
							t.Fatalf("at %s: the window is of %s, from %s to %s; the latest date is %s", m.In(loc), dateOf(w), stamp(w.Begin, loc), stamp(w.End, loc), dateOf(Window{Date: latest * secondsOfDay * 1e6}))
						}
					}
					at = at.Add(24 * time.Hour)
				}
			}
		})
	}
}

// Windows follow each other without a gap, each begins at a date that its unit begins
// at, and none is empty but a date that its zone left out.
func TestWindowsFollowEachOther(t *testing.T) {
	for _, zone := range zones {
		for _, unit := range []string{"day", "week", "month", "month:15", "month:31", "quarter", "year"} {
			c := mustParse(t, unit+"@"+zone)
			now := time.Date(1995, 6, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
			for now < time.Date(2035, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() {
				w := c.around(now)
				if !w[1].holds(now) || w[0].End != w[1].Begin || w[1].End != w[2].Begin || w[0].Date >= w[1].Date || w[1].Date >= w[2].Date ||
					w[1].End-w[1].Begin > 367*secondsOfDay*1e6 {
					t.Fatalf("%s at %s: %v", c, stamp(now, c.zone), w)
				}
				if before := c.Around(w[1].Begin - 1)[1]; before.End != w[1].Begin || before.Date >= w[1].Date {
					t.Fatalf("%s: %v comes before %v", c, before, w[1])
				}
				date := time.UnixMicro(w[1].Date).UTC()
				right := map[string]bool{
					"day": true, "week": date.Weekday() == time.Monday, "month": date.Day() == 1, "month:15": date.Day() == 15,
					"month:31": date.AddDate(0, 0, 1).Day() == 1, "quarter": date.Day() == 1 && (date.Month()-1)%3 == 0, "year": date.YearDay() == 1,
				}[unit]
				if !right {
					t.Fatalf("%s: a window begins on %s", c, date.Format(time.DateOnly))
				}
				if unit == "day" {
					now = w[1].End + 11*24*int64(time.Hour/time.Microsecond)
				} else {
					now = w[1].End
				}
			}
		}
	}
}

// What package time makes of midnight is another instant, once a year, in these zones.
func TestMidnightsThatDoNotExist(t *testing.T) {
	for _, c := range []struct{ calendar, at, begin, end string }{
		{"day@America/Santiago", "2026-09-06T12:00:00-03:00", "2026-09-06T01:00:00-03:00", "2026-09-07T00:00:00-03:00"}, // no midnight
		{"day@Asia/Amman", "2013-12-20T12:00:00+02:00", "2013-12-20T00:00:00+02:00", "2013-12-21T00:00:00+02:00"},
		{"day@Pacific/Apia", "2011-12-31T12:00:00+14:00", "2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"},  // the 30th did not exist
		{"day@Europe/Berlin", "2026-03-29T12:00:00+02:00", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00"}, // 23 hours
		{"day@Europe/Berlin", "2026-10-25T12:00:00+01:00", "2026-10-25T00:00:00+02:00", "2026-10-26T00:00:00+01:00"}, // 25 hours
		{"month:15@UTC", "2026-02-14T23:59:59Z", "2026-01-15T00:00:00Z", "2026-02-15T00:00:00Z"},
		{"month:31@UTC", "2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"month@Pacific/Kiritimati", "2026-11-30T10:00:00Z", "2026-11-30T10:00:00Z", "2026-12-31T10:00:00Z"},
		{"week@America/New_York", "2026-11-22T12:00:00-05:00", "2026-11-16T00:00:00-05:00", "2026-11-23T00:00:00-05:00"},
		{"quarter@UTC", "2026-11-22T12:00:00Z", "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"year@UTC", "2026-11-22T12:00:00Z", "2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z"},
	} {
		w := mustParse(t, c.calendar).Around(micros(t, c.at))[1]
		if w.Begin != micros(t, c.begin) || w.End != micros(t, c.end) {
			t.Errorf("%s at %s: from %s to %s, want from %s to %s", c.calendar, c.at, stamp(w.Begin, time.UTC), stamp(w.End, time.UTC), c.begin, c.end)
		}
	}
}

func TestTextsThatAreNoCalendar(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    `unknown window ""; write day, week, month, quarter or year, an @ and a time zone`,
		"month":                               "month needs a time zone; write month@UTC or month@Europe/Berlin",
		"month@":                              "needs a time zone",
		"month@Local":                         "Local differs from machine to machine",
		"fortnight@UTC":                       `unknown window "fortnight"`,
		"Month@UTC":                           `unknown window "Month"`,
		"month@Mars/Olympus":                  `import _ "time/tzdata"`,
		"month@../etc/passwd":                 "cannot load the time zone",
		"day:2@UTC":                           "only a month begins on another day",
		"month:0@UTC":                         "from 1 to 31",
		"month:32@UTC":                        "from 1 to 31",
		"month:015@UTC":                       "from 1 to 31",
		"month:+5@UTC":                        "from 1 to 31",
		"month:1@UTC":                         "write month@UTC",
		"month@UTC" + strings.Repeat("x", 99): "at most 64 bytes",
	} {
		if c, err := parseCalendar(text); err == nil || c != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func BenchmarkWindowsOfACalendar(b *testing.B) {
	c, err := parseCalendar("month@Europe/Berlin")
	if err != nil {
		b.Fatal(err)
	}
	for now := time.Now().UnixMicro(); b.Loop(); now++ {
		c.around(now)
	}
}

func mustParse(t *testing.T, text string) *Calendar {
	t.Helper()
	c, err := parseCalendar(text)
	if err != nil || c.String() != text {
		t.Fatal(c, err)
	}
	return c
}

func micros(t *testing.T, text string) int64 {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at.UnixMicro()
}

func stamp(us int64, loc *time.Location) string {
	return time.UnixMicro(us).In(loc).Format(time.RFC3339)
}

func dateOf(w Window) string { return fmt.Sprint(time.UnixMicro(w.Date).UTC().Format(time.DateOnly)) }
