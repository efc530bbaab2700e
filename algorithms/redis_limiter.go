package algorithms

import (
	"context"
	"errors"
	"slices"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// Take implements [Limiter].
func (r *Redis) Take(ctx context.Context, checks ...Check) (Decision, error) {
	return r.decide(ctx, true, checks)
}

// Peek implements [Limiter].
func (r *Redis) Peek(ctx context.Context, checks ...Check) (Decision, error) {
	return r.decide(ctx, false, checks)
}

func (r *Redis) decide(ctx context.Context, charge bool, checks []Check) (Decision, error) {
	t, err := r.ready()
	if err != nil {
		return Decision{}, err
	}
	var room [4]step.Params
	ps, err := prepare(checks, &room)
	if err != nil {
		return Decision{}, err
	}
	if len(checks) == 0 {
		return Decision{Allowed: true}, nil
	}
	ctx = t.Within(ctx)
	if t.Sharded {
		return r.decideSharded(ctx, t, charge, checks, slices.Clone(ps)) // which keeps them: room need not be on the heap for the others
	}
	reply, err := t.Send(ctx, r.takeCall(charge, checks, ps))
	if isForeign(err) { // nothing was written: the other checks do not depend on that key
		return r.decideSharded(ctx, t, charge, checks, slices.Clone(ps))
	}
	if err != nil {
		return Decision{}, redisError(err)
	}
	d, err := answers(checks, ps, reply, charge)
	return d, redisError(err)
}

// Settle implements [Limiter]. If it returns an error, results that could not be
// settled are unchanged, and the others are settled.
func (r *Redis) Settle(ctx context.Context, charges ...Charge) ([]Result, error) {
	t, err := r.ready()
	if err != nil {
		return nil, err
	}
	results, corrections, err := prepareSettle(charges, SourceRedis)
	if len(corrections) == 0 {
		return results, err
	}
	return results, redisError(r.settle(t.Within(ctx), t, corrections))
}

// settle corrects charges: in one call or, where keys are sharded, in one for each.
// If a key has a foreign value, the one call has written nothing, and each charge is settled
// by itself.
func (r *Redis) settle(ctx context.Context, t *transport.Transport, corrections []settlement) error {
	if t.Sharded {
		return errors.Join(r.settleEach(ctx, t, corrections)...)
	}
	reply, err := t.Send(ctx, r.settleCall(corrections))
	if isForeign(err) && len(corrections) > 1 {
		return errors.Join(r.settleEach(ctx, t, corrections)...)
	}
	if err == nil {
		err = settled(corrections, reply)
	}
	for i := range corrections {
		if err != nil {
			corrections[i].failed(err)
		}
	}
	return err
}

// Reset implements [Limiter]: by one call or, where keys are sharded, by one for each check.
func (r *Redis) Reset(ctx context.Context, checks ...Check) error {
	t, err := r.ready()
	if err != nil {
		return err
	}
	var room [4]step.Params
	ps, err := prepare(checks, &room)
	if err != nil || len(checks) == 0 {
		return err
	}
	var calls []*transport.Call
	size := len(checks)
	if t.Sharded {
		size = 1
	}
	for keys := range slices.Chunk(r.keys(checks, ps), size) {
		args := append([]any{"del"}, keys...)
		calls = append(calls, &transport.Call{Args: args, Keys: args[1:]})
	}
	var errs []error
	for _, resp := range t.SendAll(t.Within(ctx), calls) {
		errs = append(errs, resp.Err)
	}
	return redisError(errors.Join(errs...))
}
