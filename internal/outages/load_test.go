package outages

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// all says to run every scenario at full rate, not a selection.
var all = os.Getenv("OUTAGES") == "all"

var silent = slog.New(slog.DiscardHandler)

// A load is requests at a constant rate on a limiter.
type load struct {
	client  redis.UniversalClient // what the limiter sends to; required
	limiter algorithms.Limiter    // nil means a Guard around an algorithms.Redis
	rate    int                   // requests per second; 0 means 1000, or 500 in a selection
	length  time.Duration         // 0 means 4 s
}

// A record is one request and what became of it.
type record struct {
	client, route string
	begin         time.Duration // since the load's
	took          time.Duration
	status        int
	results       []algorithms.Result
}

type recordKey struct{}

func recordOf(r *http.Request) *record { return r.Context().Value(recordKey{}).(*record) }

// undecided reports whether Redis did not decide the request, and did not say a
// moment ago how it would.
func (r *record) undecided() bool {
	return slices.ContainsFunc(r.results, func(res algorithms.Result) bool {
		return res.Source != algorithms.SourceRedis && res.Source != algorithms.SourceDenyCache && res.Source != algorithms.SourceNone
	})
}

// on is the result of the request's route.
func (r *record) on() algorithms.Result {
	res, _ := algorithms.Decision{Results: r.results}.Result(r.route)
	return res
}

// A run is a load under way.
type run struct {
	load
	t       *testing.T
	limit   *ratelimit.Middleware
	handler http.Handler
	wire    *wire
	machine *machine
	begin   time.Time
	records []record
	clients []string
	log     *log

	away   atomic.Bool // an outage has begun
	began  time.Duration
	over   time.Duration
	opened []time.Duration // when a circuit was open, and none was before

	stop   context.CancelFunc
	sent   sync.WaitGroup // the requests
	beside sync.WaitGroup // what runs beside them
}

// start exhausts the abuser and begins to send.
func (l load) start(t *testing.T) *run {
	t.Helper()
	l.rate = cmp.Or(l.rate, map[bool]int{false: 500, true: 1000}[all])
	l.length = cmp.Or(l.length, 4*time.Second)
	r := &run{load: l, t: t, wire: newWire(l.client), machine: newMachine(t), log: new(log)}
	if l.limiter == nil {
		guard := &failmode.Guard{
			Limiter:   &algorithms.Redis{Client: l.client, Namespace: namespace, Budget: budget},
			Instances: instances,
			Logger:    slog.New(slog.NewTextHandler(r.log, nil)),
		}
		t.Cleanup(func() {
			if err := guard.Close(); err != nil {
				t.Error(err)
			}
		})
		r.limiter = guard
	}
	c := ratelimit.Config{
		Limiter: r.limiter,
		Rules:   rules(),
		Observe: func(req *http.Request, d algorithms.Decision) { recordOf(req).results = d.Results },
		Logger:  silent,
	}
	var err error
	if r.limit, err = ratelimit.New(c); err != nil {
		t.Fatal(err)
	}
	r.handler = r.limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))

	n := int(l.length.Seconds() * float64(l.rate))
	for i := range max(n/100, 10) {
		r.clients = append(r.clients, fmt.Sprint("client-", i))
	}
	r.warm()
	r.begin = time.Now()
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	t.Cleanup(func() { stop(); r.end() })
	r.beside.Go(func() { r.machine.watch(ctx, r.begin) })
	r.beside.Go(func() { r.watchDown(ctx) })
	r.records = append(r.records, make([]record, n)...)
	r.sent.Go(func() { r.send(ctx, r.records[len(r.records)-n:]) })
	return r
}

// warm makes the limiter know the regulars and use up the abuser's limit.
func (r *run) warm() {
	r.decided(func() (algorithms.Decision, error) {
		return r.limiter.Take(r.t.Context(), algorithms.Check{Rule: "local", Key: abuser, Limit: localLimit, Cost: limit})
	})
	for _, client := range append(r.clients, abuser) {
		rec := record{client: client, route: "local", begin: -time.Hour} // before all that is measured
		r.decided(func() (algorithms.Decision, error) {
			r.serve(&rec)
			return algorithms.Decision{Results: rec.results}, nil
		})
		r.records = append(r.records, rec)
	}
}

// decided repeats a request until Redis has decided it: a busy machine may be
// too late for the budget.
func (r *run) decided(take func() (algorithms.Decision, error)) {
	r.t.Helper()
	eventually(r.t, func() error {
		d, err := take()
		if rec := (&record{results: d.Results}); err == nil && rec.undecided() {
			err = fmt.Errorf("not decided by Redis before the load: %+v", d)
		}
		return err
	})
}

// send starts the requests, each at its time.
func (r *run) send(ctx context.Context, records []record) {
	for i := range records {
		if !sleepUntil(ctx, r.begin.Add(time.Duration(i)*time.Second/time.Duration(r.rate))) {
			return
		}
		rec := &records[i]
		rec.client, rec.route = r.pick(i)
		r.sent.Go(func() {
			rec.begin = time.Since(r.begin)
			r.serve(rec)
			rec.took = time.Since(r.begin) - rec.begin
		})
	}
}

// pick says who sends request i, and where to.
func (r *run) pick(i int) (client, route string) {
	switch i % 8 {
	case 0:
		return abuser, "local"
	case 1:
		if r.away.Load() {
			return newcomer, "local"
		}
	}
	i -= i / 8 // so that all pairs of client and route come
	return r.clients[i/len(routes)%len(r.clients)], routes[i%len(routes)]
}

func (r *run) serve(rec *record) {
	ctx := context.WithValue(context.Background(), recordKey{}, rec)
	req := (&http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/" + rec.route}, Header: http.Header{}}).WithContext(ctx)
	w := response{header: http.Header{}}
	r.handler.ServeHTTP(&w, req)
	rec.status = w.status
}

// watchDown looks when the Guard has an open circuit.
func (r *run) watchDown(ctx context.Context) {
	l, ok := r.limiter.(measured)
	if !ok {
		return
	}
	before := false
	for at := time.Now(); sleepUntil(ctx, at); at = at.Add(2 * time.Millisecond) {
		down := openShards(l) > 0
		if down && !before {
			r.opened = append(r.opened, time.Since(r.begin))
		}
		before = down
	}
}

// at waits until so much of the load is over.
func (r *run) at(after time.Duration) {
	if !sleepUntil(r.t.Context(), r.begin.Add(after)) {
		r.t.Fatal("the test is over")
	}
}

// outage notes that one begins, and begins it.
func (r *run) outage(begin func()) {
	r.began = time.Since(r.begin)
	r.away.Store(true)
	begin()
}

// back ends the outage, and notes when it was over.
func (r *run) back(end func()) {
	end()
	r.over = time.Since(r.begin)
}

// without has an outage of the usual length.
func (r *run) without(begin, end func()) {
	r.at(begins)
	r.outage(begin)
	r.at(begins + lasts)
	r.back(end)
}

// end waits until all requests are answered.
func (r *run) end() {
	r.sent.Wait()
	r.stop()
	r.beside.Wait()
}

// response is an http.ResponseWriter that keeps the status only.
type response struct {
	header http.Header
	status int
}

func (w *response) Header() http.Header         { return w.header }
func (w *response) WriteHeader(status int)      { w.status = status }
func (w *response) Write(b []byte) (int, error) { return len(b), nil }

// A log is what the limiter has said so far.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// sleepUntil reports whether it became t before the context ended.
func sleepUntil(ctx context.Context, t time.Time) bool {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const (
	namespace = "outages"
	instances = 2
	share     = 100 // of the limit of "local"
	limit     = instances * share

	abuser   = "abuser"
	newcomer = "newcomer"
)

// forGood is a period that does not end during a test, so that used units stay
// used: its windows begin in 1970, 2020 and 2070.
const forGood = 50 * 365 * 24 * time.Hour

var localLimit = algorithms.Limit{Rate: limit, Period: forGood, Algorithm: algorithms.SlidingWindow}

// rules are one for each fail mode, and one that applies to all requests. No
// window of theirs ends, so counts are exact.
func rules() []ratelimit.Rule {
	client := keyfunc.Func(func(r *http.Request) (string, error) { return recordOf(r).client, nil })
	wide := func(a algorithms.Algorithm) algorithms.Limit {
		return algorithms.Limit{Rate: 10_000, Period: forGood, Algorithm: a}
	}
	return []ratelimit.Rule{
		{Name: "each", Key: client, Limit: algorithms.Limit{Rate: 1_000_000, Period: forGood, Algorithm: algorithms.FixedWindow}},
		{Name: "local", Match: []string{"/local"}, Key: client, Fail: failmode.Local,
			Limit: localLimit},
		{Name: "open", Match: []string{"/open"}, Key: client, Fail: failmode.Open, Limit: wide(algorithms.FixedWindow)},
		{Name: "closed", Match: []string{"/closed"}, Key: client, Fail: failmode.Closed, Limit: wide(algorithms.SlidingLog)},
	}
}

var routes = []string{"local", "open", "closed"}

// measured is a Guard, or wraps one.
type measured interface {
	Metrics() iter.Seq[algorithms.Metric]
}

// openShards returns how many circuits are open.
func openShards(g measured) (n int) {
	for m := range g.Metrics() {
		if m.Name == "ratelimit_breaker_open_shards" {
			n = int(m.Value)
		}
	}
	return n
}
