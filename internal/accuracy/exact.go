package accuracy

import (
	"slices"
	"time"
)

// An exactLog is everything that was served to one client, however long ago.
type exactLog struct {
	times []time.Duration // never falling
	total []int64         // units up to and with this one
}

func (l *exactLog) add(at time.Duration, units int64) {
	if n := len(l.total); n > 0 {
		units += l.total[n-1]
	}
	l.times, l.total = append(l.times, at), append(l.total, units)
}

// units is what was served in (t-P, t].
func (l *exactLog) units(t time.Duration) int64 { return l.until(t) - l.until(t-period) }

// between is when something was served in [from, to).
func (l *exactLog) between(from, to time.Duration) []time.Duration {
	i, _ := slices.BinarySearch(l.times, from)
	j, _ := slices.BinarySearch(l.times, to)
	return l.times[i:j]
}

// until is what was served up to and at t.
func (l *exactLog) until(t time.Duration) int64 {
	n, _ := slices.BinarySearch(l.times, t+1)
	if n == 0 {
		return 0
	}
	return l.total[n-1]
}

// logs has one log for each client.
type logs map[int]*exactLog

func (all logs) of(client int) *exactLog {
	l := all[client]
	if l == nil {
		l = new(exactLog)
		all[client] = l
	}
	return l
}
