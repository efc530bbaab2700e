package simulate

import (
	"slices"
	"time"
)

// A Log is everything that was served to one client, however long ago.
type Log struct {
	times []time.Duration // never falling
	total []int64         // units up to and with this one
}

// Add adds units, at a time that must not fall.
func (l *Log) Add(at time.Duration, units int64) {
	if n := len(l.total); n > 0 {
		units += l.total[n-1]
	}
	l.times, l.total = append(l.times, at), append(l.total, units)
}

// Units is what was served in (t-period, t].
func (l *Log) Units(t, period time.Duration) int64 { return l.until(t) - l.until(t-period) }

// Most is the most that Units is in [from, to).
func (l *Log) Most(from, to, period time.Duration) int64 {
	most := l.Units(from, period)
	i, _ := slices.BinarySearch(l.times, from)
	j, _ := slices.BinarySearch(l.times, to)
	for _, t := range l.times[i:j] {
		most = max(most, l.Units(t, period))
	}
	return most
}

// until is what was served up to and at t.
func (l *Log) until(t time.Duration) int64 {
	n, _ := slices.BinarySearch(l.times, t+1)
	if n == 0 {
		return 0
	}
	return l.total[n-1]
}

// Logs has one Log for each client.
type Logs map[int]*Log

// Of returns a client's Log.
func (all Logs) Of(client int) *Log {
	l := all[client]
	if l == nil {
		l = new(Log)
		all[client] = l
	}
	return l
}
