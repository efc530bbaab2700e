package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// descs are the metrics by name; docs/metrics.md says what they mean.
var descs = describe([]description{
	{"decisions_total", "Checks decided, by rule.", []string{"rule", "algorithm", "outcome", "source"}},
	{"window_denials_total", "Denials by rules with several windows, by the window that denied.", []string{"rule", "window", "outcome"}},
	{"unknown_tiers_total", "Requests of a tier that a rule with tiers does not know.", []string{"rule"}},
	{"near_limit_total", "Admitted checks that left a key with at least 80 % of its limit used.", []string{"rule"}},
	{"bans_total", "Bans that strikes of this process began.", []string{"rule"}},
	{"banned_total", "Denials of keys that are banned.", []string{"rule"}},
	{"units_total", "Units that were charged, refunded, or charged beyond the limit.", []string{"rule", "kind"}},
	{"topups_total", "How often Add has asked for more units.", []string{"rule", "outcome"}},
	{"settlements_failed_total", "Charges that could not be settled or released.", nil},
	{"in_flight", "Requests that this process holds in flight.", []string{"rule"}},

	{"decision_duration_seconds", "Time to decide a request: its keys and the limiter.", nil},
	{"store_duration_seconds", "Time of a call to the store.", nil},
	{"store_errors_total", "Calls to the store and checks in them that failed, by class.", []string{"class"}},

	{"breaker_open_shards", "Servers of the store whose circuit is open.", nil},
	{"breaker_shards", "Servers of the store that decisions were sent to so far.", nil},
	{"breaker_transitions_total", "How often a circuit has opened or closed.", []string{"to"}},

	{"releases_dropped_total", "Keys whose last request in flight ended without Redis hearing of it.", nil},
	{"renewals_failed_total", "Failed attempts to tell Redis what is in flight for a key, which are repeated.", nil},

	{"instances", "Processes that share the limits.", nil},
	{"local_keys", "Keys with a count of their own in this process.", nil},
	{"local_evictions_total", "Replenished keys that were evicted in this process.", nil},
	{"local_overflow_total", "Checks that a sketch decided in this process, for want of room.", nil},
	{"local_sketches", "Sketches in use in this process.", nil},

	{"queue_waiting", "Requests that wait for their turn in a leaky_bucket.", nil},
	{"queue_delay_seconds", "Time that requests have to wait for their turn.", nil},

	{"shed_total", "Requests that the Shedder refused, or would have in shadow.", []string{"priority", "reason"}},
	{"shed_limit", "Requests that may be at work at once.", nil},
	{"shed_working", "Requests at work.", nil},
	{"shed_waiting", "Requests that wait for a place among those at work.", nil},
	{"shed_parked", "Requests whose handlers wait for their clients, without a place.", nil},
	{"shed_wait_seconds", "Time that requests have waited for a place.", nil},

	{"rules", "Rules in force.", nil},
	{"rules_generation", "How often rules have been put in force.", nil},
	{"rules_version", "Version of the published document that the rules are from; 0 if they are from none.", nil},
	{"rules_errors_total", "Calls of SetRules that returned an error, and rules that could not be read.", nil},
	{"rules_failing", "Middlewares whose rules could not be replaced when that was last tried.", nil},
})

type description struct {
	name, help string
	labels     []string
}

func describe(all []description) map[string]*prometheus.Desc {
	descs := make(map[string]*prometheus.Desc, len(all))
	for _, d := range all {
		name := "ratelimit_" + d.name
		descs[name] = prometheus.NewDesc(name, d.help, d.labels, nil)
	}
	return descs
}
