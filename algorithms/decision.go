package algorithms

import (
	"math"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// A Result is the outcome of one [Check].
type Result struct {
	Check      Check         // as it was decided: with SourceFallback, Limit is this process's share
	Source     Source        // what decided it; SourceNone if nothing did, because another check had denied the request
	HasRoom    bool          // the cost fits the limit; another check may have denied the request
	BanBegan   bool          // set by a Middleware: this denial began the ban
	Charged    int64         // units taken; 0 for a denied request, unless they could not be refunded in time
	Remaining  int64         // units left; at most 0 while the key is banned; negative is a debt
	RetryAfter time.Duration // until Cost units are free; 0 if HasRoom; Never if they never will be
	ResetAfter time.Duration // until all units are free and any ban has ended
	Delay      time.Duration // leaky_bucket: wait this long before serving
	At         time.Time     // when it was decided, on the deciding clock
	BannedFor  time.Duration // set by a Middleware: how long after At the key stays banned, and so denied; 0 if it is not banned
	Err        error         // why this check could not be decided, or its charge not be settled; nil if it was

	Trace step.Trace // where the charge is in the state of its store; for the stores of this module
}

// A Source says what decided a check. Its text form is that of the log, of metrics and of
// the operators' page, such as "fail_open".
type Source uint16

// The sources.
const (
	SourceNone       Source = iota // nothing decided it: another check had denied the request
	SourceRedis                    // Redis counted it
	SourceMemory                   // this process counted it, as configured
	SourceDenyCache                // this process denied it, by the store's last answer
	SourceSync                     // this process counted it, and tells the store
	SourceFallback                 // this process counted it, because Redis could not
	SourceFailOpen                 // not counted: passed
	SourceFailClosed               // not counted: denied
	SourceOther                    // a limiter of your own
)

var sources = [...]string{"none", "redis", "memory", "deny_cache", "sync", "fallback", "fail_open", "fail_closed", "other"}

// String returns the text form.
func (s Source) String() string { return sources[min(s, SourceOther)] }

// MarshalText returns the text form.
func (s Source) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Never is the RetryAfter of a check whose cost is above what the limit can hold.
const Never time.Duration = math.MaxInt64

// Denies reports whether the result denies its request: the check is enforced, and it
// does not fit or could not be decided.
func (r *Result) Denies() bool {
	return !r.HasRoom && !r.Check.Shadow && (r.Err != nil || r.Source != SourceNone)
}

// A Decision is the outcome of a request.
type Decision struct {
	Allowed bool     // no enforced check denied it
	Results []Result // one for each check, in the order of the checks; in a denial, some may have SourceNone
}

// A Charge is a result and what its check is to cost in the end.
type Charge struct {
	Result Result // as Take returned it, or the Settle before
	Cost   int64  // 0 refunds all units; a cost above Result.Charged may leave a debt; negative is an error
}

// Result returns the result of a rule's check. If the rule has several windows, it returns
// the result that denies for the longest time or, if none denies, the tightest. If several
// chained middlewares have a rule of this name, it returns a result of the innermost.
func (d Decision) Result(rule string) (Result, bool) {
	windows := d.windowsOf(rule)
	if len(windows) == 0 {
		return Result{}, false
	}
	denies := -1
	for i := range windows {
		if r := &windows[i]; r.Denies() && (denies < 0 || r.RetryAfter > windows[denies].RetryAfter) {
			denies = i
		}
	}
	if denies >= 0 {
		return windows[denies], true
	}
	if tightest, ok := (Decision{Results: windows}).Tightest(); ok {
		return *tightest, true
	}
	return windows[len(windows)-1], true
}

// windowsOf returns the results of a rule, one for each of its windows. If the rule comes
// several times, they are the last.
func (d Decision) windowsOf(rule string) []Result {
	end := len(d.Results)
	for end > 0 && d.Results[end-1].Check.Rule != rule {
		end--
	}
	begin := end
	for begin > 0 && d.Results[begin-1].Check.Rule == rule {
		window := d.Results[begin-1].Check.Limit.window()
		for i := begin; i < end; i++ {
			if d.Results[i].Check.Limit.window() == window {
				return d.Results[begin:end] // this window comes again: before it the rule comes another time
			}
		}
		begin--
	}
	return d.Results[begin:end]
}

// RetryAfter is the longest RetryAfter of the checks that denied the request; 0
// if none did. For a calendar window it may be a month, whereas the header Retry-After is
// at most an hour: to show the header's value in a body, read the header.
func (d Decision) RetryAfter() time.Duration {
	var longest time.Duration
	for i := range d.Results {
		if r := &d.Results[i]; r.Denies() {
			longest = max(longest, r.RetryAfter)
		}
	}
	return longest
}

// Delay is how long to wait before serving an admitted request: the longest
// Delay of its enforced checks; 0 if it was denied.
func (d Decision) Delay() time.Duration {
	var longest time.Duration
	for i := range d.Results {
		if r := &d.Results[i]; d.Allowed && !r.Check.Shadow {
			longest = max(longest, r.Delay)
		}
	}
	return longest
}

// Tightest returns the enforced one of d.Results with the least Remaining/Cost and, among
// equals, the longest ResetAfter; nil and false if there is none. Results with an Err or with
// SourceNone do not count.
func (d Decision) Tightest() (tightest *Result, ok bool) {
	fewest := int64(0)
	for i := range d.Results {
		r := &d.Results[i]
		if r.Check.Shadow || r.Err != nil || r.Source == SourceNone && !r.HasRoom {
			continue
		}
		left := r.Remaining
		if cost := r.Check.Cost; cost > 1 {
			if left = r.Remaining / cost; r.Remaining%cost < 0 {
				left-- // in debt
			}
		}
		if tightest == nil || left < fewest || left == fewest && r.ResetAfter > tightest.ResetAfter {
			tightest, fewest = r, left
		}
	}
	return tightest, tightest != nil
}

// state copies an answer, and the state that it was computed from, to the result.
func (r *Result) state(p *step.Params, s *step.State, a *step.Answer) {
	if r.Trace.Known = !p.Summary; r.Trace.Known {
		r.Trace.State = s.Numbers()
	}
	r.Remaining, r.RetryAfter, r.ResetAfter, r.Delay = a.Remaining, a.RetryAfter, a.ResetAfter, a.Delay
}
