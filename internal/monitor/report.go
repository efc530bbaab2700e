package monitor

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A kind says what an error may prove about a shard, in whatever words it is.
type kind int

const (
	fine   kind = iota // nothing: not sent, or the script itself says that the key has a foreign value
	late               // no answer in time: the shard or this process may be slow
	failed             // an error: the shard or the key may be at fault
)

func kindOf(err error) kind {
	switch transport.ClassOf(err) {
	case "", transport.ClassBusy:
		return fine
	case transport.ClassTimeout:
		return late
	}
	if errors.Is(err, transport.ErrForeign) {
		return fine
	}
	return failed
}

// A blamed error is the shard's fault, as far as is known.
type blamed struct{ error }

func (b blamed) Unwrap() error { return b.error }

// IsOutage reports whether an error that a Report has seen is the shard's fault, as far
// as is known. Otherwise this process may be busy, or the key may have a foreign value.
func IsOutage(err error) bool {
	_, ok := errors.AsType[blamed](err)
	return ok
}

// Report counts the outcome of a request's checks: one call for each circuit. The circuit
// of each result stands at its place. If err is not nil, no check was decided. Errors for
// which a shard is blamed say so from then on: see [IsOutage].
func (m *Monitor) Report(ctx context.Context, sent time.Time, circuits []*Circuit, results []algorithms.Result, err error) {
	m.calls.count(sent, results, err)
	var now time.Time // read only where something is counted
	for i, c := range circuits {
		if slices.Contains(circuits[:i], c) {
			continue
		}
		var worst failure
		for j := i; j < len(circuits); j++ {
			if r := &results[j]; circuits[j] == c && r.Err != nil && (worst.err == nil || kindOf(r.Err) > worst.kind) {
				worst = failure{kindOf(r.Err), maphash.String(m.seed, r.Check.Key), transport.BatchOf(r.Err), r.Err}
			}
		}
		if worst.err == nil && !c.is(watched) {
			continue // the usual case
		}
		if now.IsZero() {
			now = time.Now()
		}
		if m.count(ctx, sent, now, c, worst) {
			for j := i; j < len(circuits); j++ {
				if r := &results[j]; circuits[j] == c && kindOf(r.Err) == failed {
					r.Err = blamed{r.Err}
				}
			}
		}
	}
}

// count counts one call through a circuit. It reports whether the shard is to blame for
// an error.
func (m *Monitor) count(ctx context.Context, sent, now time.Time, c *Circuit, f failure) (blamed bool) {
	var probe, trip bool
	switch {
	case f.err == nil:
		c.succeeded(sent, now)
		return false
	case f.kind != fine:
		probe, trip, blamed = c.failed(sent, now, f)
	}
	switch {
	case probe:
		m.begin(func() { m.check(c, f.err) })
	case trip:
		m.begin(func() { m.trip(c) })
	}
	if !blamed && transport.Answered(f.err) && transport.ClassOf(f.err) != transport.ClassBusy {
		m.logUnexpected(ctx, f.err)
	}
	return blamed
}

// logUnexpected logs an error of a shard that is well otherwise.
func (m *Monitor) logUnexpected(ctx context.Context, err error) {
	m.unexpected.Do(func() {
		m.logger.ErrorContext(ctx, "ratelimit: unexpected Redis error; manual action required", "error", err)
	})
}
