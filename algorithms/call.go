package algorithms

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// A banOp is what a call about bans does; see internal/script/bans.lua.
type banOp string

const (
	lookAtBan   banOp = "look"
	countDenial banOp = "deny"
	banByHand   banOp = "ban"
	liftBan     banOp = "lift"
)

// bansCall is about the bans of the checks. By hand, it needs their params, and how
// long the bans last in µs.
func (r *Redis) bansCall(op banOp, length int64, checks []Check, ps []step.Params) *transport.Call {
	args := make([]any, 3, 4+6*len(checks))
	for i := range checks {
		args = append(args, r.banKey(&checks[i]))
		if ps != nil {
			args = append(args, r.key(&checks[i], &ps[i]), r.keptKey(&checks[i], &ps[i]))
		}
	}
	args[2] = len(args) - 3
	args = append(args, string(op))
	for i := range checks {
		b := checks[i].banRule()
		args = append(args, b.After, b.Within, cmp.Or(length, b.Length))
	}
	return &transport.Call{Script: script.Bans, Args: args}
}

// takeBansCall decides checks some of which have a ban; see
// internal/script/take_bans.lua. met says that one of them has met a ban by hand or
// a foreign value: that takes all for checks with a ban.
func (r *Redis) takeBansCall(charge, met bool, checks []Check, ps []step.Params) *transport.Call {
	c := r.takeCall(charge, checks, ps)
	if c.Script = script.TakeBans; c.Instead != nil {
		c.Instead = atItsTime(ps, func() *transport.Call { return r.takeBansCall(charge, met, checks, ps) })
	}
	var keys []any
	bans := 0
	for i := range checks {
		if !checks[i].bans() && !met {
			continue
		}
		bans++
		keys = append(keys, r.banKey(&checks[i]), r.keptKey(&checks[i], &ps[i]))
		b := checks[i].banRule()
		spareW, spareF := ps[i].Spare()
		c.Args = append(c.Args, i+1, b.After, b.Within, b.Length, spareW, spareF)
	}
	flag := 0
	if met {
		flag = 1
	}
	c.Args[2] = len(checks) + len(keys)
	c.Args = append(slices.Insert(c.Args, 3+len(checks), keys...), flag, bans)
	return c
}

// takeCall decides checks without a ban; see internal/script/take.lua, and
// take_joint.lua for several such calls.
func (r *Redis) takeCall(charge bool, checks []Check, ps []step.Params) *transport.Call {
	args := make([]any, 3, 4+8*len(checks))
	args[2] = len(checks)
	for i := range checks {
		args = append(args, r.key(&checks[i], &ps[i]))
	}
	if charge {
		args = append(args, "1")
	} else {
		args = append(args, "0")
	}
	joins, timed := true, false
	for i := range checks {
		joins, timed = joins && !ps[i].Summary, timed || ps[i].Calendar
		code := ps[i].Code
		if checks[i].Shadow {
			code = -code
		}
		args = ps[i].Arguments(append(args, code))
	}
	c := &transport.Call{Script: script.Take, Args: args, Joins: joins}
	if timed {
		c.Instead = atItsTime(ps, func() *transport.Call { return r.takeCall(charge, checks, ps) })
	}
	return c
}

// noWindow is how the scripts begin what they say where their clock is in none of the
// windows of a calendar that they were given; behind it they say the time, in µs.
const noWindow = "none of the calendar windows holds "

// atItsTime makes a call again, once, with the windows around the server's time.
func atItsTime(ps []step.Params, again func() *transport.Call) func(error) *transport.Call {
	return func(err error) *transport.Call {
		_, time, found := strings.Cut(err.Error(), noWindow)
		if !found || !transport.Answered(err) {
			return nil
		}
		digits := strings.IndexFunc(time, func(r rune) bool { return r < '0' || r > '9' })
		if digits < 0 {
			digits = len(time)
		}
		now, err := strconv.ParseInt(time[:digits], 10, 64)
		if err != nil {
			return nil
		}
		for i := range ps {
			ps[i].Told(now)
		}
		c := again()
		c.Instead = nil
		return c
	}
}

// settleKeptCall corrects charges some of which are kept elsewhere during a ban by
// hand; see internal/script/settle_kept.lua.
func (r *Redis) settleKeptCall(corrections []settlement) *transport.Call {
	c := r.settleCall(corrections)
	if c.Script = script.SettleKept; c.Instead != nil {
		c.Instead = atItsTime(paramsIn(corrections), func() *transport.Call { return r.settleKeptCall(corrections) })
	}
	var keys []any
	for i := range corrections {
		keys = append(keys, r.keptKey(&corrections[i].result.Check, &corrections[i].Params))
	}
	c.Args[2] = 2 * len(corrections)
	c.Args = slices.Insert(c.Args, 3+len(corrections), keys...)
	return c
}

func paramsIn(corrections []settlement) []step.Params {
	ps := make([]step.Params, len(corrections))
	for i := range corrections {
		ps[i] = corrections[i].Params
	}
	return ps
}

// settleCall corrects charges; see internal/script/settle.lua.
func (r *Redis) settleCall(corrections []settlement) *transport.Call {
	args := make([]any, 3, 3+14*len(corrections))
	args[2] = len(corrections)
	for i := range corrections {
		args = append(args, r.key(&corrections[i].result.Check, &corrections[i].Params))
	}
	timed := false
	for i := range corrections {
		c := &corrections[i]
		begin := len(args)
		timed = timed || c.Calendar
		args = c.Step.Corrections(c.Step.Arguments(append(args, 0, c.Code), c.Params), &c.Correction)
		args[begin] = len(args) - begin - 1
	}
	c := &transport.Call{Script: script.Settle, Args: args}
	if timed {
		c.Instead = atItsTime(paramsIn(corrections), func() *transport.Call { return r.settleCall(corrections) })
	}
	return c
}
