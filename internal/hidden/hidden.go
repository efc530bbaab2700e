// Package hidden removes from a decision what clients must not learn about
// hidden rules: their names, limits and counts.
package hidden

import (
	"errors"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Err is the Err of a denial by a hidden rule that was counted.
var Err = errors.New("hidden: result withheld")

// Redact returns a decision that can be shown to clients. It leaves out the
// results of hidden rules, except those that deny the request: they keep their
// source, time and RetryAfter, and have a zero Check and zero counts. Of a calendar window,
// RetryAfter is at most an hour, as the header Retry-After is.
//
// Their Err is not nil, so nothing shows them: Tightest and the writers of
// package headers pass over results with an Err. It is [Err] where the rule was
// counted, and the result's own Err where it could not be. So headers.Status
// still tells a 429 from a 503.
//
// Redact does not change d. It allocates only where a hidden rule took part.
func Redact(d algorithms.Decision, isHidden func(rule string) bool) algorithms.Decision {
	for i := range d.Results {
		if isHidden(d.Results[i].Check.Rule) {
			d.Results = redact(d.Results, isHidden)
			break
		}
	}
	return d
}

func redact(results []algorithms.Result, isHidden func(rule string) bool) []algorithms.Result {
	shown := make([]algorithms.Result, 0, len(results))
	for i := range results {
		r := &results[i]
		switch {
		case !isHidden(r.Check.Rule):
			shown = append(shown, *r)
		case r.Denies():
			redacted := algorithms.Result{Source: r.Source, RetryAfter: r.RetryAfter, At: r.At, Err: r.Err}
			if r.Check.Limit.Calendar != "" && r.RetryAfter != algorithms.Never {
				redacted.RetryAfter = min(r.RetryAfter, time.Hour)
			}
			if r.Err == nil {
				redacted.Err = Err
			}
			shown = append(shown, redacted)
		}
	}
	return shown
}
