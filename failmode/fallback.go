package failmode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"reflect"
	"sync"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Fallback decides by each check's Mode what its Next cannot decide. Its Take
// and Peek return an error only for checks that are invalid. It is a Counter;
// where Next is none, Peek, Reset and Settle of what Next charged return
// [errors.ErrUnsupported].
//
// All or nothing holds across both: a request that the fallback denies gets
// back what Next charged for it, unless whether it did is unknown.
//
// The fields must not change after first use. Fallback is safe for concurrent
// use.
type Fallback struct {
	// Next decides; required.
	Next algorithms.Limiter

	// Local counts in mode [Local]; nil means a Memory of its own.
	Local *algorithms.Memory

	// Instances is how many processes share the limits; 0 means 1. Each counts
	// at its share: the limit divided by Instances, but no less than the cost.
	Instances int

	// Logger hears of the first decision that Next could not make and of the
	// first that it could make again; nil means slog.Default().
	Logger *slog.Logger

	once   sync.Once
	local  *algorithms.Memory
	outage outage
}

func (f *Fallback) ready() {
	f.once.Do(func() {
		if f.local = f.Local; f.local == nil {
			f.local = new(algorithms.Memory)
		}
		if f.outage.logger = f.Logger; f.outage.logger == nil {
			f.outage.logger = slog.Default()
		}
	})
}

// Validate reports everything that is wrong with the fields, and with Next if it
// can tell, or nil.
func (f *Fallback) Validate() error {
	var errs []error
	if v := reflect.ValueOf(f.Next); f.Next == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		errs = append(errs, errors.New("next: required, got nil"))
	} else if next, ok := f.Next.(interface{ Validate() error }); ok {
		errs = append(errs, next.Validate())
	}
	if f.Instances < 0 {
		errs = append(errs, fmt.Errorf("instances: must not be negative, got %d", f.Instances))
	}
	return errors.Join(errs...)
}

// Unwrap returns Next.
func (f *Fallback) Unwrap() algorithms.Limiter { return f.Next }

// Close closes Next, if it can be closed. The fallback holds nothing else.
func (f *Fallback) Close() error {
	if c, ok := f.Next.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// Take implements [algorithms.Limiter].
func (f *Fallback) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	d, err := f.Next.Take(ctx, checks...)
	return f.complete(ctx, true, checks, d, err)
}

// Peek implements [algorithms.Counter].
func (f *Fallback) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	next, ok := f.Next.(algorithms.Counter)
	if !ok {
		return algorithms.Decision{}, errors.ErrUnsupported
	}
	d, err := next.Peek(ctx, checks...)
	return f.complete(ctx, false, checks, d, err)
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
	err := f.local.Settle(ctx, cost, here...)
	if len(there) == 0 {
		return err
	}
	next, ok := f.Next.(algorithms.Counter)
	if !ok {
		return errors.Join(err, errors.ErrUnsupported)
	}
	return errors.Join(err, next.Settle(ctx, cost, there...))
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
