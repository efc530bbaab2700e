package shed

import (
	"math"
	"time"
)

// A limit is how many requests may be at work. It follows what it does to latency and,
// where requests are slow, to throughput: a slow dependency serves more if more wait for
// it, while an overloaded server serves no more, however many it works on.
type limit struct {
	at       float64
	min, max int

	// The window that is under way.
	begun   time.Duration
	sum     time.Duration // of the samples
	samples int
	most    int // at work at once

	base       float64 // the latency of requests that do not get in each other's way, in s
	throughput float64 // of the last window, if it was slow and full, in samples/s
	before     float64 // where the limit was then
	gain       float64 // by how much of a step throughput follows: 0 in an overload, 1 behind a slow dependency
	down       bool    // the last step
}

// A request is slow if it takes longer than this multiple of the base.
const tolerated = 1.5

// room reports whether one more may be at work.
func (l *limit) room(atWork int) bool { return atWork < int(l.at) }

// sample is told how long a request was at work. It closes windows.
func (l *limit) sample(took, now time.Duration, atWork int) {
	if l.min == l.max {
		return
	}
	l.sum += took
	l.samples++
	if passed := now - l.begun; passed >= time.Second && l.samples >= 50 || passed >= 30*time.Second && l.samples >= 10 {
		l.step(l.sum.Seconds()/float64(l.samples), float64(l.samples)/passed.Seconds(), l.sum.Seconds()/passed.Seconds())
		l.begun, l.sum, l.samples, l.most = now, 0, 0, atWork
	}
}

// step moves the limit by the mean latency, the throughput and the mean number at work of a
// window. What tells nothing, such as a flood of denials, is in none of them: it can fill the
// places, and yet the limit stays.
func (l *limit) step(latency, throughput, working float64) {
	busy := working >= l.at/4
	switch {
	case l.base == 0:
		l.base = latency
	case latency < l.base:
		l.base += 0.3 * (latency - l.base)
	case !busy:
		l.base += 0.05 * (latency - l.base)
	}
	slow := latency > tolerated*l.base
	full := busy && float64(l.most) >= l.at-1
	last := l.throughput
	l.throughput = 0
	switch {
	case !slow:
		l.gain = 0
		if full { // otherwise there is no reason to move: a quiet night changes nothing
			l.at += max(1, math.Sqrt(l.at)/2)
		}
	case full:
		switch {
		case last == 0:
			l.down = l.gain < 0.5
		case l.at == l.before: // an end of the range: look what a step does
			l.down = !l.down
		default:
			followed := math.Log(throughput/last) / math.Log(l.at/l.before)
			l.gain += (max(-1, min(2, followed)) - l.gain) / 2 // one window alone is noise
			l.down = l.gain < 0.5
		}
		l.throughput, l.before = throughput, l.at
		if l.down {
			l.at *= 0.8
		} else {
			l.at *= 1.25
		}
	}
	l.at = max(float64(l.min), min(float64(l.max), l.at))
}
