package algorithms

import (
	"context"
	"errors"

	"github.com/seed75154129/ratelimit/internal/inflight"
	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// PlaceOf is what a check with a name holds in the store.
func (s store) PlaceOf(c *Check) inflight.Place {
	var room [128]byte
	return inflight.Place{Key: string(appendKey(room[:0], s.Namespace, c, c.Limit.row())), ID: c.Hold.ID(), Lease: c.Limit.Period}
}

// Release takes requests out of the sets of their keys: the ids by key. It returns the
// keys that have answered.
func (s store) Release(ctx context.Context, ids map[string][]int64) (released []string, err error) {
	keys := make([]string, 0, len(ids))
	calls := make([]*transport.Call, 0, len(ids))
	for key, of := range ids {
		args := make([]any, 2, 2+len(of))
		args[0], args[1] = "zrem", key
		for _, id := range of {
			args = append(args, id)
		}
		keys, calls = append(keys, key), append(calls, &transport.Call{Args: args, Keys: args[1:2:2]})
	}
	var errs []error
	for i, r := range s.SendAll(s.Transport.Within(ctx), calls) {
		if r.Err == nil || isForeign(r.Err) { // a foreign value holds nothing
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
		if last == nil || s.Transport.Sharded || len(last.keys) == renewedKeys || len(last.places)+n > renewedIDs {
			last = new(chunk)
			chunks = append(chunks, last)
		}
		last.keys = append(last.keys, places[0].Key)
		last.args = append(last.args, places[0].Lease.Microseconds(), n)
		for _, p := range places[:n] {
			last.args = append(last.args, p.ID)
		}
		last.places = append(last.places, places[:n]...)
		places = places[n:]
	}
	calls := make([]*transport.Call, len(chunks))
	for i, c := range chunks {
		calls[i] = &transport.Call{Script: script.Pulse, Keys: c.keys, Args: c.args}
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
