package simulate

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
)

// A Request of a client, at a time counted from an edge of a window.
type Request struct {
	At       time.Duration
	Duration time.Duration // in_flight: how long it is under way, if it is admitted
	Client   int
	Cost     int64
}

// An Outcome is what became of a request.
type Outcome struct {
	Allowed   bool
	Served    time.Duration // when, if it was allowed
	Remaining int64         // what the client was told
}

// Memory is an algorithms.Memory in virtual time, which its user moves.
type Memory struct {
	algorithms.Memory
	now time.Time
}

// NewMemory returns a Memory at an edge of the windows of a period.
func NewMemory(period time.Duration) *Memory {
	m := &Memory{now: edge(period)}
	m.Memory.Now = func() time.Time { return m.now }
	return m
}

// Set sets the time, which must not fall.
func (m *Memory) Set(now time.Time) { m.now = now }

// edge is the first edge of a window in this century. Windows are counted from
// the Unix epoch.
func edge(period time.Duration) time.Time {
	const century = 946_684_800_000_000 // in µs
	p := period.Microseconds()
	return time.UnixMicro((century + p - 1) / p * p)
}

// An ending is when a request in flight is over.
type ending struct {
	at     time.Duration
	charge algorithms.Charge
}

// Run sends the requests, which are in order, to a limit, and ends those in flight when
// their time is over, before a request that arrives at that time is decided. It returns what became
// of each, and what was left after each time in peeks, also in order: the least
// Remaining of all clients so far.
func Run(requests []Request, limit algorithms.Limit, peeks ...time.Duration) (outcomes []Outcome, left []int64, err error) {
	m, start := NewMemory(limit.Period), edge(limit.Period)
	outcomes, left = make([]Outcome, len(requests)), make([]int64, len(peeks))
	var clients []algorithms.Check
	known := make(map[int]bool)
	var endings []ending
	moveTo := func(at time.Duration) error {
		m.Set(start.Add(at))
		for ; len(endings) > 0 && endings[0].at <= at; endings = endings[1:] {
			if _, err := m.Settle(context.Background(), endings[0].charge); err != nil {
				return err
			}
		}
		return nil
	}
	peek := func(i int) error {
		if err := moveTo(peeks[i]); err != nil {
			return err
		}
		left[i] = limit.Quota()
		for _, check := range clients {
			d, err := m.Peek(context.Background(), check)
			if err != nil {
				return err
			}
			left[i] = min(left[i], d.Results[0].Remaining)
		}
		return nil
	}
	next := 0
	for r, q := range requests {
		for ; next < len(peeks) && peeks[next] < q.At; next++ {
			if err := peek(next); err != nil {
				return nil, nil, err
			}
		}
		if err := moveTo(q.At); err != nil {
			return nil, nil, err
		}
		check := algorithms.Check{Rule: "simulated", Key: strconv.Itoa(q.Client), Limit: limit, Cost: q.Cost}
		d, err := m.Take(context.Background(), check)
		if err != nil {
			return nil, nil, err
		}
		if d.Allowed && step.Lookup(uint16(limit.Algorithm)).Held {
			end := ending{q.At + q.Duration, algorithms.Charge{Result: d.Results[0]}}
			i, _ := slices.BinarySearchFunc(endings, end, func(a, b ending) int { return cmp.Compare(a.at, b.at) })
			endings = slices.Insert(endings, i, end)
		}
		outcomes[r] = Outcome{d.Allowed, q.At + d.Delay(), d.Results[0].Remaining}
		if !known[q.Client] {
			known[q.Client] = true
			check.Cost = 1
			clients = append(clients, check)
		}
	}
	for ; next < len(peeks); next++ {
		if err := peek(next); err != nil {
			return nil, nil, err
		}
	}
	return outcomes, left, nil
}
