package algorithms

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/seed75154129/ratelimit/internal/rated"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/step"
)

// held is what the limit of a history holds. Its store's clock stands still, so
// that with every algorithm the state is a number of units, exactly.
const held = 10

func heldLimit(a *step.Row) Limit {
	l := Limit{Rate: held, Period: held * time.Hour, Algorithm: Algorithm(a.Number)}
	if a.Queue {
		l.Burst = held
	}
	return l
}

// heldLimits has one of each algorithm, with a calendar and in flight.
func heldLimits() []Limit {
	all := []Limit{{Rate: held, Calendar: "year@UTC"}, heldLimit(step.Lookup(uint16(InFlight)))}
	for i := range rated.Rows {
		all = append(all, heldLimit(&rated.Rows[i]))
	}
	return all
}

// An operation is one call of a history: what is called, with how many units,
// and for giving back to a queue the units before the slot.
type operation struct {
	call        string
	units, slot int64
}

// An outcome is what the caller was told. Unknown is that of a timeout: the
// store may have executed the call, or may do so later.
type outcome struct {
	allowed         bool
	remaining, slot int64
	unknown         bool
}

// after is the model: what an operation makes of the units used, and what it
// has to come to.
func (op operation) after(used int64, queue bool) (int64, outcome) {
	switch op.call {
	case "take", "peek":
		out := outcome{allowed: used+op.units <= held}
		if queue && out.allowed {
			out.slot = used
		}
		if op.call == "take" && out.allowed {
			used += op.units
		}
		out.remaining = held - used
		return used, out
	case "give back":
		if !queue || used-op.units == op.slot {
			used = max(used-op.units, 0)
		}
		return used, outcome{}
	case "owe":
		return used + op.units, outcome{}
	case "reset":
		return 0, outcome{}
	}
	panic(op.call)
}

// countModel is the model for porcupine.
func countModel(queue bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{int64(0)} },
		Step: func(state, input, output any) []any {
			used, out := state.(int64), output.(outcome)
			after, want := input.(operation).after(used, queue)
			switch out {
			case outcome{unknown: true}:
				return []any{used, after}
			case want:
				return []any{after}
			}
			return nil
		},
		Hash: func(state any) uint64 { return uint64(state.(int64)) },
	}
	return m.ToModel()
}

// A callHistory is what goroutines asked of one key and were told.
type callHistory struct {
	limit    Limit
	time     atomic.Int64 // counts calls and returns; clocks may stand still
	mu       sync.Mutex
	ops      []porcupine.Operation
	timeouts int
}

// do calls f as an operation of the history. An error that is no timeout is
// returned.
func (h *callHistory) do(client int, op operation, f func() (outcome, error)) error {
	call := h.time.Add(1)
	out, err := f()
	returned := h.time.Add(1)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		h.timeouts++
		out, returned = outcome{unknown: true}, math.MaxInt64
	}
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: op, Call: call, Output: out, Return: returned})
	return nil
}

// take is do for Take and Peek. It returns the result.
func (h *callHistory) take(ctx context.Context, l Limiter, client int, call string, c Check) (r Result, err error) {
	err = h.do(client, operation{call: call, units: c.Cost}, func() (outcome, error) {
		decide := l.Take
		if call == "peek" {
			decide = l.Peek
		}
		d, err := decide(ctx, c)
		if err != nil {
			return outcome{}, err
		}
		r = d.Results[0]
		return outcome{allowed: d.Allowed, remaining: r.Remaining, slot: h.slot(r)}, nil
	})
	return r, err
}

// slot is how many units are served before a result's.
func (h *callHistory) slot(r Result) int64 {
	if h.limit.Algorithm != LeakyBucket {
		return 0
	}
	return int64(r.Delay / (h.limit.Period / held))
}

const (
	clients = 5
	calls   = 12 // of each client
)

// run has clients do at random whatever a Limiter can.
func (h *callHistory) run(ctx context.Context, c Limiter, key string) error {
	var wg sync.WaitGroup
	errs := make([]error, clients)
	for client := range clients {
		wg.Go(func() {
			var charged []Result
			for range calls {
				check, dice := Check{Rule: "r", Key: key, Limit: h.limit, Cost: rand.Int64N(3) + 1}, rand.IntN(20)
				if h.limit.held() { // a Reset ends no request, and a request that it forgot is not given back
					check.Cost, dice = 1, max(dice, 3)
				}
				switch {
				case dice < 2 || h.limit.held() && dice < 5:
					_, errs[client] = h.take(ctx, c, client, "peek", check)
				case dice < 3:
					errs[client] = h.do(client, operation{call: "reset"}, func() (outcome, error) {
						return outcome{}, c.Reset(ctx, check)
					})
				case dice < 9 && len(charged) > 0:
					i := rand.IntN(len(charged))
					r := charged[i]
					charged = slices.Delete(charged, i, i+1)
					if dice == 3 { // it has cost more, if need be as a debt
						more := rand.Int64N(held)
						errs[client] = h.do(client, operation{call: "owe", units: more}, func() (outcome, error) {
							return outcome{}, settleAll(ctx, c, r.Charged+more, r)
						})
						break
					}
					errs[client] = h.do(client, operation{call: "give back", units: r.Charged, slot: h.slot(r)}, func() (outcome, error) {
						return outcome{}, settleAll(ctx, c, 0, r)
					})
				default:
					r, err := h.take(ctx, c, client, "take", check)
					if errs[client] = err; r.Charged > 0 {
						charged = append(charged, r)
					}
				}
				if errs[client] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// check asks porcupine whether there is an order in which the operations, each
// at some time between its call and its return, make sense one by one.
func (h *callHistory) check() porcupine.CheckResult {
	const limit = 30 * time.Second // it takes milliseconds
	return porcupine.CheckOperationsTimeout(countModel(h.limit.Algorithm == LeakyBucket), h.ops, limit)
}

func (h *callHistory) String() string {
	var b strings.Builder
	slices.SortFunc(h.ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	for _, op := range h.ops {
		fmt.Fprintf(&b, "client %d, from %d to %d: %+v: %+v\n", op.ClientId, op.Call, op.Return, op.Input, op.Output)
	}
	return b.String()
}

// Whatever calls meet on one key, and whichever of them time out, what they
// come to is what it would be one after the other.
func TestLimitersAreLinearizable(t *testing.T) {
	t.Parallel()
	for _, store := range []struct {
		name      string
		histories int // for each algorithm
		start     func(t *testing.T) (run func(func(context.Context, Limiter)))
	}{
		{"memory", 30, memoryInABubble},
		{"redis", 10, redisThatLosesCommands},
		{"redis, jointly", 5, func(t *testing.T) func(func(context.Context, Limiter)) {
			run := redisThatLosesCommands(t)
			return func(f func(context.Context, Limiter)) {
				run(func(ctx context.Context, c Limiter) { f(ctx, Jointly{c.(*Redis)}) })
			}
		}},
	} {
		t.Run(store.name, func(t *testing.T) {
			t.Parallel()
			run := store.start(t)
			histories := store.histories
			if testing.Short() {
				histories = max(histories/4, 1)
			}
			done, timeouts, longest := 0, 0, time.Duration(0)
			limits := heldLimits()
			for _, limit := range limits {
				for n := range histories {
					h := callHistory{limit: limit}
					var err error
					run(func(ctx context.Context, c Limiter) { err = h.run(ctx, c, fmt.Sprint(n)) })
					if err != nil {
						t.Fatal(err)
					}
					begin := time.Now()
					result := h.check()
					longest = max(longest, time.Since(begin))
					if result != porcupine.Ok {
						t.Fatalf("%s: %s\n%s", h.limit, result, &h)
					}
					done, timeouts = done+len(h.ops), timeouts+h.timeouts
				}
			}
			t.Logf("%d histories of %d operations, %d of them timed out; the longest check took %s",
				len(limits)*histories, done, timeouts, longest)
		})
	}
}

// memoryInABubble has no timeouts, and a clock that stands still.
func memoryInABubble(t *testing.T) func(func(context.Context, Limiter)) {
	return func(f func(context.Context, Limiter)) {
		synctest.Test(t, func(t *testing.T) { f(t.Context(), new(Memory)) })
	}
}

func redisThatLosesCommands(t *testing.T) func(func(context.Context, Limiter)) {
	srv, _ := redistest.StartWithClock(t)
	client := lossyClient(t, srv, func(string) fate {
		if rand.IntN(16) > 0 {
			return delivered
		}
		return fate(rand.IntN(3)) + 1
	})
	namespaces := 0
	return func(f func(context.Context, Limiter)) {
		namespaces++
		f(t.Context(), &Redis{Client: client, Namespace: fmt.Sprint("history-", namespaces), Budget: roomy})
	}
}
