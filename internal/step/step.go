package step

import (
	"math"
	"time"
)

// A Row describes an algorithm. A new algorithm is a row of Table, a step in a Go file
// and the step's twin in Lua; doc.go says how. Code elsewhere does not compare
// algorithms: a difference between them is a field of Row or a method of the step.
type Row struct {
	Number   uint16 // index in Table, from 1
	Name     string
	Short    string // its name in keys; the digit is the form of the states, see testdata/forms.txt
	Step     step
	Code     int64  // of the twin in internal/script/common.lua, which rows may share
	MaxRate  int64  // the largest Rate
	why      string // the reason for MaxRate, for errors
	maxUsed  int64  // the most units that a window or log can hold, debts included
	Bucket   bool   // has a Burst, and its params have times to refill
	Queue    bool   // has a Delay; Burst is required
	Aligned  bool   // counts in windows aligned to the Unix epoch
	Calendar bool   // counts in the windows of a calendar; the arguments change with the time
	Summary  bool   // its state is not three numbers: scripts return a summary of it
	Log      bool   // the state has entries, in a Memory too
	Copied   bool   // a process may decide by a copy of its state, and tell the units later
	Held     bool   // a charge is a request in progress: it costs 1, ends with the request, and Period is its lease
}

// DeniedByDelay reports whether a check that does not fit was denied only because its
// slot would begin after its longest delay, if it has one: the queue had room.
func (r *Row) DeniedByDelay(bounded bool, remaining, cost int64) bool {
	return bounded && r != nil && r.Queue && remaining >= max(cost, 1)
}

// A step is one algorithm as arithmetic on states. Times are Unix microseconds. At and Take
// are one function in Lua; correct is another.
//
// Params are passed by value: a pointer would escape through the interface, and every
// decision in memory would allocate.
type step interface {
	// At returns the state as it stands at now. healed is true if the clock was wrong
	// when the state was written: more than a period ahead of now. A Take then writes
	// the current state even if it charges nothing.
	At(s State, now int64, p Params) (current State, healed bool)
	// Take charges the cost to a current state, and returns where the charge is. ok
	// says whether the cost fits.
	Take(s State, now int64, p Params) (charged State, where Placed, ok bool)
	// correct corrects a charge in a current state.
	correct(s State, now int64, c *Correction) State
	// Left returns how many units a current state has left, and how long it takes
	// until the state equals that of a key never seen. A store must remember it for
	// as long.
	Left(s State, now int64, p Params) (remaining, resetAfter int64)
	// retryAfter returns how long it takes until the cost fits, for a current state in
	// which it does not.
	retryAfter(s State, now int64, p Params) int64

	// Arguments appends the arguments of At and Take in Lua. Corrections appends those
	// that correct has beside these.
	Arguments(args []any, p Params) []any
	Corrections(args []any, c *Correction) []any

	sketched // for sketches
	followed // for memories that mirror another store
}

// sketched converts states to and from the cells of a sketch. A cell holds one state for
// many keys, so every conversion may only add units.
type sketched interface {
	// ToCell returns a state of constant size that has at least the units of s, and the
	// time at which that state equals that of a key never seen. For s, that is until.
	ToCell(s State, until, now int64, p Params) (State, int64)
	// Roll returns a cell as it stands at now. Rolled cells can be compared.
	Roll(cell State, now int64, p Params) State
	// FromCell returns a current state that has at least the units of every key in a
	// rolled cell.
	FromCell(cell State, now int64, p Params) State
	// UsedUntil returns a current state that admits nothing until a later time, at which
	// it equals that of a key never seen.
	UsedUntil(until, now int64, p Params) State
}

// followed adds units to a state that other processes have used at unknown times.
type followed interface {
	// UsedBefore counts units as used before now, as many as the current state allows,
	// and returns how many must still be counted as used now.
	UsedBefore(s State, now, units int64, p Params) (State, int64)
}

// inCells is for steps whose cells are plain states.
type inCells struct{}

func (inCells) ToCell(s State, until, _ int64, _ Params) (State, int64) { return s, until }

func (inCells) FromCell(cell State, _ int64, _ Params) State { return cell }

// asNow is for steps that count all such units as used now.
type asNow struct{}

func (asNow) UsedBefore(s State, _, units int64, _ Params) (State, int64) { return s, units }

// A State is what a store remembers of a key: three whole numbers with a meaning of their
// own for each step. The zero value is a key never seen.
type State struct {
	A, B, C int64
	Log     []LogEntry // sliding_log in memory; Redis has a list
}

// A LogEntry is a time at which units came, and the sum of all units up to then, so that
// entries are found by binary search. Times rise. The first entry of a log has expired; it
// is kept for its sum. Sums stay below 2^53: they begin at 0 again after each period
// without a charge, and 2^53 units take more than 10^7 periods.
type LogEntry struct{ at, sum int64 }

// Placed is where a charge is in a state: the start of its window, or the time of its
// entry, of the charge or of its slot. A slot also has a fraction of a microsecond, with
// the rate as its denominator. If a clock stepped back, the time may be later than now.
type Placed struct{ At, frac int64 }

// At returns the state as it stands at now; see the step.
func (p *Params) At(s State, now int64) (current State, healed bool) { return p.Step.At(s, now, *p) }

// Current returns the state as it stands at now.
func (p *Params) Current(s State, now int64) State {
	s, _ = p.At(s, now)
	return s
}

// Take charges the cost to a current state; see the step.
func (p *Params) Take(s State, now int64) (charged State, where Placed, ok bool) {
	return p.Step.Take(s, now, *p)
}

// Full reports whether a state is at the end of the exact range: of further units, it holds
// only a part, or none.
func (p *Params) Full(s State) bool {
	switch {
	case p.Bucket:
		return s.A >= MaxDuration
	case p.Log:
		return s.A >= p.maxUsed
	}
	return !p.Held && s.B >= p.maxUsed
}

// Until returns when a current state equals that of a key never seen.
func (p *Params) Until(s State, now int64) int64 {
	_, resetAfter := p.Step.Left(s, now, *p)
	return p.until(s, now, resetAfter)
}

func (p *Params) until(s State, now, resetAfter int64) int64 {
	if p.Held && s.A > 0 {
		return endless
	}
	return now + resetAfter
}

// endless is when a count with requests under way equals one never seen, for a Memory.
const endless = math.MaxInt64

// Numbers returns the three numbers, which a Result carries, so that a Guard can decide by
// them again.
func (s State) Numbers() [3]int64 { return [3]int64{s.A, s.B, s.C} }

// An Answer is what a Result says about a count.
type Answer struct {
	Remaining                     int64
	RetryAfter, ResetAfter, Delay time.Duration
	Until                         int64 // when the state equals that of a key never seen
}

// Answer computes the answer from a state: the one after the charge or, if nothing was
// charged, the one before. Both stores use it.
func (p *Params) Answer(a *Answer, allowed bool, s *State, where Placed, now int64) {
	var resetAfter int64
	a.Remaining, resetAfter = p.Step.Left(*s, now, *p)
	a.ResetAfter, a.Until = Micros(resetAfter), p.until(*s, now, resetAfter)
	switch {
	case allowed && p.Queue:
		a.Delay = Micros(where.At - now)
	case allowed:
	case p.never:
		a.RetryAfter = never
	default:
		a.RetryAfter = Micros(p.Step.retryAfter(*s, now, *p))
	}
}

// A Trace is what a result remembers of its count, to settle the charge and to decide by
// the state again.
type Trace struct {
	Charge   Placed   // where the charge is in the state
	Known    bool     // State is known
	State    [3]int64 // after the decision, if the store returned it, and it is no summary
	Followed int64    // units of the charge that a memory that mirrors the store has charged
}

// Least combines two states of the same time into the one that has fewer units: of buckets
// the earlier TAT, and of windows, which have the same start, the lesser counts.
func Least(s, t State) State {
	switch {
	case s.A < t.A:
		return s
	case s.A > t.A:
		return t
	}
	return State{A: s.A, B: min(s.B, t.B), C: min(s.C, t.C)}
}

// Most combines two states of the same time into the one that has more units.
func Most(s, t State) State {
	switch {
	case s.A > t.A:
		return s
	case s.A < t.A:
		return t
	}
	return State{A: s.A, B: max(s.B, t.B), C: max(s.C, t.C)}
}
