package failmode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/bridge"
	"github.com/seed75154129/ratelimit/internal/sampler"
)

// A Guard is what stands before a limiter that can fail, such as an
// [algorithms.Redis]: a circuit breaker for each of its servers, and local
// counting by the checks' fail modes. Its Take and Peek fail only for checks, or
// fields, that are invalid.
//
// While a server's circuit is open, nothing is sent to it but a probe about
// every 200 ms. A check that the server would have counted follows its [Mode].
// A check that is not decided for another reason, such as no connection free in
// this process, is counted locally in every mode, so that clients who keep this
// process busy gain nothing.
//
// Local counting is warm: it has followed what the limiter decided. It admits
// at most this process' share of each limit, and denies whom the limiter last
// denied. All or nothing holds across both: a request that is denied gets back
// what it was charged, unless whether it was charged is unknown.
//
// Make one Guard per Redis and namespace, for all middlewares that count there,
// and close it. It has goroutines only while a circuit is open or while
// something is given back. The fields must not change after first use. A Guard
// is safe for concurrent use.
type Guard struct {
	// Limiter decides; required. It stays the caller's.
	algorithms.Limiter

	// Instances is how many processes share the limits. While the store cannot
	// count, each admits its share: the limit divided by Instances, but no less
	// than the cost of the request. 0 means as many as a heartbeat in Redis last
	// counted, and 1 before the first: set it if processes may start while Redis
	// is away.
	Instances int

	// Logger gets outages and what could make them worse; nil means
	// slog.Default().
	Logger *slog.Logger

	once      sync.Once
	closing   sync.Once
	invalid   error // what Validate said
	logger    *slog.Logger
	store     store
	breaker   breaker
	local     algorithms.Memory // at this process' share
	denied    deniedKeys        // by the store
	share     shareFunc
	heartbeat heartbeat
	server    serverCheck
	work      background
	fellBack  sampler.Sampler // to log
}

// A shareFunc says by which check a result is counted locally; false passes it over.
type shareFunc = func(*algorithms.Result) (algorithms.Check, bool)

func (g *Guard) ready() {
	g.once.Do(func() {
		g.logger = cmp.Or(g.Logger, slog.Default())
		if err := g.Validate(); err != nil {
			g.invalid = fmt.Errorf("failmode: %w", err)
			return
		}
		if g.store == nil { // tests have their own
			g.store = storeOf(g.Limiter)
		}
		g.denied.begin()
		g.breaker.begin(g.store, &g.work, g.logger)
		g.share = g.shareOf
		g.fellBack.Every = logInterval
		id, others := g.store.join()
		if others > 0 {
			g.logger.Warn("ratelimit: several Guards count in one Redis and namespace; make one and share it, " +
				"since each admits a share of its own while Redis is away")
		}
		if g.Instances == 0 {
			g.heartbeat.begin(id, g.store, &g.breaker, &g.work, g.logger)
		}
		g.server.begin(g.breaker.ctx, g.store, &g.work, g.logger)
	})
}

// Validate reports everything that is wrong with the fields and, if it has a
// method Validate, with Limiter. It has no side effects.
func (g *Guard) Validate() error {
	var errs []error
	if isNil(g.Limiter) {
		errs = append(errs, errors.New("limiter: required; use &algorithms.Redis{Client: client, Namespace: \"shop\"}"))
	} else if l, ok := g.Limiter.(interface{ Validate() error }); ok {
		errs = append(errs, l.Validate())
	}
	if g.Instances < 0 {
		errs = append(errs, fmt.Errorf("instances: must not be negative, got %d", g.Instances))
	}
	return errors.Join(errs...)
}

func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return v == nil || r.Kind() == reflect.Pointer && r.IsNil()
}

// Take implements [algorithms.Limiter].
func (g *Guard) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if g.ready(); g.invalid != nil {
		return algorithms.Decision{}, g.invalid
	}
	g.heartbeat.tick(ctx)
	g.server.tick()
	d, err := g.decide(ctx, true, checks)
	if err == nil {
		g.follow(d.Results)
	}
	return d, err
}

// Peek implements [algorithms.Limiter].
func (g *Guard) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if g.ready(); g.invalid != nil {
		return algorithms.Decision{}, g.invalid
	}
	return g.decide(ctx, false, checks)
}

// Warm dials and loads the scripts, so that the first request finds both done.
// Its error is for the log: the Guard works without.
func (g *Guard) Warm(ctx context.Context) error {
	if g.ready(); g.invalid != nil {
		return g.invalid
	}
	if err := g.store.warm(ctx); err != nil {
		return fmt.Errorf("failmode: warm: %w", err)
	}
	return nil
}

// Down lists the servers whose circuit is open. Readiness must not depend on it:
// the service is up, and its limits follow their modes.
func (g *Guard) Down() []string {
	if g.ready(); g.invalid != nil {
		return nil
	}
	var shards []int
	for _, c := range g.breaker.all() {
		if c.isOpen() {
			shards = append(shards, c.shard)
		}
	}
	return g.store.names(shards...)
}

// Close ends what the Guard started, which takes as long as a decision may. The
// Limiter and its Redis client stay open. Decisions afterwards still work, but
// no circuit opens any more. Closing twice does no harm.
func (g *Guard) Close() error {
	if g.ready(); g.invalid != nil {
		return nil //nolint:nilerr // nothing was started; Take says what is wrong
	}
	g.closing.Do(func() {
		g.breaker.end()
		g.work.end()
		if last := g.store.leave(); last {
			g.heartbeat.end()
		}
	})
	return nil
}

// logInterval bounds lines that could come with every request.
const logInterval = 10 * time.Second

// states are for the metrics.
func (g *Guard) states() []bridge.CircuitState {
	if g.ready(); g.invalid != nil {
		return nil
	}
	var states []bridge.CircuitState
	for _, c := range g.breaker.all() {
		states = append(states, c.snapshot())
	}
	return states
}
