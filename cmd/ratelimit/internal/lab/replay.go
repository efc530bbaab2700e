package lab

import (
	"cmp"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
)

// The bounds of a replay's page.
const (
	maxBars    = 360
	maxWorst   = 10
	maxLimited = 100
)

// A replay is a replayed.Result made ready to be shown: a month of minutes is more
// than a screen has room for.
type replay struct {
	Log      string            `json:"log"`
	Requests int64             `json:"requests"`
	Denied   int64             `json:"denied"`
	Bad      int64             `json:"bad"`
	Rules    []replayed.Rule   `json:"rules"`
	Step     float64           `json:"step"` // seconds in a bar
	Bars     []replayed.Minute `json:"bars"` // without gaps; Start is the first minute's
	Worst    []replayed.Minute `json:"worst"`
	Clients  []replayed.Client `json:"clients"`
	Start    time.Time         `json:"start"`
	End      time.Time         `json:"end"`
}

// summarize adds the minutes up to at most maxBars bars.
func summarize(r *replayed.Result) replay {
	s := replay{
		Log: r.Log, Requests: r.Requests, Denied: r.Denied, Bad: r.Bad, Rules: r.Rules,
		Clients: r.Clients[:min(len(r.Clients), maxLimited)],
	}
	if len(r.Minutes) == 0 {
		return s
	}
	s.Start = r.Minutes[0].Start.UTC()
	s.End = r.Minutes[len(r.Minutes)-1].Start.UTC().Add(time.Minute)
	step := barLength(s.End.Sub(s.Start))
	s.Step = step.Seconds()
	s.Bars = make([]replayed.Minute, (s.End.Sub(s.Start)+step-1)/step)
	for i := range s.Bars {
		s.Bars[i] = replayed.Minute{Start: s.Start.Add(time.Duration(i) * step), ByRule: make(map[string]int64)}
	}
	for _, m := range r.Minutes {
		bar := &s.Bars[m.Start.Sub(s.Start)/step]
		bar.Requests, bar.Denied = bar.Requests+m.Requests, bar.Denied+m.Denied
		for rule, n := range m.ByRule {
			bar.ByRule[rule] += n
		}
	}
	s.Worst = slices.DeleteFunc(slices.Clone(r.Minutes), func(m replayed.Minute) bool { return m.Denied == 0 })
	slices.SortStableFunc(s.Worst, func(a, b replayed.Minute) int { return cmp.Compare(b.Denied, a.Denied) })
	s.Worst = s.Worst[:min(len(s.Worst), maxWorst)]
	return s
}

// barLength is a round number of minutes that divides a length into at most
// maxBars bars.
func barLength(length time.Duration) time.Duration {
	const minute, day = time.Minute, 24 * time.Hour
	step := day
	for _, round := range []time.Duration{minute, 2 * minute, 5 * minute, 10 * minute, 15 * minute, 30 * minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour} {
		if length <= maxBars*round {
			return round
		}
	}
	for length > maxBars*step {
		step *= 2
	}
	return step
}
