package algorithms

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/given"
	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// defaultBudget is how long a decision may take where Redis.Budget is 0.
const defaultBudget = 50 * time.Millisecond

// Redis counts in a Redis server, for all processes that share the server. One script
// decides all checks of a request, by the server's clock, in one round trip. If the server
// fails, a Redis returns an error: put the Redis into a failmode.Guard.
//
// If keys are sharded (Redis Cluster, Ring), the checks of each key are one script call,
// and all calls go out in one flush of pipelines. If an enforced check denies, a second
// flush within the same Budget refunds what the other calls have charged. This never
// admits more than the limit, but during a flush two requests may deny each other. (A
// leaky_bucket refunds a slot only while it is the last of the queue.) When a
// failmode.Guard asks again about a key that was denied before, the checks are peeked
// before they are charged, so that denied requests do not drain counts that they share
// with others. A charge that could not be refunded in time stays in Charged of its result.
//
// No decision is executed twice, whatever the client's options are. A command is sent
// again only if the server certainly did not run it: a script that the server does not
// know, now with its text, and decisions that the server refuses to run together, now one
// by one. A decision ignores the caller's cancellation, so that clients that hang up are
// counted. It takes no longer than Budget. If a hook of the client panics, so do all
// callers whose decisions were in the same pipeline.
//
// The fields must not change after first use. Redis is safe for concurrent use.
type Redis struct {
	// Client sends the commands; required. The caller closes it.
	Client Client

	// Namespace is the first part of every key, so that services that share a
	// Redis do not share counts. Required; at most 64 bytes of printable ASCII, without
	// spaces, colons and braces, and not starting with '#'.
	Namespace string

	// Budget bounds a decision: 1 ms to a minute; 0 means 50 ms. A late decision
	// fails with [context.DeadlineExceeded].
	//
	// The budget holds whatever the client's options are. It costs least with a client
	// that respects deadlines by itself: one made with [FailFast] and without a Dialer,
	// OnConnect, Limiter or credentials provider. Such a client is called directly. But a
	// go-redis hook in it that blocks can exceed the budget, because the limiter cannot
	// see the client's hooks.
	Budget time.Duration

	// Sharded means that keys are spread over servers. A *redis.ClusterClient and a
	// *redis.Ring are always sharded. Set Sharded for a type of your own that wraps one,
	// and for a client of a proxy that chooses the server by the first key of a command.
	// Such a proxy must respect hash tags, the part of a key in braces: keys with the same
	// tag belong on one server. Without Sharded, a command may have keys of several servers,
	// and fails or counts on the wrong server.
	Sharded bool

	now       func() time.Time // of this process; nil: time.Now
	once      sync.Once
	invalid   error
	transport *transport.Transport
}

// A Client sends commands to Redis. All of go-redis' clients do: Client,
// ClusterClient, Ring and those backed by Sentinel.
type Client interface {
	// Process sends the command and sets its result.
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Validate reports everything that is wrong with the fields, or nil.
func (r *Redis) Validate() error {
	var errs []error
	if given.IsNil(r.Client) {
		errs = append(errs, errors.New("client: required, got nil"))
	} else if err := transport.Invalid(r.Client, r.Sharded); err != nil {
		errs = append(errs, fmt.Errorf("client: %w", err))
	}
	if err := validateNamespace(r.Namespace); err != nil {
		errs = append(errs, err)
	}
	if r.Budget != 0 && (r.Budget < time.Millisecond || r.Budget > time.Minute) {
		errs = append(errs, fmt.Errorf("budget: must be from 1 ms to a minute, or 0 for 50 ms; got %s; write the unit, as in 50*time.Millisecond", r.Budget))
	}
	return errors.Join(errs...)
}

// budget is how long a decision may take.
func (r *Redis) budget() time.Duration { return cmp.Or(r.Budget, defaultBudget) }

// ready prepares first use. The error says that fields are invalid.
func (r *Redis) ready() (*transport.Transport, error) {
	r.once.Do(func() {
		var client transport.Client
		if !given.IsNil(r.Client) {
			client = r.Client
		}
		r.transport = transport.New(client, r.Sharded, r.budget(), script.All...)
		if err := r.Validate(); err != nil {
			r.invalid = redisError(err)
		}
	})
	return r.transport, r.invalid
}

// noWindow is how the scripts begin what they say if their clock is in none of the windows
// of a calendar that they are told. The time follows, in µs.
const noWindow = "none of the calendar windows holds "

// redisError adds the prefix of this store to an error.
func redisError(err error) error {
	if err == nil {
		return nil
	}
	if _, us, ok := strings.Cut(err.Error(), noWindow); ok {
		var at int64
		_, _ = fmt.Sscan(us, &at)
		return fmt.Errorf("algorithms: redis: the server's clock, at %s, is more than a calendar window from this process's: set both clocks, by NTP: %w", time.UnixMicro(at).UTC().Format(time.RFC3339), err)
	}
	return fmt.Errorf("algorithms: redis: %w", err)
}

// key is the key that counts a check, whose limit has this row.
func (r *Redis) key(c *Check, row *step.Row) string {
	var room [128]byte
	return string(appendKey(room[:0], r.Namespace, c, row))
}

// keys returns the keys of checks. They share one string.
func (r *Redis) keys(checks []Check, ps []step.Params) []any {
	var room [256]byte
	var few [4]int
	all, ends := room[:0], few[:0]
	for i := range checks {
		all = appendKey(all, r.Namespace, &checks[i], ps[i].Row)
		ends = append(ends, len(all))
	}
	text, keys, begin := string(all), make([]any, len(checks)), 0
	for i, end := range ends {
		keys[i], begin = text[begin:end], end
	}
	return keys
}
