package algorithms

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultBudget is how long a decision may take where Redis.Budget is 0.
const DefaultBudget = 50 * time.Millisecond

// A Client sends commands to Redis. All of go-redis' clients do: Client,
// ClusterClient, Ring and those backed by Sentinel.
type Client interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// A pipeliner sends several commands at once. Sharded clients must be one.
type pipeliner interface {
	Pipeline() redis.Pipeliner
}

// Redis counts in Redis, for every process that shares it: one script decides
// all checks of a request, by the server's clock, in one round trip. It is a
// [Counter].
//
// Where keys are sharded (Redis Cluster, Ring) every check is one script call,
// all in one flush of a pipeline; if an enforced one denies, a second flush
// inside the same budget gives back what the others were charged. That never
// over-admits; for the length of a flush, two requests may deny each other. (A
// leaky_bucket takes a slot back only while it is the last.)
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

	// Budget bounds a decision; 0 means [DefaultBudget]. It holds on clients
	// with any options, best on those with ContextTimeoutEnabled.
	Budget time.Duration

	// Sharded says that the client spreads keys over servers. It is known for
	// go-redis' own clients; set it for a wrapped ClusterClient or Ring.
	Sharded bool

	once    sync.Once
	invalid error
	sender  sender
	nodes   nodes
}

// Validate reports everything that is wrong with the fields, or nil.
func (r *Redis) Validate() error {
	var errs []error
	if r.Client == nil || isNil(r.Client) {
		errs = append(errs, errors.New("client: required, got nil"))
	} else if _, ok := r.Client.(pipeliner); !ok && r.sharded() {
		errs = append(errs, fmt.Errorf("client: a sharded client needs the method Pipeline; %T has none", r.Client))
	}
	if err := validateNamespace(r.Namespace); err != nil {
		errs = append(errs, err)
	}
	if r.Budget < 0 {
		errs = append(errs, fmt.Errorf("budget: must not be negative, got %s", r.Budget))
	}
	return errors.Join(errs...)
}

func isNil(c Client) bool {
	v := reflect.ValueOf(c)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func (r *Redis) sharded() bool {
	switch r.Client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		return true
	}
	return r.Sharded
}

// ready prepares first use.
func (r *Redis) ready() error {
	r.once.Do(func() {
		if err := r.Validate(); err != nil {
			r.invalid = fmt.Errorf("algorithms: redis: %w", err)
			return
		}
		r.sender = newSender(r.Client, r.Budget, r.sharded())
	})
	return r.invalid
}

// Take implements [Limiter].
func (r *Redis) Take(ctx context.Context, checks ...Check) (Decision, error) {
	d, err := r.decide(ctx, true, checks)
	if err != nil {
		return Decision{}, fmt.Errorf("algorithms: redis: take: %w", err)
	}
	return d, nil
}

// Peek implements [Counter].
func (r *Redis) Peek(ctx context.Context, checks ...Check) (Decision, error) {
	d, err := r.decide(ctx, false, checks)
	if err != nil {
		return Decision{}, fmt.Errorf("algorithms: redis: peek: %w", err)
	}
	return d, nil
}

func (r *Redis) decide(ctx context.Context, charge bool, checks []Check) (Decision, error) {
	if err := r.ready(); err != nil {
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
	ctx, cancel := r.sender.budget(ctx)
	defer cancel()
	if r.sender.sharded {
		return r.decideSharded(ctx, charge, checks, ps)
	}
	reply, err := r.sender.send(ctx, r.takeCall(charge, checks, ps))
	if err != nil {
		return Decision{}, err
	}
	return answers(checks, ps, reply, charge)
}

// Settle implements [Counter].
func (r *Redis) Settle(ctx context.Context, cost int64, charged ...Result) error {
	if err := r.ready(); err != nil {
		return err
	}
	corrections, err := prepareSettle(cost, charged, SourceRedis)
	if err != nil || len(corrections) == 0 {
		return err
	}
	ctx, cancel := r.sender.budget(ctx)
	defer cancel()
	if _, err := r.settle(ctx, corrections); err != nil {
		return fmt.Errorf("algorithms: redis: settle: %w", err)
	}
	return nil
}

// settle returns for each correction the clock and the state of its key.
func (r *Redis) settle(ctx context.Context, corrections []correction) ([][]int64, error) {
	if r.sender.sharded {
		calls := make([]*call, len(corrections))
		for i := range corrections {
			calls[i] = r.settleCall(corrections[i : i+1])
		}
		replies, errs := r.sender.sendAll(ctx, calls)
		return replies, errors.Join(errs...)
	}
	reply, err := r.sender.send(ctx, r.settleCall(corrections))
	if err != nil {
		return nil, err
	}
	if err := checkReply(reply, 3, len(corrections)); err != nil {
		return nil, err
	}
	replies := make([][]int64, len(corrections))
	for i := range replies {
		replies[i] = append([]int64{reply[0]}, reply[1+3*i:4+3*i]...)
	}
	return replies, nil
}

// Reset implements [Counter].
func (r *Redis) Reset(ctx context.Context, checks ...Check) error {
	if err := r.ready(); err != nil {
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
	ctx, cancel := r.sender.budget(ctx)
	defer cancel()
	if err := r.sender.del(ctx, keys); err != nil {
		return fmt.Errorf("algorithms: redis: reset: %w", err)
	}
	return nil
}

func (r *Redis) key(c *Check, p *params) string {
	var room [128]byte
	return string(appendKey(room[:0], r.Namespace, c, p.algorithm))
}
