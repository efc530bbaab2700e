package algorithms

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/internal/inflight"
	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// InFlight counts the requests that are under way at once, in all processes together:
// at most Rate of them. Each request must be settled at 0 when it ends, as [Refund]
// does; a Middleware does so by itself. Period is the lease: if a process dies, its
// requests stop counting after one Period. A failmode.Guard renews the leases of
// requests that still run. Without a Guard, Period must be longer than the work. A
// [Memory] has no leases. [MaxInFlight] makes such a limit.
//
// A request costs 1. RetryAfter of a denial is one second, because it is not known when
// a request will end. ResetAfter is 0.
const InFlight Algorithm = "in_flight"

// defaultLease is the lease of a limit whose text has none.
const defaultLease = 15 * time.Second

// MaxInFlight is an [InFlight] limit of n requests at once, with a lease of 15 s. Its
// text form is "20 in flight"; with another lease it is "20/5m in_flight".
//
// Beside it, write a limit with a rate by the same key: denials by MaxInFlight are not
// remembered, so each request of a flood asks the store, unless this process holds all
// places. One client can hold all places of a key that clients share: there, write a
// limit for each client as well.
func MaxInFlight(n int64) Limit {
	return Limit{Rate: n, Period: defaultLease, Algorithm: InFlight}
}

// inFlightText is behind the number in the text of such a limit.
const inFlightText = " in flight"

// parseInFlight reads the text form "20 in flight"; false if the text is another's.
func parseInFlight(text string) (l Limit, ok bool, err error) {
	words := strings.Fields(text)
	soft := len(words) == 4 && words[3] == "soft" // Validate says what is wrong with that
	if soft {
		words = words[:3]
	}
	if len(words) != 3 || words[1] != "in" || words[2] != "flight" {
		return Limit{}, false, nil
	}
	n, err := parseUnits("number", words[0])
	l = MaxInFlight(n)
	l.Soft = soft
	return l, true, err
}

// held reports whether a charge by the limit is a request under way.
func (l *Limit) held() bool {
	row := l.row()
	return row != nil && row.Held
}

// badHeld lists what a check of requests under way cannot have.
func (c *Check) badHeld() (errs []error) {
	if !c.Limit.held() {
		return nil
	}
	if c.Cost > 1 {
		errs = append(errs, fmt.Errorf("cost: a request in flight costs 1, got %d; leave it 0, and count units by another rule, such as \"1000/1m\"", c.Cost))
	}
	if c.Ban != (Ban{}) {
		errs = append(errs, errors.New("ban: not with in_flight, whose denials come of requests that end; put the ban on a rule with a rate, such as \"100/1m\""))
	}
	return errs
}

// newID names a request under way. It is made before anything is sent, so that the
// caller can release also what it got no answer about.
func newID() int64 { return 1 + rand.Int64N(1<<52-1) } //nolint:gosec // not a secret

// Holds reports whether a check is of requests under way.
func (h hiddenCheck) Holds() bool { return h.c.Limit.held() }

// Name gives a check of a request under way a name, which is never used twice.
func (h hiddenCheck) Name() { h.c.hold, h.c.NoCache = newID(), true }

// Unname takes the name of a result's check away, and returns it: negative if it is
// unknown whether the store knows the request.
func (h hiddenResult) Unname() (id int64) {
	id, h.r.Check.hold = h.r.Check.hold, 0
	return id
}

// Unsure says that it is unknown whether the store knows the request of a check.
func (h hiddenCheck) Unsure() { h.c.hold = -max(h.c.hold, -h.c.hold) }

// Ended makes a copy of a result the result of a request that is over.
func (h hiddenResult) Ended() {
	h.r.setCharged(0)
	h.r.Remaining++
}

// PlaceOf is what a check with a name holds in the store.
func (s store) PlaceOf(c *Check) inflight.Place {
	var room [128]byte
	return inflight.Place{Key: string(appendKey(room[:0], s.Namespace, c, c.Limit.row())), ID: max(c.hold, -c.hold), Lease: c.Limit.Period}
}

// Release takes requests out of the sets of their keys: the ids by key. It returns the
// keys that have answered.
func (s store) Release(ctx context.Context, ids map[string][]int64) (released []string, err error) {
	keys := make([]string, 0, len(ids))
	calls := make([]*transport.Call, 0, len(ids))
	remove := func(key, at string) *transport.Call {
		args := make([]any, 2, 2+len(ids[key]))
		args[0], args[1] = "zrem", at
		for _, id := range ids[key] {
			args = append(args, id)
		}
		return &transport.Call{Args: args, Keys: args[1:2:2]}
	}
	for key := range ids {
		keys, calls = append(keys, key), append(calls, remove(key, key))
	}
	ctx = s.Transport.Within(ctx)
	responses := s.SendAll(ctx, calls)
	s.Again(ctx, responses, func(i int) *transport.Call {
		if !metBan(responses[i].Err) {
			return nil
		}
		return remove(keys[i], keys[i]+keptSuffix)
	})
	var errs []error
	for i, r := range responses {
		if r.Err == nil || metBan(r.Err) { // a foreign value holds nothing
			released = append(released, keys[i])
			continue
		}
		errs = append(errs, r.Err)
	}
	return released, redisError(errors.Join(errs...))
}

const (
	// renewedKeys and renewedIDs bound what one script renews, so that it takes less
	// than 0.4 ms.
	renewedKeys = 32
	renewedIDs  = 100
)

// Renew puts off the end of leases, and puts back what Redis has forgotten. It returns
// those places that it could not renew.
func (s store) Renew(ctx context.Context, places []inflight.Place) (failed []inflight.Place, err error) {
	type chunk struct {
		keys   []any
		args   []any
		places []inflight.Place
	}
	var chunks []*chunk
	var last *chunk
	for len(places) > 0 { // those of one key are in a row
		n := 1
		for n < len(places) && n < renewedIDs && places[n].Key == places[0].Key {
			n++
		}
		if last == nil || s.Transport.Sharded || len(last.keys) == 2*renewedKeys || len(last.places)+n > renewedIDs {
			last = new(chunk)
			chunks = append(chunks, last)
		}
		last.keys = append(last.keys, places[0].Key, places[0].Key+keptSuffix)
		last.args = append(last.args, places[0].Lease.Microseconds(), n)
		for _, p := range places[:n] {
			last.args = append(last.args, p.ID)
		}
		last.places = append(last.places, places[:n]...)
		places = places[n:]
	}
	calls := make([]*transport.Call, len(chunks))
	for i, c := range chunks {
		calls[i] = &transport.Call{Script: script.Renew, Keys: c.keys, Args: c.args}
	}
	if len(calls) == 0 {
		return nil, nil
	}
	var errs []error
	for i, r := range s.SendAll(s.Transport.Within(ctx), calls) {
		if r.Err != nil {
			failed, errs = append(failed, chunks[i].places...), append(errs, r.Err)
		}
	}
	return failed, redisError(errors.Join(errs...))
}

// named gives the check's numbers the name of the request: a fresh one, if the caller
// has not given one.
func (c *Check) named(p *step.Params) {
	if p.ID = max(c.hold, -c.hold); p.ID == 0 {
		p.ID = newID()
	}
}
