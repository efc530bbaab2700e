package middleware_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A scene is a request whose handler settles. The rule "tokens" has charged it 40 of 100, and
// the rule "rows" 10 of 100.
type scene struct {
	*testing.T
	m       *ratelimit.Middleware
	spy     *spy
	process algorithms.Limiter // another one, which says what the store counts
	w       http.ResponseWriter
	r       *http.Request
	leave   context.CancelFunc
	release func() // of a Hold
	used    int64  // by others
}

func (s *scene) settle(units int64) {
	s.Helper()
	if err := ratelimit.Settle(s.r.Context(), "tokens", units); err != nil {
		s.Error(err)
	}
}

func (s *scene) cannotSettle(units int64) {
	s.Helper()
	if err := ratelimit.Settle(s.r.Context(), "tokens", units); err == nil {
		s.Errorf("settled at %d", units)
	}
}

// add adds units, or is denied those below 0.
func (s *scene) add(all ...int64) {
	s.Helper()
	for _, units := range all {
		if err := ratelimit.Add(s.r.Context(), "tokens", max(units, -units)); (err != nil) != (units < 0) {
			s.Errorf("Add %d: %v", units, err)
		}
	}
}

// counted is what the store is to count now.
func (s *scene) counted(want int64) {
	s.Helper()
	if n := used(s.T, s.process, tokens(100, 40)) - s.used; n != want {
		s.Errorf("the store counts %d, want %d", n, want)
	}
}

func (s *scene) others(units int64) {
	s.Helper()
	s.used = units
	if d, err := s.process.Take(s.Context(), algorithms.Check{Rule: "tokens", Key: "192.0.2.1", Limit: tokens(100, 40).Limit, Cost: units}); err != nil || !d.Allowed {
		s.Errorf("others: %+v, %v", d, err)
	}
}

// processes are two that count together.
var processes = map[string]func(*testing.T) (one, another algorithms.Limiter){
	"memory": func(*testing.T) (_, _ algorithms.Limiter) { m := new(algorithms.Memory); return m, m },
	"redis": func(t *testing.T) (_, _ algorithms.Limiter) {
		client := limitertest.Redis(t)
		return guardOf(t, client), guardOf(t, client)
	},
}

// Whatever becomes of a request, the store counts in the end what Config.Settled is told,
// once, and the store is asked as rarely as can be.
func TestTheLedgerBalances(t *testing.T) {
	byStatus := func(c *ratelimit.Config) { c.Rules[0].ChargeOn = []int{401, 403} }
	byBoth := func(c *ratelimit.Config) { byStatus(c); c.Rules[1].ChargeOn = []int{401} }
	timeout := func(next http.Handler) http.Handler { return http.TimeoutHandler(next, time.Second, "") }
	late := func(*scene) { time.Sleep(2 * time.Second) }
	for name, c := range map[string]struct {
		change  func(*ratelimit.Config)
		within  func(http.Handler) http.Handler // between the middleware and the handler
		handler func(*scene)
		after   func(*scene) // when the handler has returned
		fails   string       // the rule that cannot be settled
		tokens  int64        // what the rules cost in the end
		rows    int64        // 0 means 10, and -1 nothing
		settles int64        // commands
		takes   int64        // of Add
	}{
		"nothing is said":       {handler: func(*scene) {}, tokens: 40},
		"settled below":         {handler: func(s *scene) { s.settle(7); s.counted(40) }, tokens: 7, settles: 1},
		"settled at the charge": {handler: func(s *scene) { s.settle(40) }, tokens: 40},
		"settled above":         {handler: func(s *scene) { s.settle(90) }, tokens: 90, settles: 1},
		"settled into debt":     {handler: func(s *scene) { s.settle(130) }, tokens: 130, settles: 1},
		"refunded":              {handler: func(s *scene) { s.settle(0) }, settles: 1},
		"settled twice":         {handler: func(s *scene) { s.settle(7); s.cannotSettle(0) }, tokens: 7, settles: 1},
		"settled below nothing": {handler: func(s *scene) { s.cannotSettle(-1); s.settle(7) }, tokens: 7, settles: 1},
		"two rules are one command": {handler: func(s *scene) {
			s.settle(7)
			if err := ratelimit.Settle(s.r.Context(), "rows", 3); err != nil {
				s.Error(err)
			}
		}, tokens: 7, rows: 3, settles: 1},
		"settled by many at once": {handler: func(s *scene) {
			for range 8 {
				go func() { _ = ratelimit.Settle(s.r.Context(), "tokens", 0) }()
			}
			synctest.Wait()
		}, settles: 1},
		"settled afterwards": {handler: func(*scene) {}, after: func(s *scene) { s.cannotSettle(0) }, tokens: 40},

		"free, so settled at nothing, and then added": {
			change:  func(c *ratelimit.Config) { c.Rules[0].CostFor = func(*http.Request) int64 { return 0 } },
			handler: func(s *scene) { s.settle(5); s.add(41); s.settle(7) }, tokens: 7, settles: 1, takes: 1,
		},

		"added below the charge":   {handler: func(s *scene) { s.add(10, 10); s.counted(40) }, tokens: 20, settles: 1},
		"added the charge":         {handler: func(s *scene) { s.add(40, 0) }, tokens: 40},
		"added nothing":            {handler: func(s *scene) { s.add(0) }, settles: 1},
		"a quarter more":           {handler: func(s *scene) { s.add(41); s.counted(50) }, tokens: 41, settles: 1, takes: 1},
		"two quarters":             {handler: func(s *scene) { s.add(41, 9, 1); s.counted(60) }, tokens: 51, settles: 1, takes: 2},
		"more than a quarter":      {handler: func(s *scene) { s.add(30, 40) }, tokens: 70, takes: 1},
		"no quarter left":          {handler: func(s *scene) { s.others(55); s.add(42, 1, 1, -2) }, tokens: 44, takes: 5}, // after the first, one each
		"nothing left":             {handler: func(s *scene) { s.others(60); s.add(40, -1, -5) }, tokens: 40, takes: 3},
		"denied, then less":        {handler: func(s *scene) { s.add(-1<<62, 3) }, tokens: 3, settles: 1, takes: 1},
		"added, settled below all": {handler: func(s *scene) { s.add(50, 5); s.settle(7); s.add(1000); s.counted(60) }, tokens: 7, settles: 1, takes: 2},
		"added, settled between":   {handler: func(s *scene) { s.add(50, 5); s.settle(45) }, tokens: 45, settles: 1, takes: 2},
		"added, settled above":     {handler: func(s *scene) { s.add(50); s.settle(90) }, tokens: 90, settles: 1, takes: 1},
		"added, refunded":          {handler: func(s *scene) { s.add(50, 5); s.settle(0) }, settles: 1, takes: 2},
		"added after the rules went": {handler: func(s *scene) {
			if err := s.m.SetRules([]ratelimit.Rule{perHour("other", 1)}); err != nil {
				s.Error(err)
			}
			s.add(45)
		}, tokens: 45, settles: 1, takes: 1},

		"a status that refunds, at once":   {change: byStatus, handler: func(s *scene) { s.w.WriteHeader(200); s.counted(0) }, settles: 1},
		"a status that charges":            {change: byStatus, handler: func(s *scene) { s.w.WriteHeader(401) }, tokens: 40},
		"one of two, with a body":          {change: byBoth, handler: func(s *scene) { http.Error(s.w, "no", http.StatusForbidden) }, tokens: 40, rows: -1, settles: 1},
		"both are one command":             {change: byBoth, handler: func(s *scene) { s.w.WriteHeader(500) }, rows: -1, settles: 1},
		"a status after another":           {change: byStatus, handler: func(s *scene) { s.w.WriteHeader(103); s.w.WriteHeader(204) }, settles: 1},
		"no status":                        {change: byStatus, handler: func(*scene) {}, tokens: 40},
		"a status that is none":            {change: byStatus, handler: func(s *scene) { s.w.WriteHeader(0) }, tokens: 40}, // net/http panics
		"settled, then a status":           {change: byStatus, handler: func(s *scene) { s.settle(3); s.w.WriteHeader(200) }, tokens: 3, settles: 1},
		"refunded, and one that charges":   {change: byStatus, handler: func(s *scene) { s.settle(0); s.w.WriteHeader(401) }, settles: 1},
		"refunded by it, and then settled": {change: byStatus, handler: func(s *scene) { s.w.WriteHeader(200); s.cannotSettle(3) }, settles: 1},
		"charged by it, and then settled":  {change: byStatus, handler: func(s *scene) { s.w.WriteHeader(401); s.settle(3) }, tokens: 3, settles: 1},
		"added, then a status":             {change: byStatus, handler: func(s *scene) { s.add(45); s.w.WriteHeader(200); s.counted(50) }, tokens: 45, settles: 1, takes: 1},

		"a panic":               {change: byStatus, handler: func(*scene) { panic(http.ErrAbortHandler) }, tokens: 40},
		"a panic after a 401":   {change: byStatus, handler: func(s *scene) { s.w.WriteHeader(401); panic(http.ErrAbortHandler) }, tokens: 40},
		"a panic after Settle":  {handler: func(s *scene) { s.settle(7); panic(http.ErrAbortHandler) }, tokens: 7, settles: 1},
		"a panic after Add":     {handler: func(s *scene) { s.add(45); panic(http.ErrAbortHandler) }, tokens: 45, settles: 1, takes: 1},
		"a switch of protocols": {change: byStatus, handler: func(s *scene) { s.w.WriteHeader(101) }, tokens: 40},
		"a connection taken over": {change: byStatus, handler: func(s *scene) {
			conn, _, err := http.NewResponseController(s.w).Hijack()
			if err != nil {
				s.Fatal(err)
			}
			_ = conn.Close()
		}, tokens: 40},
		"a timeout":                {change: byStatus, within: timeout, handler: func(s *scene) { late(s); s.cannotSettle(7) }, settles: 1},
		"a timeout after Settle":   {within: timeout, handler: func(s *scene) { s.settle(7); late(s) }, tokens: 7, settles: 1},
		"a timeout during an Add":  {within: timeout, handler: func(s *scene) { s.add(45); late(s) }, tokens: 45, settles: 1, takes: 1},
		"the client left":          {change: byStatus, handler: func(s *scene) { s.leave(); s.w.WriteHeader(500) }, tokens: 40},
		"the client left, settled": {change: byStatus, handler: func(s *scene) { s.leave(); s.settle(7) }, tokens: 7, settles: 1},
		"the client left, added":   {handler: func(s *scene) { s.leave(); s.add(45) }, tokens: 45, settles: 1, takes: 1},

		"held, settled at once":               {handler: func(s *scene) { s.release = ratelimit.Hold(s.r.Context()); s.settle(7); s.counted(7) }, tokens: 7, settles: 1},
		"settled, and the handler returns":    {handler: func(s *scene) { s.settle(7); s.release = ratelimit.Hold(s.r.Context()) }, after: func(s *scene) { s.counted(7) }, tokens: 7, settles: 1},
		"held, settled after the handler":     {handler: func(s *scene) { s.release = ratelimit.Hold(s.r.Context()) }, after: func(s *scene) { s.settle(7); s.counted(7) }, tokens: 7, settles: 1},
		"held, added after the handler":       {handler: func(s *scene) { s.release = ratelimit.Hold(s.r.Context()) }, after: func(s *scene) { s.leave(); s.add(45); s.counted(50) }, tokens: 45, settles: 1, takes: 1},
		"held, and settled after its release": {handler: func(s *scene) { s.release = ratelimit.Hold(s.r.Context()) }, after: func(s *scene) { s.release(); s.cannotSettle(7); s.add(-3) }, tokens: 40},

		"an outage at the end":    {fails: "tokens", handler: func(s *scene) { s.settle(7) }, tokens: 40, settles: 1},
		"an outage after Add":     {fails: "tokens", handler: func(s *scene) { s.add(45) }, tokens: 50, settles: 1, takes: 1},
		"an outage at the status": {fails: "tokens", change: byStatus, handler: func(s *scene) { s.w.WriteHeader(200) }, tokens: 40, settles: 1},
		"a limiter says nothing":  {fails: "tokens", handler: func(s *scene) { s.spy.mute = true; s.settle(7) }, tokens: 40, settles: 1},
		"an outage of the other":  {fails: "rows", change: byBoth, handler: func(s *scene) { s.w.WriteHeader(200) }, settles: 1},
	} {
		for where, two := range processes {
			t.Run(name+" "+where, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					mine, another := two(t)
					s := &scene{T: t, spy: &spy{Limiter: mine, fails: c.fails}, process: another, release: func() {}}
					rows := tokens(100, 10)
					rows.Name = "rows"
					config := ratelimit.Config{Limiter: s.spy, Rules: []ratelimit.Rule{tokens(100, 40), rows}}
					if c.change != nil {
						c.change(&config)
					}
					type cost struct {
						units  int64
						failed bool
					}
					var told []map[string]cost
					config.Settled = func(_ *http.Request, d algorithms.Decision) {
						costs := make(map[string]cost)
						for _, r := range d.Results {
							costs[r.Check.Rule] = cost{r.Charged, r.Err != nil}
						}
						told = append(told, costs)
					}
					s.m = mustNew(t, config)
					var h http.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						s.w, s.r = w, r
						s.spy.takes.Store(0)
						c.handler(s)
					})
					if c.within != nil {
						h = c.within(h)
					}
					func() {
						defer func() { _ = recover() }()
						ctx, leave := context.WithCancel(t.Context())
						s.leave = leave
						s.m.Handler(h).ServeHTTP(hijackable{httptest.NewRecorder()}, request("POST /").WithContext(ctx))
					}()
					if c.after != nil {
						c.after(s)
					}
					s.release()
					s.release()
					time.Sleep(time.Minute) // takes no time
					synctest.Wait()
					want := map[string]cost{"tokens": {c.tokens, c.fails == "tokens"}, "rows": {max(cmp.Or(c.rows, 10), 0), c.fails == "rows"}}
					if len(told) != 1 || !maps.Equal(told[0], want) {
						t.Errorf("Settled is told %v, want %v", told, want)
					}
					s.counted(c.tokens)
					if n := used(t, another, rows); n != want["rows"].units {
						t.Errorf("the store counts %d rows, want %d", n, want["rows"].units)
					}
					if settles, takes := s.spy.settles.Load(), s.spy.takes.Load(); settles != c.settles || takes != c.takes {
						t.Errorf("%d settlements and %d takes, want %d and %d", settles, takes, c.settles, c.takes)
					}
				})
			})
		}
	}
}

// A charge may be in several windows, and the store may count what others have used since:
// what a request gives back in the end is its own.
func TestARefundAfterTheWindowsEndFreesNobodyElse(t *testing.T) {
	for _, l := range []algorithms.Limit{
		fixedIn(100, time.Minute), {Rate: 100, Period: time.Minute}, {Rate: 100, Period: time.Minute, Algorithm: algorithms.SlidingLog},
		{Rate: 100, Period: time.Minute, Algorithm: algorithms.TokenBucket}, {Rate: 100, Calendar: "day@UTC"},
	} {
		for cost, others := range map[int64]int64{0: 30, 5: 30, 12: 1} {
			t.Run(fmt.Sprintf("%s at %d", l, cost), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rule := tokens(100, 10)
					rule.Limit = l
					memory, without := new(algorithms.Memory), new(algorithms.Memory) // without this request
					m := mustNew(t, ratelimit.Config{Limiter: memory, Rules: []ratelimit.Rule{rule}})
					time.Sleep(23*time.Hour + 59*time.Minute + 59*time.Second)
					err := within(t, m, func(ctx context.Context, _ http.ResponseWriter) error {
						time.Sleep(2 * time.Second) // another window
						for _, store := range []*algorithms.Memory{memory, without} {
							_, _ = store.Take(ctx, algorithms.Check{Rule: "tokens", Key: "192.0.2.1", Limit: l, Cost: others})
						}
						return errors.Join(ratelimit.Add(ctx, "tokens", 11), ratelimit.Settle(ctx, "tokens", cost))
					})
					if got, all := used(t, memory, rule), used(t, without, rule); err != nil || got < all {
						t.Errorf("%v; %d are counted, and others have used %d", err, got, all)
					}
				})
			})
		}
	}
}

// A refund goes to the store that was charged: this process, while Redis did not answer, and
// Redis after that.
func TestARefundGoesWhereTheChargeIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := new(store)
		g := guard(t, s, 1)
		config := ratelimit.Config{Limiter: g, Rules: []ratelimit.Rule{tokens(100, 10)}}
		calls := settledCalls(&config)
		m := mustNew(t, config)
		away(s)
		err := within(t, m, func(ctx context.Context, _ http.ResponseWriter) error {
			s.err.Store(nil)
			time.Sleep(time.Second) // if a probe had found it away, one finds it back
			if err := ratelimit.Add(ctx, "tokens", 15); err != nil {
				return err
			}
			if n := used(t, &s.Memory, tokens(100, 10)); n != 5 {
				t.Errorf("Redis counts %d, want the 5 of Add", n)
			}
			return ratelimit.Settle(ctx, "tokens", 8)
		})
		if n := used(t, &s.Memory, tokens(100, 10)); err != nil || n != 0 || !slices.Equal(*calls, []call{{8, false}}) {
			t.Errorf("%v; Redis counts %d, Settled is told %v", err, n, *calls)
		}
		away(s)
		for range 100 { // 2 of the 10 are free again here
			serve(m.Handler(ok), "GET /")
		}
		time.Sleep(time.Second) // a probe opens the circuit: the store still answers a Peek
		if n := used(t, g, tokens(100, 10)); n != 98 {
			t.Errorf("this process counts %d, want 8 and nine requests", n)
		}
	})
}
