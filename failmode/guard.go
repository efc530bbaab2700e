package failmode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/histogram"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/sampler"
)

// A Guard wraps a limiter that can fail, such as an [algorithms.Redis]. It has a
// circuit breaker for each server and decides by the checks' fail modes while a
// server is away. Its Take and Peek fail only for invalid checks or fields.
//
// While a server's circuit is open, only a probe about every 200 ms is sent to
// it, and the checks that it counts follow their [Mode]. A check that is not
// decided for another reason is counted locally in every mode: it was late, this
// process had no connection free, or another program has written its key. So
// clients that keep this process busy gain nothing.
//
// Local counting is warm, because it follows what the limiter decides. It admits
// at most this process' share of each limit.
//
// A Guard remembers what the limiter said about up to 32,768 keys that it denied,
// and denies them itself until they have room, also in an outage. A second look,
// once a second, notices what another process has given back. Checks with NoCache
// or in shadow are not denied so. Other checks of a request that is denied so are
// not decided, and their results have no Source.
//
// A check with Lease is admitted from blocks of units that the limiter has
// counted. All Guards together stay within the limit; what is left is an estimate.
//
// All or nothing holds across both stores: a request that is denied gets back
// what it was charged, unless it is unknown whether it was charged.
//
// Make one Guard per Redis and namespace, share it among all middlewares that
// count there, and close it. It runs goroutines only for work in the background:
// open circuits, give-backs, new connections and the heartbeat. The fields must
// not change after first use. A Guard is safe for concurrent use.
type Guard struct {
	// Limiter decides; required. The caller closes what it needs.
	algorithms.Limiter

	// Instances is how many processes share the limits. While the store cannot
	// count, each admits its share: the limit divided by Instances, but no less
	// than the cost of the request.
	//
	// 0 means as many as a heartbeat in Redis last counted, and 1 before the first
	// heartbeat. Set it if processes may start while Redis is away.
	Instances int

	// Logger receives outages and warnings of what could make them worse; nil
	// means slog.Default().
	Logger *slog.Logger

	once      sync.Once
	closing   sync.Once
	invalid   error // the error of Validate
	logger    *slog.Logger
	store     store
	breaker   breaker
	local     algorithms.Memory // at this process' share
	denied    denyCache
	leases    leases
	inFlight  inFlight
	share     shareFunc
	heartbeat heartbeat
	server    serverCheck
	work      background
	fellBack  sampler.Sampler // to log
	lost      atomic.Int64    // how often charges were not given back
	lostLog   sampler.Sampler
}

// A shareFunc returns the check by which a result is counted locally; false if it
// is not counted.
type shareFunc = func(*algorithms.Result) (algorithms.Check, bool)

func (g *Guard) ready() {
	g.once.Do(func() {
		g.logger = cmp.Or(g.Logger, slog.Default())
		g.breaker.calls.took = histogram.New(histogram.Latencies)
		if err := g.Validate(); err != nil {
			g.invalid = fmt.Errorf("failmode: %w", err)
			return
		}
		if g.store == nil { // tests have their own
			g.store = storeOf(g.Limiter)
		}
		g.work.start(g.logger)
		g.denied.begin(g.refuses)
		g.leases.begin()
		g.breaker.begin(g.store, &g.work, g.logger)
		g.share = g.shareOf
		g.inFlight.begin(g)
		g.fellBack.Every, g.lostLog.Every = logInterval, logInterval
		id, others := g.store.Join()
		if others > 0 {
			g.logger.Warn("ratelimit: several Guards count in one Redis and namespace; share one, " +
				"because each admits a share of its own while Redis is away")
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
	if inside.IsNil(g.Limiter) {
		errs = append(errs, errors.New("limiter: required; use &algorithms.Redis{Client: client, Namespace: \"shop\"}"))
	} else if l, ok := g.Limiter.(interface{ Validate() error }); ok {
		errs = append(errs, l.Validate())
	}
	if g.Instances < 0 {
		errs = append(errs, fmt.Errorf("instances: must not be negative, got %d", g.Instances))
	}
	return errors.Join(errs...)
}

// Take implements [algorithms.Limiter].
func (g *Guard) Take(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if g.ready(); g.invalid != nil {
		return algorithms.Decision{}, g.invalid
	}
	g.heartbeat.tick(ctx)
	g.server.tick()
	for i := range checks {
		if leasable(&checks[i]) {
			return g.takeLeased(ctx, checks)
		}
	}
	return g.take(ctx, checks)
}

// Peek implements [algorithms.Limiter].
func (g *Guard) Peek(ctx context.Context, checks ...algorithms.Check) (algorithms.Decision, error) {
	if g.ready(); g.invalid != nil {
		return algorithms.Decision{}, g.invalid
	}
	d, err := g.decide(ctx, false, checks)
	g.addBlocks(&d)
	return d, err
}

// Warm connects and loads the scripts, so that the first request waits for
// neither. Call it before listening. Log its error and go on: the Guard works
// without.
func (g *Guard) Warm(ctx context.Context) error {
	if g.ready(); g.invalid != nil {
		return g.invalid
	}
	if err := g.store.Warm(ctx); err != nil {
		return fmt.Errorf("failmode: warm: %w", err)
	}
	g.breaker.circuit(0).witness.prepare(ctx)
	return nil
}

// Down lists the servers whose circuit is open. Readiness must not depend on it:
// the service is up, and its rules follow their modes.
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
	return g.store.Names(shards...)
}

// Close ends the Guard's goroutines and closes its own connections. It takes no
// longer than a decision may. The Limiter and its Redis client stay open.
// Decisions still work afterwards, but no circuit opens any more. Closing twice
// is allowed.
func (g *Guard) Close() error {
	if g.ready(); g.invalid != nil {
		return nil //nolint:nilerr // nothing was started; Take says what is wrong
	}
	g.closing.Do(func() {
		g.breaker.end()
		g.returnBlocks()
		g.inFlight.Close()
		g.work.end()
		g.untilIdle()
		if last := g.store.Leave(); last {
			g.heartbeat.end()
		}
	})
	return nil
}

// untilIdle waits until no decision is under way, for no longer than one may take.
func (g *Guard) untilIdle() {
	over := time.NewTimer(g.store.Budget())
	defer over.Stop()
	for _, idle := range g.store.Idle() {
		select {
		case <-idle:
		case <-over.C:
			return
		}
	}
}

// logInterval bounds lines that could come with every request.
const logInterval = 10 * time.Second
