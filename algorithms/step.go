package algorithms

// A step is one algorithm as arithmetic on states. Times are Unix microseconds.
// Its methods at and take are one function in Lua.
type step interface {
	// at returns the state as it stands at now. mended says that the stored
	// one was a clock error: write it back even where nothing is charged.
	at(s state, now int64, p *params) (current state, mended bool)
	// take charges the cost to a current state, if it has room.
	take(s state, now int64, p *params) (charged state, ok bool)
	// charged is where a charge is to be found in the state: the window, the
	// entry or the time that it was charged to, which a clock that stepped back
	// makes a later one than At.
	charged(r *Result, p *params) int64
	// correct corrects a charge in a current state.
	correct(s state, now int64, p *params, ch charge) state
	// retryAfter is how long until a current state that has no room has it.
	retryAfter(s state, now int64, p *params) int64
	// remaining is how many units a current state has left.
	remaining(s state, now int64, p *params) int64
	// resetAfter is how long until the state equals never seen: what
	// ResetAfter says, and how long a store has to remember it.
	resetAfter(s state, now int64, p *params) int64
}

// The codes of the steps are their places in the scripts' tables, from 1.
const (
	codeFixedWindow = iota + 1
	codeSlidingWindow
	codeSlidingLog
	codeBucket
	codeQueue
)

var _ = [...]step{
	codeFixedWindow:   fixedWindow{},
	codeSlidingWindow: slidingWindow{},
	codeSlidingLog:    slidingLog{},
	codeBucket:        bucket{},
	codeQueue:         queue{},
}

// An algorithm has the methods of its step. They switch, because a call through
// an interface would have every decision in memory allocate its params.

func (a *algorithm) at(s state, now int64, p *params) (state, bool) {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.at(s, now, p)
	case codeSlidingWindow:
		return slidingWindow{}.at(s, now, p)
	case codeSlidingLog:
		return slidingLog{}.at(s, now, p)
	}
	return bucket{}.at(s, now, p)
}

func (a *algorithm) take(s state, now int64, p *params) (state, bool) {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.take(s, now, p)
	case codeSlidingWindow:
		return slidingWindow{}.take(s, now, p)
	case codeSlidingLog:
		return slidingLog{}.take(s, now, p)
	}
	return bucket{}.take(s, now, p)
}

func (a *algorithm) charged(r *Result, p *params) int64 {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.charged(r, p)
	case codeSlidingWindow:
		return slidingWindow{}.charged(r, p)
	case codeSlidingLog:
		return slidingLog{}.charged(r, p)
	case codeQueue:
		return queue{}.charged(r, p)
	}
	return bucket{}.charged(r, p)
}

func (a *algorithm) correct(s state, now int64, p *params, ch charge) state {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.correct(s, now, p, ch)
	case codeSlidingWindow:
		return slidingWindow{}.correct(s, now, p, ch)
	case codeSlidingLog:
		return slidingLog{}.correct(s, now, p, ch)
	case codeQueue:
		return queue{}.correct(s, now, p, ch)
	}
	return bucket{}.correct(s, now, p, ch)
}

func (a *algorithm) retryAfter(s state, now int64, p *params) int64 {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.retryAfter(s, now, p)
	case codeSlidingWindow:
		return slidingWindow{}.retryAfter(s, now, p)
	case codeSlidingLog:
		return slidingLog{}.retryAfter(s, now, p)
	}
	return bucket{}.retryAfter(s, now, p)
}

func (a *algorithm) remaining(s state, now int64, p *params) int64 {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.remaining(s, now, p)
	case codeSlidingWindow:
		return slidingWindow{}.remaining(s, now, p)
	case codeSlidingLog:
		return slidingLog{}.remaining(s, now, p)
	}
	return bucket{}.remaining(s, now, p)
}

func (a *algorithm) resetAfter(s state, now int64, p *params) int64 {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.resetAfter(s, now, p)
	case codeSlidingWindow:
		return slidingWindow{}.resetAfter(s, now, p)
	case codeSlidingLog:
		return slidingLog{}.resetAfter(s, now, p)
	}
	return bucket{}.resetAfter(s, now, p)
}
