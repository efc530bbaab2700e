package algorithms

import (
	"fmt"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// foreign says at which key of a check such a value is.
func (r *Redis) foreign(c *Check, p *step.Params, err error) error {
	if !isForeign(err) {
		return err
	}
	return fmt.Errorf("foreign value at key %s; Reset deletes it: %w: %w", r.key(c, p.Row), transport.ErrForeign, err)
}

// answers turns what [script.ParseReply] returns into a decision.
func answers(checks []Check, ps []step.Params, reply []int64, charge bool) (Decision, error) {
	if err := checkReply(reply, 1+4*len(checks), len(checks)); err != nil {
		return Decision{}, err
	}
	now := reply[0]
	d := Decision{Allowed: true, Results: make([]Result, len(checks))}
	for i := range checks {
		res := &d.Results[i]
		res.Check, res.Source, res.HasRoom, res.At = checks[i], SourceRedis, reply[1+4*i] == 1, time.UnixMicro(now)
		d.Allowed = d.Allowed && !res.Denies()
	}
	for i := range checks {
		p, res := &ps[i], &d.Results[i]
		current := stateOf(p, reply[2+4*i:], now)
		charged, where, ok := p.Take(current, now)
		if ok != res.HasRoom {
			return Decision{}, fmt.Errorf("%w: key %d has %v at %d, and room is %v", transport.ErrReply, i, reply[2+4*i:5+4*i], now, res.HasRoom)
		}
		if charge && d.Allowed && res.HasRoom {
			res.Charged = p.Cost
		}
		res.fill(p, current, charged, where, now)
	}
	return d, nil
}

// fill completes the result from the state of its key: from charged if the check was
// charged, and from current otherwise.
func (r *Result) fill(p *step.Params, current, charged step.State, where step.Placed, now int64) {
	s := current
	if r.Charged > 0 {
		s, r.Trace.Charge = charged, where
	}
	var a step.Answer
	p.Answer(&a, r.HasRoom, &s, where, now)
	r.state(p, &s, &a)
}

// isForeign reports whether a script has met a foreign value in the place of a state. It has
// written nothing then.
func isForeign(err error) bool {
	if err == nil || !transport.Answered(err) {
		return false
	}
	text := err.Error()
	return strings.Contains(text, "no state of a limit at key") || strings.Contains(text, "WRONGTYPE") || strings.Contains(text, "perform arithmetic")
}

// settled turns the reply of settle.lua into what the corrections' results
// are now.
func settled(corrections []settlement, reply []int64) error {
	if err := checkReply(reply, 1+3*len(corrections), len(corrections)); err != nil {
		return err
	}
	for i := range corrections {
		c := &corrections[i]
		c.answer(stateOf(&c.Params, reply[1+3*i:], reply[0]), reply[0])
	}
	return nil
}

// failed notes why a correction was not made. If it may have been made all the same, the
// result has the lower of both costs, so that settling it again refunds no unit twice.
func (c *settlement) failed(err error) {
	c.result.Err = redisError(err)
	if c.Delta < 0 && !c.Held && !transport.NotExecuted(err) && !isForeign(err) {
		c.result.setCharged(c.Units + c.Delta)
	}
}

// checkReply reports whether a script can have answered so: so many numbers for n keys, the
// clock first, and none negative.
func checkReply(reply []int64, numbers, n int) error {
	if len(reply) != numbers {
		return fmt.Errorf("%w: %d numbers for %d keys, want %d", transport.ErrReply, len(reply), n, numbers)
	}
	for i, number := range reply {
		if number < 0 || number >= step.MaxExact {
			return fmt.Errorf("%w: %d as number %d; want 0 to 2^53", transport.ErrReply, number, i)
		}
	}
	return nil
}

// stateOf reads a state from a reply. It is current already, unless somebody
// else has written the key: then it is made what a step can work with.
func stateOf(p *step.Params, reply []int64, now int64) step.State {
	s := step.State{A: reply[0], B: reply[1], C: reply[2]}
	if p.Log {
		oldest, newest := now-p.Period+1, now+p.Period
		s.B, s.C = min(max(s.B, oldest), newest), min(max(s.C, oldest), newest)
		return s
	}
	return p.Current(s, now)
}
