package step

// inFlight counts the requests that are under way at once. Each is one member of a set,
// whose name is a random number of the request's own: to add or remove it twice is as
// once, so both may be repeated when an answer was lost.
//
// State: a is how many there are. In Redis a member is there until the end of its lease,
// Period, and is put off while its request runs. In this process a count has no leases:
// who would release a member dies with the count.
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

// correct takes a request out of the set; it is in it once, so it is not charged more.
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
