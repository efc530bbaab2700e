package algorithms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// defaultBudget is how long a decision may take where Redis.Budget is 0.
const defaultBudget = 50 * time.Millisecond

// Redis counts in Redis, for every process that shares it: one script decides
// all checks of a request, by the server's clock, in one round trip.
// On its own it fails when Redis does: put it into a failmode.Guard.
//
// Where keys are sharded (Redis Cluster, Ring) every check is one script call,
// all in one flush of pipelines; if an enforced one denies, a second flush
// inside the same budget gives back what the others were charged. That never
// over-admits; for the length of a flush, two requests may deny each other. (A
// leaky_bucket takes a slot back only while it is the last.) A request with a
// check that was denied a moment ago is looked at before it is charged, so that
// denied requests do not drain what they share with others. What could not be
// given back in time is still in Charged of the results.
//
// No decision is executed twice: commands are never retried, whatever the
// client's options say, and only a script that Redis does not know is sent
// again, with its text. A decision ignores the caller's cancellation, so that
// clients that hang up are counted, and takes no longer than Budget.
//
// The fields must not change after first use. Redis is safe for concurrent use.
type Redis struct {
	// Client sends the commands; required. It stays the caller's to close.
	Client Client

	// Namespace leads every key, so that services that share a Redis do not
	// share counts. Required; printable ASCII without spaces, colons and
	// braces, at most 64 bytes.
	Namespace string

	// Budget bounds a decision, whose error is then [context.DeadlineExceeded];
	// 0 means 50 ms. It holds whatever the client's options are, and is cheapest
	// to keep where the client heeds deadlines by itself, as one made with
	// [FailFast] does unless it has a Dialer, OnConnect, Limiter, credentials
	// provider or the like. Such a client is called directly, so a go-redis hook
	// that blocks can exceed the budget: hooks cannot be seen from outside.
	Budget time.Duration

	// Sharded says that the client spreads keys over servers. It is known for
	// go-redis' own clients; set it for a wrapped ClusterClient or Ring.
	Sharded bool

	once      sync.Once
	invalid   error
	transport *transport
}

// Validate reports everything that is wrong with the fields, or nil.
func (r *Redis) Validate() error {
	var errs []error
	if isNil(r.Client) {
		errs = append(errs, errors.New("client: required, got nil"))
	} else if k := kindOf(r.Client, r.Sharded); k.invalid != nil {
		errs = append(errs, fmt.Errorf("client: %w", k.invalid))
	}
	if err := validateNamespace(r.Namespace); err != nil {
		errs = append(errs, err)
	}
	if r.Budget < 0 {
		errs = append(errs, fmt.Errorf("budget: must not be negative, got %s", r.Budget))
	}
	return errors.Join(errs...)
}

// budget is how long a decision may take.
func (r *Redis) budget() time.Duration { return cmp.Or(r.Budget, defaultBudget) }

// ready prepares first use. The error says that fields are invalid.
func (r *Redis) ready() (*transport, error) {
	r.once.Do(func() {
		r.transport = newTransport(r)
		if err := r.Validate(); err != nil {
			r.invalid = redisError(err)
		}
	})
	return r.transport, r.invalid
}

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
	var room [4]params
	ps, err := prepare(checks, &room)
	if err != nil {
		return Decision{}, err
	}
	if len(checks) == 0 {
		return Decision{Allowed: true}, nil
	}
	ctx, cancel := t.within(ctx)
	defer cancel()
	if t.sharded {
		return r.decideSharded(ctx, t, charge, checks, ps)
	}
	reply, err := t.send(ctx, r.takeCall(charge, checks, ps))
	if err != nil {
		return Decision{}, redisError(err)
	}
	d, err := answers(checks, ps, reply, charge)
	return d, redisError(err)
}

// redisError says where an error of the store comes from.
func redisError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("algorithms: redis: %w", err)
}

// Settle implements [Limiter]. Where the error is not nil, results that could
// not be settled are as they were.
func (r *Redis) Settle(ctx context.Context, charges ...Charge) ([]Result, error) {
	t, err := r.ready()
	if err != nil {
		return nil, err
	}
	results, corrections, err := prepareSettle(charges, SourceRedis)
	if len(corrections) == 0 {
		return results, err
	}
	ctx, cancel := t.within(ctx)
	defer cancel()
	return results, errors.Join(err, redisError(r.settle(ctx, t, corrections)))
}

// settle corrects charges, in one call or, where keys are sharded, in one for each.
func (r *Redis) settle(ctx context.Context, t *transport, corrections []correction) error {
	if !t.sharded {
		reply, err := t.send(ctx, r.settleCall(corrections))
		if err != nil {
			return err
		}
		return settled(corrections, reply)
	}
	return errors.Join(r.settleEach(ctx, t, corrections)...)
}

// Ban implements [Limiter]. It is not supported yet.
func (r *Redis) Ban(context.Context, time.Duration, ...Check) error { return errNoBans }

// Reset implements [Limiter].
func (r *Redis) Reset(ctx context.Context, checks ...Check) error {
	t, err := r.ready()
	if err != nil {
		return err
	}
	var room [4]params
	ps, err := prepare(checks, &room)
	if err != nil || len(checks) == 0 {
		return err
	}
	keys := make([]string, len(checks))
	for i := range checks {
		keys[i] = r.key(&checks[i], &ps[i])
	}
	ctx, cancel := t.within(ctx)
	defer cancel()
	return redisError(t.del(ctx, keys))
}

func (r *Redis) key(c *Check, p *params) string {
	var room [128]byte
	return string(appendKey(room[:0], r.Namespace, c, p.algorithm))
}
