package outages

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
)

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
	const looks = 10 // of the witness, on connections of its own
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
