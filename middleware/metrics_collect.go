package middleware

import (
	"github.com/prometheus/client_golang/prometheus"
)

// The metrics; docs/metrics.md says what they mean.
var (
	descDecisions    = desc("decisions_total", "Checks decided, by rule.", "rule", "algorithm", "outcome", "source")
	descUnknownTiers = desc("unknown_tiers_total", "Requests of a tier that a rule with tiers does not know.", "rule")
	descNearLimit    = desc("near_limit_total", "Admitted checks that left a key with at least 80 % of its limit used.", "rule")
	descBans         = desc("bans_total", "Bans that denials of this process began.", "rule")
	descBanned       = desc("banned_total", "Denials of keys that are banned.", "rule")

	descDecisionDuration = desc("decision_duration_seconds", "Time to decide a request: its keys and the limiter.")
	descStoreDuration    = desc("store_duration_seconds", "Time of a call to the store.")
	descStoreErrors      = desc("store_errors_total", "Calls to the store and checks in them that failed, by class.", "class")

	descBreakerOpen        = desc("breaker_open_shards", "Servers of the store whose circuit is open.")
	descBreakerShards      = desc("breaker_shards", "Servers of the store that decisions were sent to so far.")
	descBreakerTransitions = desc("breaker_transitions_total", "How often a circuit has opened or closed.", "to")

	descInstances      = desc("instances", "Processes that share the limits.")
	descLocalKeys      = desc("local_keys", "Keys with a count of their own in this process.")
	descLocalEvictions = desc("local_evictions_total", "Replenished keys that were evicted in this process.")
	descLocalOverflow  = desc("local_overflow_total", "Checks that a sketch decided in this process, for want of room.")
	descLocalSketches  = desc("local_sketches", "Sketches in use in this process.")

	descQueueWaiting = desc("queue_waiting", "Requests that wait for their turn in a leaky_bucket.")
	descQueueDelay   = desc("queue_delay_seconds", "Time that requests have to wait for their turn.")

	descRules           = desc("rules", "Rules in force.")
	descRulesGeneration = desc("rules_generation", "How often rules have been put in force.")
	descRulesErrors     = desc("rules_errors_total", "Calls of SetRules that returned an error, and rules that could not be read.")
	descRulesFailing    = desc("rules_failing", "Middlewares whose rules could not be replaced when that was last tried.")

	descs []*prometheus.Desc
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	d := prometheus.NewDesc("ratelimit_"+name, help, labels, nil)
	descs = append(descs, d)
	return d
}

// Describe implements [prometheus.Collector].
func (mt *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (mt *metrics) Collect(ch chan<- prometheus.Metric) {
	mt.mu.Lock()
	defer mt.mu.Unlock()
	mt.collectRules(ch)
	ch <- mt.decision.metric(descDecisionDuration)
	ch <- mt.store.metric(descStoreDuration)
	for i := range errorClasses {
		counter(ch, descStoreErrors, mt.storeErrors[i].Load(), string(errorClasses[i]))
	}
	mt.limiters.collect(ch)

	var waiting, rules, generation, failing int
	var rejected uint64
	for _, m := range mt.middlewares {
		set := m.rules.Load()
		waiting += m.room.count()
		rules += len(set.rules)
		generation += set.generation
		rejected += m.rejected.Load()
		if m.failures.current() != nil {
			failing++
		}
	}
	gauge(ch, descQueueWaiting, float64(waiting))
	ch <- mt.queueDelay.metric(descQueueDelay)
	gauge(ch, descRules, float64(rules))
	gauge(ch, descRulesGeneration, float64(generation))
	counter(ch, descRulesErrors, rejected)
	gauge(ch, descRulesFailing, float64(failing))
}

func (mt *metrics) collectRules(ch chan<- prometheus.Metric) {
	near := make(map[string]uint64) // a rule may have two algorithms, in two middlewares
	unknownTiers := make(map[string]uint64)
	bans, banned := make(map[string]uint64), make(map[string]uint64)
	for key, s := range mt.series {
		near[key.rule] += s.near.Load()
		if s.tiers {
			unknownTiers[key.rule] += s.unknownTiers.Load()
		}
		if n := s.banned.Load(); s.canBan || n > 0 { // by hand, any rule's keys can be
			bans[key.rule] += s.bans.Load()
			banned[key.rule] += n
		}
		for o := range s.counts {
			for from := range s.counts[o] {
				if n := s.counts[o][from].Load(); n > 0 || s.expected[o][from] {
					counter(ch, descDecisions, n, key.rule, key.algorithm, outcomeNames[o], originNames[from])
				}
			}
		}
	}
	for rule, n := range near {
		counter(ch, descNearLimit, n, rule)
	}
	for rule, n := range unknownTiers {
		counter(ch, descUnknownTiers, n, rule)
	}
	for rule := range banned {
		counter(ch, descBans, bans[rule], rule)
		counter(ch, descBanned, banned[rule], rule)
	}
}

func (s *state) collect(ch chan<- prometheus.Metric) {
	var shards, open int
	var opened int64
	instances := 1 // this one; limiters that are shared by as many are not twice as many
	for g := range s.guards {
		instances = max(instances, guards.Instances(g))
		for _, circuit := range guards.Circuits(g) {
			shards++
			opened += circuit.Opened
			if circuit.Open {
				open++
			}
		}
	}
	gauge(ch, descBreakerShards, float64(shards))
	gauge(ch, descBreakerOpen, float64(open))
	counter(ch, descBreakerTransitions, uint64(opened), "open")
	counter(ch, descBreakerTransitions, uint64(opened-int64(open)), "closed")

	gauge(ch, descInstances, float64(instances))

	var keys, sketches int
	var evicted, overflowed uint64
	for m := range s.memories {
		stats := lent.Memory(m).Stats()
		keys += stats.Keys
		sketches += stats.Sketches
		evicted += stats.Evicted
		overflowed += stats.Overflowed
	}
	gauge(ch, descLocalKeys, float64(keys))
	gauge(ch, descLocalSketches, float64(sketches))
	counter(ch, descLocalEvictions, evicted)
	counter(ch, descLocalOverflow, overflowed)
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
}

func counter(ch chan<- prometheus.Metric, d *prometheus.Desc, n uint64, labels ...string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}
