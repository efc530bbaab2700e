package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/seed75154129/ratelimit/algorithms"
)

// An account is what a request has charged by one rule, and what it is to cost. The
// ledger of a request is its accounts: no other code settles what an admitted request was
// charged. The request's mu guards an account. Its parts change during the request's calls
// of the limiter only, one of which is made at a time.
type account struct {
	next *account
	rule string

	// parts are the charges, the oldest first: that of the decision, and one for each Add
	// that took more. A part has a result for each window of the rule, with the place and
	// the Source of its units: so no refund frees what others have used.
	parts [][]algorithms.Result
	spent []int64 // units of parts that are not kept any longer, for each window; nil if all are kept

	settled bool  // the cost is final
	sent    bool  // the limiter has been told
	cost    int64 // units
	debt    int64 // beyond the limit, by the settlement
	err     error // why it was not settled

	// Of Add.
	added   bool  // the sum is the cost, unless another is set
	shadow  bool  // nothing is taken beyond the first charge
	scarce  bool  // the limit has denied more than was missing: ask for no more than that
	sum     int64 // units that were added
	first   int64 // units of the request's charge
	charged int64 // units of all charges
}

// maxParts bounds the parts of an account. The oldest Add makes room, and stays charged.
const maxParts = 65

// append adds a charge, and returns its units: by all windows, but where what is over may be
// more than can be counted; 0 if the rule fails open.
func (a *account) append(part []algorithms.Result) (units int64) {
	for i := range part {
		units = max(units, part[i].Charged)
	}
	a.charged += units
	if a.parts = append(a.parts, part); len(a.parts) > maxParts {
		if a.spent == nil {
			a.spent = make([]int64, len(part))
		}
		for window := range a.spent {
			a.spent[window] += a.parts[1][window].Charged
		}
		a.parts = slices.Delete(a.parts, 1, 2)
	}
	return units
}

// chargedBy returns the units that a window counts.
func (a *account) chargedBy(window int) (units int64) {
	if a.spent != nil {
		units = a.spent[window]
	}
	for _, part := range a.parts {
		units += part[window].Charged
	}
	return units
}

// A change is a charge that is to cost something else.
type change struct {
	of     *account
	window int
	charge *algorithms.Result
	cost   int64
}

// changes appends what makes the account cost what it is to cost. The newest parts are
// refunded first, each at most its own units. The newest part bears what is above all.
func (a *account) changes(all []change) []change {
	for window := range a.parts[0] {
		rest, begin := a.cost-a.chargedBy(window), len(all)
		for _, part := range slices.Backward(a.parts) {
			if r := &part[window]; r.Charged > 0 && rest != 0 {
				cost := max(r.Charged+rest, 0)
				rest -= cost - r.Charged
				all = append(all, change{a, window, r, cost})
			}
		}
		slices.Reverse(all[begin:]) // so that the newest says last what is left
	}
	return all
}

// known returns the account of a rule, nil if its charge stays as it is so far. It requires mu.
func (s *requestState) known(rule string) *account {
	a := s.accounts
	for a != nil && a.rule != rule {
		a = a.next
	}
	return a
}

// account returns the account of a rule, made if there is none. It requires mu.
func (s *requestState) account(rule string) *account {
	if a := s.known(rule); a != nil {
		return a
	}
	part := slices.Clone(resultsOf(rule, s.decision.Results))
	if s.calls == nil {
		s.calls = make(chan struct{}, 1)
	}
	s.accounts = &account{next: s.accounts, rule: rule, parts: [][]algorithms.Result{part}}
	return s.accounts
}

// resultsOf returns the results of a rule, which are next to each other.
func resultsOf(rule string, results []algorithms.Result) []algorithms.Result {
	begin := slices.IndexFunc(results, func(r algorithms.Result) bool { return r.Check.Rule == rule })
	if begin < 0 {
		return nil
	}
	end := begin + 1
	for end < len(results) && results[end].Check.Rule == rule {
		end++
	}
	return results[begin:end]
}

// setCost sets what the request costs by a rule. It reports whether the limiter is to be told
// at once: a request that is held may go on for long.
func (s *requestState) setCost(rule string, units int64) (now bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.account(rule)
	switch {
	case units < 0:
		return false, fmt.Errorf("units must not be negative, got %d", units)
	case isHeld(a.parts[0][0].Check.Limit):
		return false, errors.New("a place in flight has no cost: it is free when the request is over")
	case s.holds == 0:
		return false, errors.New("the handler has returned; settle before that, or call Hold first")
	case a.settled:
		return false, errors.New("settled before; a rule's charge is settled once per request")
	case !slices.ContainsFunc(a.parts, func(part []algorithms.Result) bool { return isCharged(&algorithms.Decision{Results: part}) }):
		return false, nil // and Add may still take units
	}
	a.settled, a.cost = true, units
	return s.kept, nil
}

// refundBy refunds the rules with ChargeOn that do not list the status, and counts strikes by
// those that do. A request whose context has ended stays charged: otherwise clients that hang
// up would not be counted. Its strikes count, because a client that has closed only its own
// side of the connection still reads the response. A connection that the handler takes over
// stays charged, and is no strike: what is answered on it is not known.
func (s *requestState) refundBy(status int) {
	if status == http.StatusSwitchingProtocols {
		return
	}
	s.mu.Lock()
	free := false
	var strikes []algorithms.Result // one for each rule
	for _, r := range s.decision.Results {
		on := s.set.chargeOn(r.Check.Rule)
		if on == nil {
			continue
		}
		switch a := s.known(r.Check.Rule); {
		case !slices.Contains(on, status):
			if (a == nil || !a.settled && !a.added) && s.holds > 0 && s.Context.Err() == nil {
				s.account(r.Check.Rule).settled, free = true, true
			}
		case a != nil && a.settled && a.cost == 0: // the handler says that it was nothing
		case len(strikes) == 0 || strikes[len(strikes)-1].Check.Rule != r.Check.Rule:
			strikes = append(strikes, r)
		}
	}
	s.mu.Unlock()
	for i := range strikes {
		s.strikeBy(&strikes[i])
	}
	if free {
		s.settle(false)
	}
}

// settle has the limiter settle, in one call, the rules whose cost is final. When the request
// is over, what was added is final, too. The end of the request does not stop settle.
func (s *requestState) settle(over bool) {
	s.mu.Lock()
	calls := s.calls
	s.mu.Unlock()
	if calls == nil {
		return
	}
	calls <- struct{}{}
	defer func() { <-calls }()
	var all []change
	s.mu.Lock()
	for a := s.accounts; a != nil; a = a.next {
		if over && a.added && !a.settled {
			a.settled, a.cost = true, a.sum
		}
		if a.settled && !a.sent {
			a.sent = true
			all = a.changes(all)
		}
	}
	s.mu.Unlock()
	if len(all) == 0 {
		return
	}
	charges := make([]algorithms.Charge, len(all))
	for i, c := range all {
		charges[i] = algorithms.Charge{Result: *c.charge, Cost: c.cost}
	}
	results, err := s.by.limiter.Settle(s.Context, charges...)
	if len(results) != len(charges) {
		results = make([]algorithms.Result, len(charges))
		for i, c := range all {
			results[i] = *c.charge
		}
	}
	var failed []error
	s.mu.Lock()
	for i, c := range all {
		r := &results[i]
		units := r.Charged - c.charge.Charged
		if err != nil && r.Charged != c.cost {
			r.Err = cmp.Or(r.Err, err)
		}
		if *c.charge = *r; r.Err != nil && c.of.err == nil {
			c.of.err = r.Err
			failed = append(failed, fmt.Errorf("rule %q: %w", c.of.rule, r.Err))
		}
		s.count(c.of, c.window, units, r.Remaining)
	}
	s.mu.Unlock()
	if len(failed) > 0 {
		s.by.unsettled.Add(uint64(len(failed)))
		s.by.unsettledLog.Do(func() { s.by.config.Logger.Error("ratelimit: charges not settled", "error", errors.Join(failed...)) })
	}
}

// count counts the units that a settlement has charged or refunded: those of the first
// window, for all. The debt is that of the window which is furthest beyond its limit.
func (s *requestState) count(a *account, window int, units, remaining int64) {
	c := s.set.seriesOf(a.rule)
	switch {
	case window > 0:
	case units < 0:
		c.refunded.Add(uint64(-units))
	default:
		c.charged.Add(uint64(units))
	}
	if debt := beyond(units, remaining); debt > a.debt {
		c.debt.Add(uint64(debt - a.debt))
		a.debt = debt
	}
}

// final returns the decision with what the request costs in the end. The request is over.
func (s *requestState) final() algorithms.Decision {
	d := s.decision
	d.Results = slices.Clone(d.Results)
	s.mu.Lock()
	defer s.mu.Unlock()
	for a := s.accounts; a != nil; a = a.next {
		windows := resultsOf(a.rule, d.Results)
		for i := range windows {
			r := &windows[i]
			r.Charged = a.chargedBy(i)
			for _, part := range a.parts {
				if p := &part[i]; !p.At.Before(r.At) {
					r.Source, r.At, r.Err, r.Remaining, r.RetryAfter, r.ResetAfter = p.Source, p.At, p.Err, p.Remaining, p.RetryAfter, p.ResetAfter
				}
			}
			r.Err = cmp.Or(a.err, r.Err)
		}
	}
	return d
}
