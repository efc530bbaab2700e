package middleware

import (
	"net/http"
	"slices"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/pattern"
)

// A match holds what is known of a request before any key is resolved.
type match struct {
	set    *ruleset
	target pattern.Target
	first  int // the first rule that matches; below 0 if none does, or the request is skipped
}

// match finds the rules of a request. It charges nothing.
func (m *Middleware) match(r *http.Request) (found match) {
	found.set, found.target, found.first = m.rules.Load(), pattern.TargetOf(r), -1
	exactly := func(p pattern.Pattern) bool { return p.MatchExactly(&found.target) }
	if slices.ContainsFunc(m.skip, exactly) || m.config.SkipFor != nil && m.config.SkipFor(r) {
		found.set.hints.skip()
		return found
	}
	for i := range found.set.rules {
		if found.set.rules[i].applies(&found.target) {
			found.first = i
			return found
		}
	}
	if hints := found.set.hints; hints.watching() {
		hints.decided(r, found.set.rules, nil)
	}
	return found
}

// An evaluation is one request on its way through a Middleware: first its checks, then
// the decision about them.
type evaluation struct {
	m *Middleware
	match
	request *http.Request
	handles bool // the request waits here if a leaky_bucket delays it
	peeks   bool // nothing is charged or counted

	checks    *[]algorithms.Check // that were decided; nil if they are those of the results
	decided   int                 // how many checks the decision is about
	free      []algorithms.Check  // that cost nothing
	looked    int                 // how many of them were looked at
	resolved  [maxReused]resolvedKey
	tierName  string
	tierKnown bool // TierFor was called

	seen []seenKey // for each rule; nil once the hints have watched enough requests

	queues  []queueKey // of the checks by a leaky_bucket
	entered int        // how many of the queues the ticket is for
	ticket  *ticket
	maxWait time.Duration // 0 means any

	decision  algorithms.Decision
	decidedAt time.Duration // since the Middleware was made
	refusal   error         // by a key, while the other rules were charged; nil if there is none
	refuser   int           // the rule with that key
	state     *requestState // nil until the next handler is called
	held      *held         // nil if nothing is held while the request is in flight
	charged   bool          // Config.Settled is to be called

	spent time.Duration // waiting for decisions, in middlewares in front as well
}

// end ends the request, unless Hold keeps it.
func (e *evaluation) end() {
	e.ticket.leave()
	if e.state != nil {
		e.state.letGo()
		return
	}
	e.held.release()
	if e.charged { // a key has refused it, or its client has left while it waited
		e.m.config.Settled(e.request, algorithms.Decision{Allowed: true, Results: slices.Clone(e.decision.Results)})
	}
}
