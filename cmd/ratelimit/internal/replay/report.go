package replay

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
)

// A report is the result of a replay, as a text.
type report struct {
	*config
	*replay
	trash   *trash
	sources []*source
}

const (
	worstShown  = 5
	mostClients = 5   // of a rule, in the report
	allClients  = 100 // of all rules, in the JSON
)

// print writes the report for people.
func (r *report) print(to io.Writer) error {
	var b strings.Builder
	r.summary(&b)
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 8, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "rule\tlimit\trequests\tdenied\t\tclients\tclients denied\t")
	for _, rule := range r.rules {
		if rule.notReplayed != "" {
			_, _ = fmt.Fprintf(w, "%s\t%s\toff\t\t\t\t\t\n", rule.Name, rule.limit)
			continue
		}
		all, limited := rule.totals()
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", rule.Name, rule.limit, count(rule.requests),
			count(rule.denied), share(rule.denied, rule.requests), count(all), count(limited), share(limited, all))
	}
	_ = w.Flush() // to a strings.Builder
	for line := range strings.Lines(table.String()) {
		b.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	for _, rule := range r.rules {
		r.rule(&b, rule)
	}
	if worst := r.worst(worstShown); len(worst) > 0 {
		b.WriteString("\nworst minutes\n")
		for _, m := range worst {
			fmt.Fprintf(&b, "  %s  %s of %s denied (%s)\n", m.start.Format("2006-01-02 15:04Z"), count(m.denied), count(m.requests), r.byRule(m))
		}
	}
	_, err := io.WriteString(to, b.String())
	return err
}

// summary writes how much was read, and how much was left out.
func (r *report) summary(b *strings.Builder) {
	fmt.Fprintf(b, "%s requests from %s to %s, %s denied (%s)\n", count(r.requests),
		r.first.UTC().Format("2006-01-02 15:04:05"), r.now.UTC().Format("2006-01-02 15:04:05Z"), count(r.denied), share(r.denied, r.requests))
	for _, s := range r.sources {
		fmt.Fprintf(b, "  %s: %s lines%s\n", s.name, count(s.number), s.plan)
	}
	if n := r.trash.total(); n > 0 {
		fmt.Fprintf(b, "lines that are left out: %s\n%s", count(n), r.trash)
		if r.trash.counts[kindLate] > 0 {
			fmt.Fprintf(b, "  the latest by %s: if the log was joined from several, give them as several arguments\n", r.trash.by.Round(time.Second))
		}
	}
	if r.unserved > 0 {
		fmt.Fprintf(b, "lines without an HTTP request that a handler would see: %s\n", count(r.unserved))
	}
	if r.limited > 0 {
		fmt.Fprintf(b, "note: responses 429 in the log: %s; a limit was in force, and without it clients may have sent other requests\n", count(r.limited))
	}
	if len(r.proxies.Trusted) == 0 && r.proxies.Hops == 0 && r.proxies.Header == "" && r.forwarded > 0 {
		fmt.Fprintf(b, "note: X-Forwarded-For of %s requests is ignored; behind reverse proxies, add -trusted-proxies\n", count(r.forwarded))
	}
	for _, s := range r.sources {
		if s.plan.zoneless {
			fmt.Fprintf(b, "note: times in %s name no zone and are taken for %s\n", s.name, s.plan.zone)
		}
	}
	const fine = 10 * time.Second
	if r.whole && slices.ContainsFunc(r.rules, func(rule *rule) bool {
		return slices.ContainsFunc(append(rule.Limits, rule.Limit), func(l algorithms.Limit) bool { return l.Rate > 0 && l.Calendar == "" && l.Period < fine })
	}) {
		b.WriteString("note: times are whole seconds, so limits with a period below 10 s deny more here than they would\n")
	}
	if n := r.estimated(); n > 0 {
		fmt.Fprintf(b, "note: %s decisions were made by estimates, because more than %s keys were in use; those err towards denying\n", count(n), count(maxKeys))
	}
	b.WriteString("\n")
}

// estimated is how many decisions a sketch made.
func (r *replay) estimated() (n int64) {
	for m := range r.memory.Metrics() {
		if m.Name == "ratelimit_local_overflow_total" {
			n = int64(m.Value)
		}
	}
	return n
}

// rule says more about one rule.
func (r *report) rule(b *strings.Builder, rule *rule) {
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	if rule.notReplayed != "" {
		say("not replayed: %s", rule.notReplayed)
	}
	if rule.note != "" && rule.notReplayed == "" {
		say("note: %s", rule.note)
	}
	if rule.early > 0 && rule.notReplayed == "" {
		say("requests before the first with %s: %s, to which the rule was not applied", rule.key, count(rule.early))
	}
	if rule.absent > 0 && rule.ownKey() {
		say("requests without %s: %s, to which the rule was not applied", rule.key, count(rule.absent))
	} else if rule.absent > 0 {
		say("requests without %s: %s, which share one count, as they would in production", rule.key, count(rule.absent))
	}
	if rule.Shadow {
		say("in shadow, and enforced for %.4g %% of the keys: what it denies for others is counted, and the requests pass", 100*rule.Enforce)
	}
	if rule.clients.mask > 0 {
		say("1 of %d clients was counted", rule.clients.scale())
	}
	if most := rule.most(mostClients); len(most) > 0 {
		all := make([]string, len(most))
		for i, c := range most {
			all[i] = fmt.Sprintf("%s (%s of %s requests)", plain(c.Key), count(c.Denied), count(c.Requests))
		}
		say("most denied: %s", strings.Join(all, ", "))
	}
	whose := "the clients"
	if len(rule.Tiers)+len(rule.Overrides) > 0 {
		whose = "the clients with the rule's own limit"
	}
	for i := range rule.candidates {
		if limit, denied, of, ok := rule.smallest(i, r.under/100); ok {
			say("smallest limit that denies under %v %% of %s: %s (%s of %s)", r.under, whose, limit, count(denied), count(of))
		} else if of > 0 {
			say("no limit at %d per %s denies under %v %% of %s", rule.candidates[i].limit.Rate, rule.Limit.Period, r.under, whose)
		}
	}
	if len(rule.Limits) > 1 && rule.notReplayed == "" {
		say("no smallest limit is searched for: the rule has several")
	}
	if len(lines) > 0 {
		fmt.Fprintf(b, "\n%s\n  %s\n", rule.Name, strings.Join(lines, "\n  "))
	}
}

func (r *report) byRule(m minute) string {
	var all []string
	for i, n := range m.byRule {
		if n > 0 {
			all = append(all, r.rules[i].Name+" "+count(n))
		}
	}
	return strings.Join(all, ", ")
}

// totals are the clients of a rule, and those that were denied.
func (r *rule) totals() (all, limited int64) {
	for _, c := range r.clients.all {
		if all++; c.denied > 0 {
			limited++
		}
	}
	return all * r.clients.scale(), limited * r.clients.scale()
}

// most returns the clients with the most denials.
func (r *rule) most(n int) (all []replayed.Client) {
	for key, c := range r.clients.all {
		if c.denied > 0 {
			all = append(all, replayed.Client{Rule: r.Name, Key: key, Requests: c.requests, Denied: c.denied})
		}
	}
	slices.SortFunc(all, byDenials)
	return all[:min(n, len(all))]
}

func byDenials(a, b replayed.Client) int {
	return cmp.Or(cmp.Compare(b.Denied, a.Denied), strings.Compare(a.Key, b.Key), strings.Compare(a.Rule, b.Rule))
}

// smallest returns the text of the smallest limit like a candidate that denies
// less than a fraction of the clients that have the rule's own limit.
func (r *rule) smallest(candidate int, under float64) (text string, denied, of int64, ok bool) {
	var needs []int64
	for _, c := range r.clients.all {
		if c.own {
			needs = append(needs, c.needs[candidate])
		}
	}
	if len(needs) == 0 {
		return "", 0, 0, false
	}
	quota, n := smallest(needs, under)
	of = int64(len(needs)) * r.clients.scale()
	if quota == unreachable {
		return "", 0, of, false
	}
	quota = max(quota, r.Cost, 1)
	for _, cost := range r.Costs {
		quota = max(quota, cost)
	}
	l := r.candidates[candidate].limit
	if l.Burst > 0 {
		l.Burst = quota
	} else {
		l.Rate = quota
	}
	return l.String(), int64(n) * r.clients.scale(), of, true
}

// write writes the result for other programs.
func (r *report) write(to io.Writer) error {
	result := replayed.Result{Log: strings.Join(r.logs, ", "), Requests: r.requests, Denied: r.denied, Bad: r.trash.total()}
	for _, rule := range r.rules {
		all, limited := rule.totals()
		one := replayed.Rule{
			Name: rule.Name, Match: rule.Match, Key: rule.key, Limit: rule.limit,
			Requests: rule.requests, Denied: rule.denied, Clients: all, Limited: limited, NotReplayed: rule.notReplayed,
		}
		if len(rule.candidates) > 0 {
			if text, _, of, ok := rule.smallest(0, r.under/100); ok {
				one.Smallest, one.SmallestOf, one.Under = text, of, r.under/100
			}
		}
		result.Rules = append(result.Rules, one)
		result.Clients = append(result.Clients, rule.most(allClients)...)
	}
	for _, m := range r.minutes {
		one := replayed.Minute{Start: m.start, Requests: m.requests, Denied: m.denied}
		for i, n := range m.byRule {
			if n > 0 {
				if one.ByRule == nil {
					one.ByRule = make(map[string]int64)
				}
				one.ByRule[r.rules[i].Name] = n
			}
		}
		result.Minutes = append(result.Minutes, one)
	}
	slices.SortFunc(result.Clients, byDenials)
	result.Clients = result.Clients[:min(allClients, len(result.Clients))]
	return replayed.Write(to, result)
}

// count writes a number with commas.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// share writes a part of a whole. It is 0 % only if the part is 0.
func share(part, of int64) string {
	if of == 0 {
		return "0 %"
	}
	percent := 100 * float64(part) / float64(of)
	if percent > 0 && percent < 0.01 {
		return "<0.01 %"
	}
	return strconv.FormatFloat(percent, 'f', 2, 64) + " %"
}

// plain returns a key, quoted if it could move a terminal's cursor or be taken for
// more than one.
func plain(key string) string {
	if quoted := strconv.Quote(key); quoted[1:len(quoted)-1] != key || strings.ContainsAny(key, " ,") {
		return quoted
	}
	return key
}
