package step

// inFlight counts the requests that are under way at once. In Redis each process tells how
// many it has, for as long as a lease, Period; see internal/inflight. In this process a count
// has no leases: who would end a request dies with the count.
//
// State: a is how many there are.
type inFlight struct {
	inCells
	asNow
}

// tryAgain is the RetryAfter in µs: nobody knows when a request will end.
const tryAgain = 1_000_000

func (inFlight) At(s State, _ int64, _ Params) (State, bool) { return s, false }

func (inFlight) Take(s State, _ int64, p Params) (State, Placed, bool) {
	return State{A: s.A + p.Cost}, Placed{At: p.ID}, s.A+p.Cost <= p.rate
}

// correct ends a request; it costs 1, so it is not charged more.
func (inFlight) correct(s State, _ int64, c *Correction) State {
	return State{A: max(s.A+min(c.Delta, 0), 0)}
}

// Left says of no count when it is over: see until.
func (inFlight) Left(s State, _ int64, p Params) (remaining, resetAfter int64) {
	return p.rate - s.A, 0
}

func (inFlight) retryAfter(State, int64, Params) int64 { return tryAgain }

func (inFlight) Arguments(args []any, p Params) []any { return append(args, p.rate, p.Period, p.ID) }

func (inFlight) Corrections(args []any, c *Correction) []any { return append(args, c.Delta) }

// A count of requests under way is never in a sketch, of which nothing can be taken.

func (inFlight) Roll(cell State, _ int64, _ Params) State { return cell }

func (inFlight) UsedUntil(_, _ int64, p Params) State { return State{A: p.rate} }
