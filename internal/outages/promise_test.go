package outages

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A promise is what the users of a limiter may expect of an outage, beside what
// always holds: see check.
type promise struct {
	row     row                      // its place and name in the table
	servers []*redistest.Server      // which count; none of them executes a decision twice
	waits   int                      // so many requests may take longer than grace
	back    time.Duration            // so soon after the outage Redis decides everything
	forgets int                      // so often Redis loses its counts
	opens   int                      // so often the limiter may say that something is down
	loses   int                      // so many units Redis may forget, as a failover does that comes before they are replicated
	alone   int                      // so many requests may be decided without Redis while there is no outage
	latency time.Duration            // so much of the budget the network needs while there is no outage
	spared  func(client string) bool // clients that the outage does not concern; nil means none
}

// strays is how many requests may take longer than grace where none should: few
// enough that waiting for a server that does not answer is noticed.
func (r *run) strays() int { return len(r.records) / 50 }

// underWay is how many requests begin before a server that hangs is noticed:
// the first that fails takes the budget, the probe four fifths of it, and one on a new
// connection two fifths. They may wait.
func (r *run) underWay() int {
	return int((budget*11/5+50*time.Millisecond).Seconds()*float64(r.rate)) + 5
}

// A summary is a row of the table.
type summary struct {
	requests, answered, alone    int           // alone: decided without Redis
	slowest                      time.Duration // less what the machine was late
	wronglyAdmitted, wronglyDeny int
	forgotten                    int // units that Redis had counted
	recovered                    time.Duration
}

// A problem is something that was not kept, how often, and the first of it.
type problem struct {
	what  string
	times int
	first string
}

// A verdict is what became of a load, by the problems that were found.
type verdict struct {
	summary summary
	broken  []*problem // not kept, whatever the machine did
	timely  []*problem // not kept in time, which only a machine of our own can be held to
}

func add(to *[]*problem, what string, example any) {
	for _, p := range *to {
		if p.what == what {
			p.times++
			return
		}
	}
	*to = append(*to, &problem{what, 1, fmt.Sprintf("%+v", example)})
}

func (v *verdict) add(what string, example any)  { add(&v.broken, what, example) }
func (v *verdict) late(what string, example any) { add(&v.timely, what, example) }

// check wants every request treated as the fail mode of its route says, and
// what a promise says.
func (r *run) check(p promise) summary {
	r.t.Helper()
	v := r.judge(p)
	for _, p := range v.broken {
		r.t.Errorf("%s: %d times, first: %s", p.what, p.times, p.first)
	}
	r.t.Logf("%+v; %d calls, %d probes; errors %v; the machine was up to %v late",
		v.summary, r.wire.sent, r.wire.probes, r.wire.errors, r.machine.late(0, r.length))
	p.row.write(v.summary, r.away.Load())
	for _, p := range v.timely {
		report := r.t.Errorf
		if !all || r.busy() {
			report = r.t.Logf
		}
		report("%s: %d times, first: %s", p.what, p.times, p.first)
	}
	if all && len(v.timely) > 0 && r.busy() {
		p.row.untimed(r.t)
	}
	return v.summary
}

// judge finds what was not kept.
func (r *run) judge(p promise) *verdict {
	r.t.Helper()
	r.end()
	v := new(verdict)
	r.checkTimes(v, p)
	r.checkOpened(v, p)
	r.checkModes(v)
	r.checkTotals(v, p)
	r.checkCounts(v, p)
	return v
}

// checkModes is about what each request was answered.
func (r *run) checkModes(v *verdict) {
	for i := range r.records {
		rec := &r.records[i]
		on, each := rec.on(), len(rec.results) == 2
		switch {
		case rec.status != http.StatusOK && rec.status != http.StatusTooManyRequests && rec.status != http.StatusServiceUnavailable:
			v.add("neither passed nor denied", rec)
		case !each:
			v.add("not decided by both of its rules", rec)
		case rec.route == "open" && rec.status != http.StatusOK:
			v.add("fail open denied", rec)
		case rec.route == "closed" && rec.status == http.StatusOK && (on.Charged != 1 || on.Source != algorithms.SourceRedis && on.Source != algorithms.SourceFallback):
			v.add("fail closed admitted what was not counted", rec)
			v.summary.wronglyAdmitted++
		case rec.route == "closed" && on.Source == algorithms.SourceFailClosed && rec.status != http.StatusServiceUnavailable:
			v.add("fail closed denied with another status than 503", rec)
		case rec.route == "local" && on.Source != algorithms.SourceRedis && on.Source != algorithms.SourceFallback && on.Source != algorithms.SourceDenyCache:
			v.add("local did not count", rec)
		}
		uncountable := rec.route == "closed" && on.Source == algorithms.SourceFailClosed
		if regular := rec.client != abuser && rec.client != newcomer; regular && rec.status != http.StatusOK && !uncountable {
			v.add("denied below its limits", rec)
			v.summary.wronglyDeny++
		}
	}
}

// checkTotals is about how much of "local" each client got: its limit, once
// more each time that Redis forgot it, and in the outage no more than a share.
func (r *run) checkTotals(v *verdict, p promise) {
	total, alone := map[string]int{}, map[string]int{}
	for i := range r.records {
		if rec := &r.records[i]; rec.route == "local" && rec.status == http.StatusOK {
			total[rec.client]++
			if rec.on().Source == algorithms.SourceFallback {
				alone[rec.client]++
			}
		}
	}
	for client, n := range total {
		most := limit*(1+p.forgets) + share + p.loses
		if client == abuser {
			most = limit * p.forgets // what it has used before counts in the outage, too
		}
		if n > most || alone[client] > share {
			v.add("admitted more than a limit and a share", fmt.Sprintf("%s: %d, of which %d without Redis", client, n, alone[client]))
			v.summary.wronglyAdmitted += max(n-most, alone[client]-share)
		}
	}
	if alone[abuser] > 0 && p.forgets == 0 {
		v.add("admitted without Redis what had used up its limit", alone[abuser])
	}
}

// checkCounts compares what Redis has counted with what was admitted.
func (r *run) checkCounts(v *verdict, p promise) {
	r.wire.mu.Lock()
	sent := r.wire.sent + r.wire.probes
	r.wire.mu.Unlock()
	executed := 0
	for _, s := range p.servers {
		executed += s.Executed(r.t)
	}
	looks := 20 * (1 + int(r.length.Seconds())) // of the monitor: five a second, on up to two connections, of two commands
	if executed > sent+looks {
		v.add(fmt.Sprintf("Redis executed more than the %d scripts that were sent", sent), executed)
	}

	charged, left := map[counter]int{{"local", abuser}: limit}, map[counter]int{}
	for i := range r.records {
		rec := &r.records[i]
		for _, res := range rec.results {
			c := counter{res.Check.Rule, rec.client}
			if res.Source == algorithms.SourceRedis {
				charged[c] += int(res.Charged)
			} else if rec.took >= budget { // it left a batch, which others may have seen answered
				left[c]++
			}
		}
	}
	lost := 0
	reader := &algorithms.Redis{Client: r.patient(), Namespace: namespace, Budget: 5 * time.Second}
	for c, n := range charged {
		used := r.used(reader, c)
		r.wire.mu.Lock()
		charges, returns := r.wire.charges[c]+left[c], r.wire.returns[c]
		r.wire.mu.Unlock()
		if used > n+charges {
			v.add("counted more than was admitted and may have been", fmt.Sprintf("%+v: %d, admitted %d, unknown %d", c, used, n, charges))
		}
		missing := max(n-returns-used, 0)
		if lost += missing; missing > 0 && p.forgets == 0 && p.loses == 0 {
			v.add("counted less than was admitted", fmt.Sprintf("%+v: %d, admitted %d, given back perhaps %d", c, used, n, returns))
		}
	}
	v.summary.forgotten = lost
	if lost > p.loses && p.forgets == 0 {
		v.add(fmt.Sprintf("so many units are lost, want at most %d", p.loses), lost)
	}
}

// used is how much of a rule a client has used, as Redis has it.
func (r *run) used(reader *algorithms.Redis, c counter) int {
	for _, rule := range rules() {
		if rule.Name != c.rule {
			continue
		}
		var d algorithms.Decision
		eventually(r.t, func() (err error) { // a busy machine may be late here, too
			d, err = reader.Peek(context.Background(), algorithms.Check{Rule: c.rule, Key: c.client, Limit: rule.Limit})
			return err
		})
		return int(rule.Limit.Quota() - d.Results[0].Remaining)
	}
	r.t.Fatalf("no rule %q", c.rule)
	return 0
}

// patient is a client like the limiter's that waits: that one's pool may still
// answer with an error of the outage.
func (r *run) patient() algorithms.Client {
	var client interface {
		algorithms.Client
		Close() error
	}
	switch c := r.client.(type) {
	case *redis.Client:
		o := *c.Options()
		o.DialTimeout, o.ReadTimeout = time.Second, 5*time.Second
		client = redis.NewClient(&o)
	case *redis.ClusterClient:
		o := *c.Options()
		o.DialTimeout, o.ReadTimeout = time.Second, 5*time.Second
		client = redis.NewClusterClient(&o)
	default:
		r.t.Fatalf("%T is not known here", c)
	}
	r.t.Cleanup(func() { client.Close() })
	return client
}
