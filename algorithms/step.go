package algorithms

// A step is one algorithm as arithmetic on states. Times are Unix microseconds.
// Its methods at and take are one function in Lua.
type step interface {
	// at returns the state as it stands at now. mended says that the stored
	// one was a clock error: write it back even where nothing is charged.
	at(s state, now int64, p *params) (current state, mended bool)
	// take charges the cost to a current state, if it has room.
	take(s state, now int64, p *params) (charged state, ok bool)
	// charged is where the cost is that was charged last to a state. After a
	// clock stepped back that may be later than now.
	charged(s state, now int64, p *params) placed
	// correct corrects a charge in a current state.
	correct(s state, now int64, p *params, c *correction) state
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

func (a *algorithm) charged(s state, now int64, p *params) placed {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.charged(s, now, p)
	case codeSlidingWindow:
		return slidingWindow{}.charged(s, now, p)
	case codeSlidingLog:
		return slidingLog{}.charged(s, now, p)
	case codeQueue:
		return queue{}.charged(s, now, p)
	}
	return bucket{}.charged(s, now, p)
}

func (a *algorithm) correct(s state, now int64, p *params, c *correction) state {
	switch a.code {
	case codeFixedWindow:
		return fixedWindow{}.correct(s, now, p, c)
	case codeSlidingWindow:
		return slidingWindow{}.correct(s, now, p, c)
	case codeSlidingLog:
		return slidingLog{}.correct(s, now, p, c)
	case codeQueue:
		return queue{}.correct(s, now, p, c)
	}
	return bucket{}.correct(s, now, p, c)
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
