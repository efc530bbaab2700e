package failmode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Fallback decides by each check's Mode what its Next cannot decide. Its Take
// and Peek return an error only for checks, or fields, that are invalid. It is a Counter;
// where Next is none, Peek, Reset and Settle of what Next charged return
// [errors.ErrUnsupported].
//
// All or nothing holds across both: a request that the fallback denies gets
// back what Next charged for it, unless whether it did is unknown. Where Next is
// a [Breaker], or has a method Refuses as that has, what it refuses is decided
// first, and if that denies the request nothing is sent.
//
// Local counting is warm: it has followed what Next admitted in mode [Local]
// through this Fallback, and what was given back. So an outage frees nobody
// whom this process has limited, and neither does the next one.
//
// The fields must not change after first use. Fallback is safe for concurrent
// use.
type Fallback struct {
	// Next decides; required.
	Next algorithms.Limiter

	// Local counts in mode [Local]; nil means a Memory of its own.
	Local *algorithms.Memory

	// Instances is how many processes share the limits. Each counts at its
	// share: the limit divided by Instances, but no less than the cost. 0 means
	// as many as a heartbeat through Next last counted (see
	// [algorithms.Redis.Beat]), and 1 where there was none: set it if processes
	// may start while Redis is away.
	Instances int

	// Logger hears of the first decision that Next could not make and of the
	// first that it could make again, unless Next is a [Breaker], which says so
	// itself; nil means slog.Default().
	Logger *slog.Logger

	once   sync.Once
	wrong  error // what Validate said
	local  *algorithms.Memory
	gate   refuser // Next, if it is one
	share  algorithms.Share
	outage outage
	pulse  pulse

	givingBack background
}

// A refuser knows what it will not send: a [Breaker], or another circuit breaker
// around a limiter.
type refuser interface {
	Refuses(c algorithms.Check) bool
}

func (f *Fallback) ready() {
	f.once.Do(func() {
		if f.local = f.Local; f.local == nil {
			f.local = new(algorithms.Memory)
		}
		logger := cmp.Or(f.Logger, slog.Default())
		f.gate, _ = f.Next.(refuser)
		if f.gate == nil {
			f.outage.logger, f.outage.start = logger, time.Now()
		}
		f.share = f.shareOf
		if err := f.Validate(); err != nil {
			f.wrong = fmt.Errorf("failmode: fallback: %w", err)
		}
		if f.Instances == 0 {
			f.pulse.begin(f.Next, logger)
		}
	})
}

// Validate reports everything that is wrong with the fields, and with Next if it
// can tell, or nil.
func (f *Fallback) Validate() error {
	var errs []error
	if isNil(f.Next) {
		errs = append(errs, errors.New("next: required, got nil"))
	} else if next, ok := f.Next.(interface{ Validate() error }); ok {
		errs = append(errs, next.Validate())
	}
	if f.Local != nil {
		errs = append(errs, f.Local.Validate())
	}
	if f.Instances < 0 {
		errs = append(errs, fmt.Errorf("instances: must not be negative, got %d", f.Instances))
	}
	return errors.Join(errs...)
}

// Unwrap returns Next.
func (f *Fallback) Unwrap() algorithms.Limiter { return f.Next }

// Close stops the heartbeat, waits for what is being given back, and closes Next,
// if it can be closed.
func (f *Fallback) Close() error {
	f.ready()
	f.pulse.end()
	f.givingBack.end()
	if c, ok := f.Next.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Memory returns what counts in mode [Local], for its [algorithms.MemoryStats].
func (f *Fallback) Memory() *algorithms.Memory {
	f.ready()
	return f.local
}

// Take implements [algorithms.Limiter].
func (f *Fallback) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if f.ready(); f.wrong != nil {
		return algorithms.Decision{}, f.wrong
	}
	f.pulse.tick(ctx)
	d, err := f.decide(ctx, true, f.Next.Take, checks)
	if err == nil {
		f.local.Follow(d.Results, f.share)
	}
	return d, err
}

// Peek implements [algorithms.Counter].
func (f *Fallback) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if f.ready(); f.wrong != nil {
		return algorithms.Decision{}, f.wrong
	}
	next, ok := f.Next.(algorithms.Counter)
	if !ok {
		return algorithms.Decision{}, errors.ErrUnsupported
	}
	return f.decide(ctx, false, next.Peek, checks)
}

func (f *Fallback) decide(ctx context.Context, charge bool, next ask, checks []algorithms.Check) (algorithms.Decision, error) {
	if f.gate != nil && slices.ContainsFunc(checks, f.gate.Refuses) {
		return f.decideRefused(ctx, charge, next, checks)
	}
	d, err := next(ctx, checks...)
	return f.complete(ctx, charge, checks, d, err)
}

// Settle implements [algorithms.Counter]: each charge where it was made.
func (f *Fallback) Settle(ctx context.Context, cost int64, charged ...algorithms.Result) error {
	f.ready()
	var here, there []algorithms.Result
	for _, r := range charged {
		switch {
		case r.Charged == 0:
		case r.Source == algorithms.SourceFallback:
			r.Source = algorithms.SourceMemory
			here = append(here, r)
		default:
			there = append(there, r)
		}
	}
	if err := f.local.Settle(ctx, cost, here...); err != nil || len(there) == 0 {
		return err
	}
	f.local.Unfollow(cost, there, f.share)
	next, ok := f.Next.(algorithms.Counter)
	if !ok {
		return errors.ErrUnsupported
	}
	return next.Settle(ctx, cost, there...)
}

// Reset implements [algorithms.Counter].
func (f *Fallback) Reset(ctx context.Context, checks ...algorithms.Check) error {
	f.ready()
	next, ok := f.Next.(algorithms.Counter)
	if !ok {
		return errors.ErrUnsupported
	}
	return errors.Join(f.local.Reset(ctx, checks...), next.Reset(ctx, checks...))
}
