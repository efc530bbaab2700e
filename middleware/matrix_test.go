package middleware_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// A cell of the matrix is a rule with the fields of its row and of its column. It gets four
// requests that run at once, and a limit that admits two of them.
type cell struct {
	*testing.T
	rule      ratelimit.Rule
	config    ratelimit.Config
	units     int64 // that a request costs
	limits    func(requests int64) []algorithms.Limit
	handle    func(r *http.Request)
	instances int
	err       error // of the store

	store             *store
	m                 *ratelimit.Middleware
	requests          []*httptest.ResponseRecorder
	observed, settled []algorithms.Decision
	mu                sync.Mutex // of settled
}

// matrixRows have the newer fields. A cell says how many requests are admitted, how many
// are counted while these run and in the end, and what column and row say of it. It is that
// of its column unless but has another, or why the fields do not go together.
var matrixRows = []struct {
	name string
	held bool // nothing is counted in the end
	set  func(c *cell)
	says func(c *cell) string
	want string // of says
	but  map[string]string
}{
	{name: "calendar window", set: func(c *cell) {
		c.limits = func(n int64) []algorithms.Limit { return []algorithms.Limit{algorithms.PerDay(n, "UTC")} }
	}, but: map[string]string{
		"Ban": "a client that has used up its quota is no attacker; add a limit with a short period, or leave the ban out",
	}},
	{name: "several windows", set: func(c *cell) { c.limits = hourAndMonth }, but: map[string]string{
		"Shadow":       "4 4 4",        // the month counts what the hour would have denied
		"Wait":         "2 2 3, waits", // by the month
		"QuotaHandler": "2 2 2, left [0 2]",
	}},
	{name: "several windows of a tier", set: func(c *cell) {
		c.limits = hourAndMonth
		c.rule.Tiers = map[string][]algorithms.Limit{"pro": hourAndMonth(2)}
		c.config.TierFor = func(*http.Request) string { return "pro" }
	}, but: map[string]string{
		"Shadow":         "4 4 4",
		"Wait":           "2 2 3, waits",
		"QuotaHandler":   "2 2 2, left [0 2]",
		"another window": "2 2 2", // the tier has not got it
	}},
	{name: "Overrides", set: func(c *cell) {
		c.rule.Overrides = []ratelimit.Override{{Client: []string{"192.0.2.1"}, Limits: anHour(2)}}
	}, but: map[string]string{"Tiers": "2 2 2", "LimitsFor": "2 2 2", "another window": "2 2 2"}},
	{name: "LimitsFor", set: func(c *cell) {
		c.rule.LimitsFor = func(*http.Request) []algorithms.Limit { return anHour(2) }
	}, but: map[string]string{"Tiers": "2 2 2", "another window": "2 2 2"}},
	{name: "CostFor and Add", set: func(c *cell) {
		c.units, c.limits = 20, func(n int64) []algorithms.Limit { return anHour(20 * n) }
		c.rule.CostFor = func(*http.Request) int64 { return 12 }
		c.handle = func(r *http.Request) { _ = ratelimit.Add(r.Context(), "r", 20) }
	}, but: map[string]string{
		"Cost":     "2 2 2",
		"Shadow":   "4 1 3",        // what Add takes is counted in the end
		"ChargeOn": "2 2 2",        // by Add
		"Wait":     "2 2 0, waits", // for 12 of 20 units
	}},
	{name: "Settled", says: func(c *cell) string {
		charged := 0
		for _, d := range c.observed {
			if r, _ := d.Result("r"); r.Charged > 0 {
				charged++
			}
		}
		return map[bool]string{true: "each settled"}[len(c.settled) == charged]
	}, want: "each settled"},
	{name: "in_flight", held: true, set: func(c *cell) {
		c.limits = func(n int64) []algorithms.Limit { return []algorithms.Limit{algorithms.MaxInFlight(n)} }
	}, but: map[string]string{
		"another window": "2 in flight counts requests, and other limits may count units; write two rules",
		"Cost":           "a request in flight costs 1; leave it out, and count units by another rule, such as one with the limit 1000/1m",
		"Sync":           "not with the limit 2 in flight, of which a process has no copy",
		"Ban":            "put the ban on a rule with a rate, such as 100/1m",
		"ChargeOn":       "leave it out, or write another rule with a window, such as 5/1m",
		"Wait":           "2 2 1, waits",
	}},
}

func anHour(n int64) []algorithms.Limit { return []algorithms.Limit{fixedIn(n, time.Hour)} }

func hourAndMonth(n int64) []algorithms.Limit {
	return []algorithms.Limit{fixedIn(n, time.Hour), algorithms.PerMonth(2*n, "UTC")}
}

// matrixColumns have the other fields and calls, and what most rows come to.
var matrixColumns = []struct {
	name string
	set  func(c *cell)
	says func(c *cell) string
	want string
}{
	{name: "alone", want: "2 2 2"},
	{name: "another window", want: "1 1 1", set: func(c *cell) {
		c.rule.Limits = append(c.rule.Limits, algorithms.Limit{Rate: c.units, Calendar: "year@UTC"})
	}},
	{name: "Tiers", want: "3 3 3", set: func(c *cell) {
		c.rule.Tiers = map[string][]algorithms.Limit{"pro": c.limits(3)}
		c.config.TierFor = func(*http.Request) string { return "pro" }
	}},
	{name: "Overrides", want: "3 3 3", set: func(c *cell) {
		c.rule.Overrides = []ratelimit.Override{{Client: []string{"192.0.2.1"}, Limits: c.limits(3)}}
	}},
	{name: "LimitsFor", want: "3 3 3", set: func(c *cell) {
		c.rule.LimitsFor = func(*http.Request) []algorithms.Limit { return c.limits(3) }
	}},
	{name: "Cost", want: "1 2 2", set: func(c *cell) { c.rule.Cost = 2 }},
	{name: "Shadow", want: "4 2 2", set: func(c *cell) { c.rule.Shadow = true }},
	{name: "Enforce", want: "2 2 2", set: func(c *cell) { c.rule.Shadow, c.rule.Enforce = true, 1 }},
	{name: "Hidden", want: "2 2 2", set: func(c *cell) { c.rule.Hidden = true }, says: func(c *cell) string {
		for _, w := range c.requests {
			if text := fmt.Sprint(w.Header(), w.Body); strings.Contains(text, "Ratelimit-Limit") || strings.Contains(text, `"r"`) {
				return "told " + text
			}
		}
		return ""
	}},
	{name: "Sync", want: "2 2 2", set: func(c *cell) { c.rule.Sync = time.Second }},
	{name: "Ban", want: "2 2 2, banned", set: func(c *cell) { c.rule.Ban = ratelimit.Ban{After: 2, Within: time.Hour, For: 2 * time.Hour} },
		says: func(c *cell) string { return map[bool]string{true: "banned"}[isBanned(c, c.m)] }},
	{name: "ChargeOn", want: "2 2 0", set: func(c *cell) { c.rule.ChargeOn = []int{401} }},
	{name: "Peek", want: "2 2 2, denied", says: func(c *cell) string {
		d, err := c.m.Peek(c.request())
		return map[bool]string{true: "denied"}[err == nil && !d.Allowed]
	}},
	{name: "Wait", want: "2 2 1, waits", says: func(c *cell) string { // counts in the next window
		begun, checks := time.Now(), []algorithms.Check(nil)
		for _, r := range c.observed[0].Results {
			checks = append(checks, r.Check)
		}
		d, err := algorithms.Wait(c.Context(), c.config.Limiter, checks...)
		return map[bool]string{true: "waits"}[err == nil && d.Allowed && time.Since(begun) > 0]
	}},
	{name: "QuotaHandler", want: "2 2 2, left [0]", says: func(c *cell) string {
		w := do(c.m.QuotaHandler(), c.request())
		var told struct{ Limits []struct{ Remaining int64 } }
		_ = json.Unmarshal(w.Body.Bytes(), &told)
		left := make([]int64, len(told.Limits))
		for i := range left {
			left[i] = told.Limits[i].Remaining
		}
		return fmt.Sprint("left ", left)
	}},
	{name: "Share", want: "1 1 1", set: func(c *cell) { c.config.Share = 0.5 }},
	{name: "deny cache", want: "2 2 2, by deny_cache", says: func(c *cell) string {
		r, _ := c.observed[3].Result("r")
		return "by " + r.Source.String()
	}},
	{name: "local", want: "2 0 0", set: func(c *cell) { c.err = errors.New("away") }},
	{name: "local, Instances", want: "1 0 0", set: func(c *cell) { c.err, c.instances = errors.New("away"), 2 }},
	{name: "open", want: "4 0 0", set: func(c *cell) { c.err, c.rule.Fail = errors.New("away"), failmode.Open }},
	{name: "closed", want: "0 0 0, status 503", set: func(c *cell) { c.err, c.rule.Fail = errors.New("away"), failmode.Closed },
		says: func(c *cell) string { return fmt.Sprint("status ", c.requests[3].Code) }},
}

func (c *cell) request() *http.Request { return request("GET /", "Model", "large") }

// counted is what the store has counted of the client, by the window that has counted most.
func (c *cell) counted() (units int64) {
	d, err := c.store.Peek(c.Context(), checksOf(c.T, c.m, "r", "192.0.2.1")...)
	if err != nil {
		c.Fatal(err)
	}
	for _, r := range d.Results {
		if r.Check.Rule == "r" { // and not what its bans count
			units = max(units, r.Check.Limit.Quota()-r.Remaining)
		}
	}
	return units
}

// run sends the requests. The error is New's.
func (c *cell) run(says ...func(*cell) string) (string, error) {
	c.store = new(store)
	if c.err != nil {
		c.store.fail(c.err)
	}
	g := guard(c, c.store, cmp.Or(c.instances, 1))
	c.config.Limiter, c.config.Rules, c.config.Logger = g, []ratelimit.Rule{c.rule}, slog.New(slog.DiscardHandler)
	c.config.Observe = func(_ *http.Request, d algorithms.Decision) { c.observed = append(c.observed, d) }
	c.config.Settled = func(_ *http.Request, d algorithms.Decision) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.settled = append(c.settled, d)
	}
	var err error
	if c.m, err = ratelimit.New(c.config); err != nil {
		return "", err
	}
	h := c.m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.handle != nil {
			c.handle(r)
		}
		time.Sleep(time.Second)
		w.WriteHeader(http.StatusNoContent)
	}))
	for range 4 {
		w := httptest.NewRecorder()
		c.requests = append(c.requests, w)
		go h.ServeHTTP(w, c.request())
		synctest.Wait()
	}
	during, parts := c.counted(), []string{""}
	for _, say := range says {
		if say != nil {
			parts = append(parts, say(c))
		}
		time.Sleep(2 * time.Second) // the requests are over before the row says something
		synctest.Wait()
	}
	_ = g.Close() // tells what it has admitted by copies
	admitted := 0
	for _, w := range c.requests {
		if w.Code == http.StatusNoContent {
			admitted++
		}
	}
	parts[0] = fmt.Sprint(admitted, during/c.units, c.counted()/c.units)
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ", "), nil
}

// Each newer field works with every other field, or New says what to write instead. With
// -v, the test prints what becomes of the requests.
func TestMatrix(t *testing.T) {
	var table, reasons strings.Builder
	fmt.Fprint(&table, "| |")
	for _, column := range matrixColumns {
		fmt.Fprintf(&table, " %s |", column.name)
	}
	fmt.Fprint(&table, "\n", strings.Repeat("|---", len(matrixColumns)+1), "|")
	refused := 0
	for _, row := range matrixRows {
		fmt.Fprintf(&table, "\n| %s |", row.name)
		for _, column := range matrixColumns {
			synctest.Test(t, func(t *testing.T) {
				c := &cell{T: t, units: 1, limits: anHour, rule: ratelimit.Rule{Name: "r", Key: keyfunc.IP}}
				if row.set != nil {
					row.set(c)
				}
				c.rule.Limits = c.limits(2)
				if column.set != nil {
					column.set(c)
				}
				want, other := row.but[column.name]
				if !other {
					want = column.want
					if row.held {
						want = want[:4] + "0" + want[5:]
					}
					if row.want != "" {
						want += ", " + row.want
					}
				}
				got, err := c.run(column.says, row.says)
				switch {
				case err == nil && got != want, err != nil && !strings.Contains(err.Error(), want):
					t.Errorf("%s with %s: %s %v; want %s", row.name, column.name, got, err, want)
				case err != nil:
					refused++
					got = fmt.Sprintf("refused (%d)", refused)
					fmt.Fprintf(&reasons, "\n%d. %s with %s: %s", refused, row.name, column.name, want)
				}
				fmt.Fprintf(&table, " %s |", got)
			})
		}
	}
	t.Logf("admitted of 4 requests, counted while they run, counted in the end:\n\n%s\n%s", &table, &reasons)
}
