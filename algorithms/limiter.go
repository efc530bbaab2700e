package algorithms

import (
	"context"
	"errors"
)

// A Limiter decides whether requests may pass. Limiters are safe for concurrent use.
//
// A decorator embeds the Limiter that it wraps and overrides what it changes. Any
// other Limiter implements all methods, and returns an error that wraps
// [errors.ErrUnsupported] from those that it cannot do. Take is the only method that
// every program needs.
type Limiter interface {
	// If every enforced check fits its limit, Take charges all checks that fit. If an
	// enforced check does not fit, Take charges none. A shadow check that does not fit is
	// not charged and denies nothing. A check with Look is never charged.
	//
	// The decision has one result for each check, in the order of the checks. A check that
	// nothing decided, because another one had denied the request, has SourceNone.
	//
	// Being over a limit is not an error. An error means that no check could be decided.
	// If only some checks could not be decided, their results have an Err, and the
	// decision is not Allowed if one of them is enforced. Such a decision may leave
	// results with Charged above 0, and so may a denial whose charges could not be
	// refunded in time. The caller must settle those charges, as failmode.Guard does.
	//
	// Two checks of one call must not share a count.
	Take(ctx context.Context, checks ...Check) (Decision, error)

	// Peek returns the decision that Take would make, and charges nothing. The Peek of a failmode.Guard asks the store even about keys
	// that its Take denies from memory. So the two may differ for up to a second.
	Peek(ctx context.Context, checks ...Check) (Decision, error)

	// Settle changes what charges cost, all of a request in one call. It returns the
	// results as they are now, in the order of the charges. Results with Charged 0 are
	// returned unchanged.
	//
	// The caller settles each result once: a charge that is to change again is the result
	// that Settle returned. A result that is settled twice is refunded twice, and so frees
	// units that others have used.
	//
	// A charge is invalid if its Cost is negative or, with in_flight, neither 0 nor what
	// was charged. If a charge is invalid, nothing is settled, there are no results, and
	// the error wraps [ErrInvalidCheck]. Any other error says that some charges are not
	// settled: their results have an Err, and the others are settled. To try again, settle
	// the returned results. If it is unknown whether a charge was lowered, its result has
	// the lower cost, so that no unit is refunded twice.
	//
	// Settle refunds only what waiting has not freed yet. A token bucket refunds at
	// most what it has not refilled since the charge. A window refunds only what it
	// still counts. A leaky bucket refunds only the last slot of its queue. A sliding
	// log refunds a charge only if at most 1000 others followed it.
	Settle(ctx context.Context, charges ...Charge) ([]Result, error)

	// Reset forgets what is counted for the rule, key, algorithm and period of each
	// check. A Memory does not forget what it counts in a sketch.
	//
	// Charges that were made before are not forgotten: a Settle that lowers one may refund
	// what others have used since. A Memory keeps counting requests in flight. A Redis
	// forgets them, until each Guard adds its own requests again, within a third of their
	// lease. Their charges can be settled as before.
	Reset(ctx context.Context, checks ...Check) error
}

// ErrDenied means that the checks do not fit their limits, or will not fit them in
// time. [Wait] returns it. Test with [errors.Is].
var ErrDenied = errors.New("algorithms: over the limit")
