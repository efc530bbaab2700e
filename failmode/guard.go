package failmode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/background"
	"github.com/seed75154129/ratelimit/internal/denials"
	"github.com/seed75154129/ratelimit/internal/given"
	"github.com/seed75154129/ratelimit/internal/monitor"
	"github.com/seed75154129/ratelimit/internal/sampler"
	"github.com/seed75154129/ratelimit/internal/synced"
)

// A Guard wraps a limiter that can fail, such as an [algorithms.Redis]. While the limiter
// cannot decide, the Guard decides each check by its [Mode]. Take and Peek return an error
// only if checks or fields are invalid; Peek also if the limiter cannot peek: that error
// wraps [errors.ErrUnsupported]. If a limiter of your own panics, Take and Peek panic too.
// If that limiter does not return one result for each check, all checks count as not
// decided.
//
// Each server has a circuit breaker. While its circuit is open, a server receives only a
// probe about every 200 ms, and checks of its keys follow their Mode. While its circuit is
// closed, checks that the limiter did not decide in time are counted in this process, in
// every Mode. The same holds for checks for which this process has no free connection. A
// client therefore gains nothing by keeping a process busy. Checks that met an error follow
// their Mode until a probe shows that the server is well, and are counted in this process
// then: another program may have written their key.
//
// Local counts begin with the units that the limiter has charged to this process and, as
// far as its answers showed, to other processes. They admit at most this process' share of
// each limit; see Instances.
//
// A Guard remembers the denials of up to 24,576 counts, by their limit and cost. It denies
// such requests itself until a request fits the limit, also in an outage, and in a flood up to
// 20 ms longer, while one request asks. Once a second it
// asks the limiter again about such a denial, in case another process has refunded or reset
// the key; about all of them together, at most 200 times a second. What this process gives
// back, it asks about at once. Denials by in_flight are remembered for 20 ms, those of a
// Provisional check for 20 ms while the limiter is available, and those for MaxDelay not at
// all. Checks with Shadow are always asked about. If a remembered denial decides a request, the results of its other checks have
// SourceNone.
//
// Checks with Sync are admitted by a copy of the limiter's state, and the limiter is told each
// Sync what they have used. All Guards together admit at most a tenth more than the limit, if
// Instances is right. A Guard asks the limiter if its copy is older than two Syncs, or if what
// it has not told is a tenth of what is left, divided by Instances. It copies up to 4,096
// counts. Units are told once: if the limiter does not answer, or an outage has begun, they
// may not be counted. Peek and Remaining lack what other processes have not told.
//
// The charges of a denied request are refunded. A refund is tried once. The charge
// stays if the limiter does not answer, if 256 refunds are in progress or if the Guard
// is closed.
//
// Create one Guard for each Redis and namespace, share it among middlewares, and close
// it. The fields must not change after first use. A Guard is safe for concurrent use.
type Guard struct {
	// Limiter makes the decisions. Required. The caller closes its client.
	Limiter algorithms.Limiter

	// Instances is the number of processes that share the limits. A process with two
	// Guards for one Redis and namespace counts as two. While the limiter cannot decide,
	// each process admits its share: the limit divided by Instances, but at least the cost
	// of one request. So 10 processes together may admit 10 requests at a limit of 5. Some
	// limits cannot be divided, for example if the rate would be too low for the burst.
	// Then each process admits the whole limit.
	//
	// 0 means the number that a heartbeat in Redis last counted, and 1 before the first
	// heartbeat. Set Instances if processes may start while Redis is unavailable. If
	// the number changes, set the largest: a lower number admits more than the limit, a
	// higher one admits less.
	Instances int

	// Logger receives outages, and warnings about what makes them worse. nil means
	// slog.Default().
	Logger *slog.Logger

	client io.Closer // that Redis has made; nil if the caller has

	once      sync.Once
	closing   sync.Once
	invalid   error // the error of Validate
	logger    *slog.Logger
	store     store
	monitor   monitor.Monitor
	local     algorithms.Memory // at this process' share
	denied    denials.Cache
	resets    atomic.Uint64 // how often keys were reset here
	synced    synced.Table
	inFlight  inFlight
	heartbeat heartbeat
	work      background.Group
	fellBack  sampler.Sampler // to log
	lost      atomic.Int64    // how often charges were not refunded
	lostLog   sampler.Sampler
}

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
		g.work.Start(g.logger)
		g.denied.Start(func(c algorithms.Check) bool { return g.refuses(&c) })
		g.synced.Start(g.work.Begin, g.tell)
		g.monitor.Start(g.store, &g.work, g.logger)
		g.inFlight.begin(g.store, &g.monitor, &g.work, g.logger)
		g.fellBack.Every, g.lostLog.Every = sampler.LogInterval, sampler.LogInterval
		if g.Instances == 0 {
			g.heartbeat.begin(g.store, &g.monitor, &g.work, g.logger)
		}
		g.connect()
	})
}

// Validate reports every invalid field. If the Limiter, or a limiter that it wraps, has a
// method Validate, it reports that method's error, too. It has no side effects.
func (g *Guard) Validate() error {
	var errs []error
	if given.IsNil(g.Limiter) {
		errs = append(errs, errors.New("limiter: required; use &algorithms.Redis{Client: client, Namespace: \"shop\"}, or make the Guard by Redis(options, \"shop\")"))
	}
	for l := range Layers(g.Limiter) {
		if l, ok := l.(interface{ Validate() error }); ok {
			errs = append(errs, l.Validate())
		}
	}
	if g.Instances < 0 {
		errs = append(errs, fmt.Errorf("instances: must not be negative, got %d", g.Instances))
	}
	return errors.Join(errs...)
}

// Warm connects, loads the scripts and makes a decision for a key that no client has, so
// that the first request need not wait. Its error says why Redis cannot decide. Call it
// before listening. If it fails, log the error and continue: the Guard works.
func (g *Guard) Warm(ctx context.Context) error {
	if g.ready(); g.invalid != nil {
		return g.invalid
	}
	return g.warm(ctx)
}

func (g *Guard) warm(ctx context.Context) error {
	if err := g.store.Warm(ctx); err != nil {
		return fmt.Errorf("failmode: warm: %w", err)
	}
	g.monitor.Prepare(ctx, 0, false)
	return nil
}

// Metrics yields the metrics of the store, of its circuits, and of the counts in this
// process.
func (g *Guard) Metrics() iter.Seq[algorithms.Metric] {
	return func(yield func(algorithms.Metric) bool) {
		g.ready()
		metrics := append(g.monitor.Metrics(), algorithms.Metric{Name: "ratelimit_instances", Value: float64(g.instances())})
		metrics = append(metrics,
			algorithms.Metric{Name: "ratelimit_releases_dropped_total", Value: float64(g.inFlight.Dropped.Load())},
			algorithms.Metric{Name: "ratelimit_renewals_failed_total", Value: float64(g.inFlight.Failed.Load())})
		slices.Values(slices.AppendSeq(metrics, g.local.Metrics()))(yield)
	}
}

// ErrOpen means that a check was not sent because its server's circuit breaker is open.
var ErrOpen = errors.New("failmode: circuit open")

// instances is the best known number of processes that share the limits.
func (g *Guard) instances() int {
	return int(max(int64(g.Instances), g.heartbeat.count.Load(), 1))
}

// refuses reports whether the circuit of a check's server is open.
func (g *Guard) refuses(c *algorithms.Check) bool {
	return g.monitor.Circuit(g.store.Shard(c.Key)).IsOpen()
}
