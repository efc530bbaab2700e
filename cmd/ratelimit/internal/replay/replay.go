package replay

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// maxKeys bounds the exact counts in use at one time. Further keys are counted in
// sketches, and the report says so.
const maxKeys = 1 << 22

// A replay sends the requests of a log through a Middleware, at their times. It
// counts in a Memory whose clock is the log.
type replay struct {
	now     time.Time
	current *numbered // the request under way
	plan    *plan     // of its log

	skip    []string // of the program's Config
	handler http.Handler
	ends    time.Time // when the next override ends; the zero time means never
	writer  nowhere
	memory  algorithms.Memory // what the rules count
	demand  demand
	request http.Request // the last one

	has       map[string]bool // the wanted fields, and whether the logs had them so far
	rules     []*rule
	byName    map[string]*rule
	first     time.Time
	requests  int64
	denied    int64
	unserved  int64 // lines without a request that a handler would see
	limited   int64 // responses 429 in the log
	forwarded int64 // requests with X-Forwarded-For
	whole     bool  // all times are whole seconds
	minutes   []minute
}

// A rule is a rule of the file and its results.
type rule struct {
	ratelimit.Rule
	index       int
	limit       string   // the texts of its limits, with commas between them
	key         string   // as the rule file has it
	names       []string // of its keys
	notReplayed string   // why, if the log does not have what the rule needs
	note        string   // what it needs besides, and the log does not have
	absent      int64    // requests without the key
	early       int64    // requests before the logs had the key
	requests    int64
	denied      int64
	clients     clients
	candidates  []candidate
}

// A minute is the requests of one minute.
type minute struct {
	start            time.Time
	requests, denied int64
	byRule           []int64 // denials; nil if there are none
}

// newReplay makes a replay of rules whose keys have values. skip is the program's
// Config.Skip.
func newReplay(rules []ratelimit.Rule, skip []string) (*replay, error) {
	p := &replay{whole: true, byName: make(map[string]*rule), has: make(map[string]bool), writer: nowhere{make(http.Header)}}
	p.request.Header = make(http.Header)
	p.memory.MaxKeys = maxKeys
	p.memory.Now = func() time.Time { return p.now }
	p.demand.memory.MaxKeys, p.demand.memory.Now = p.memory.MaxKeys, p.memory.Now
	for i, r := range rules {
		key := strings.Trim(fmt.Sprint(r.Key), "[]")
		p.rules = append(p.rules, &rule{Rule: r, index: i, key: strings.ReplaceAll(key, ", ", ","), names: strings.Split(key, ", ")})
	}
	p.skip = skip
	for _, r := range p.rules {
		p.byName[r.Name] = r
		all := r.Limits
		if all == nil {
			all = []ratelimit.Limit{r.Limit}
		}
		var texts []string
		for _, l := range all {
			texts = append(texts, l.String())
		}
		if inFlight(&r.Rule) {
			r.leave("a log does not say how long requests took, which in_flight needs")
		}
		r.limit = strings.Join(texts, ", ")
		if len(all) == 1 && r.notReplayed == "" {
			r.candidates = candidates(r.Name, all[0])
		}
	}
	return p, p.make()
}

// sample notes which fields the first lines of the logs have.
func (p *replay) sample(sources []*source) {
	p.has["address"] = false
	for _, name := range sources[0].plan.wanted { // every log's
		p.has[name] = false
	}
	for _, s := range sources {
		for _, line := range s.sample {
			if r, err := s.plan.parse(line); err == nil {
				s.plan.found(&r, p.has)
			}
		}
	}
}

// lacks reports whether the logs so far do not have a key of a rule.
func (p *replay) lacks(name string) bool {
	kind, header, _ := strings.Cut(name, ":")
	if kind == "header" || kind == "apikey" {
		name = "header:" + header
	} else if kind == "cookie" {
		name = "header:Cookie"
	} else if _, field := p.has[name]; name == "ip" && !field {
		name = "address"
	}
	has, wanted := p.has[name]
	return wanted && !has
}

// inFlight reports whether a rule has a limit of requests in flight.
func inFlight(r *ratelimit.Rule) bool {
	held := func(l ratelimit.Limit) bool { return l.Algorithm == algorithms.InFlight }
	for _, all := range r.Tiers {
		if slices.ContainsFunc(all, held) {
			return true
		}
	}
	return held(r.Limit) || slices.ContainsFunc(r.Limits, held) ||
		slices.ContainsFunc(r.Overrides, func(o ratelimit.Override) bool { return slices.ContainsFunc(o.Limits, held) })
}

// make makes the handler for the rules as they are now. Overrides end on the log's clock,
// which the Middleware does not know, so the handler has those that have not ended.
func (p *replay) make() error {
	rules := make([]ratelimit.Rule, 0, len(p.rules))
	p.ends = time.Time{}
	for _, r := range p.rules {
		own := r.Rule
		own.Overrides = nil
		for _, o := range r.Overrides {
			if until := o.Until; !until.IsZero() {
				if !p.now.Before(until) {
					continue
				}
				if o.Until = (time.Time{}); p.ends.IsZero() || until.Before(p.ends) {
					p.ends = until
				}
			}
			own.Overrides = append(own.Overrides, o)
		}
		own.Key = &watched{Described: keyfunc.Describe(r.Key), replay: p, rule: r}
		rules = append(rules, own)
	}
	limit, err := ratelimit.New(ratelimit.Config{
		Limiter: patient{&p.memory}, Rules: rules, Skip: p.skip,
		TierFor: func(*http.Request) string { return p.value("tier") },
		Headers: headers.None, Denied: func(http.ResponseWriter, *http.Request, ratelimit.Decision) {},
		Observe: p.see, Logger: slog.New(slog.DiscardHandler), DenialLogRate: -1,
	})
	if err == nil {
		p.handler = limit.Handler(http.HandlerFunc(p.serve))
	}
	return err
}

// value returns the value of a field of the current request.
func (p *replay) value(name string) string {
	if i := slices.Index(p.plan.wanted, name); i >= 0 {
		return p.current.values[i]
	}
	return ""
}

// send replays a request of a log. Requests come in the order of their times.
func (p *replay) send(n *numbered, from *plan) {
	from.found(&n.request, p.has)
	if n.url == nil {
		p.unserved++
		return
	}
	if n.at.After(p.now) {
		p.now = n.at
	}
	if !p.ends.IsZero() && !p.now.Before(p.ends) {
		_ = p.make() // the rules are valid with fewer overrides
	}
	if p.requests == 0 {
		p.first = p.now
	}
	p.requests++
	p.whole = p.whole && n.at.Nanosecond() == 0
	if n.status == http.StatusTooManyRequests {
		p.limited++
	}
	start := p.now.UTC().Truncate(time.Minute)
	if last := len(p.minutes) - 1; last < 0 || p.minutes[last].start != start {
		p.minutes = append(p.minutes, minute{start: start})
	}
	p.minutes[len(p.minutes)-1].requests++

	p.current, p.plan = n, from
	header := p.request.Header
	clear(header)
	from.setHeaders(header, &n.request)
	if header["X-Forwarded-For"] != nil {
		p.forwarded++
	}
	p.request = http.Request{
		Method: n.method, URL: n.url, RequestURI: n.target, RemoteAddr: n.addr, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}
	clear(p.writer.header)
	p.handler.ServeHTTP(p.writer, &p.request)
	p.demand.count()
}

// serve responds as the server in the log did.
func (p *replay) serve(w http.ResponseWriter, _ *http.Request) {
	if answered(p.current.status) {
		w.WriteHeader(p.current.status)
	}
}

// answered reports whether a client got a response. nginx and load balancers have
// statuses for clients that had left.
func answered(status int) bool {
	return status >= 200 && status < 600 && !slices.Contains(unanswered, status)
}

var unanswered = []int{444, 460, 499}

// see counts a decision.
func (p *replay) see(_ *http.Request, d ratelimit.Decision) {
	m := &p.minutes[len(p.minutes)-1]
	if !d.Allowed {
		p.denied++
		m.denied++
	}
	for rest := d.Results; len(rest) > 0; {
		res, windows := &rest[0], 1 // of a rule, which are one outcome
		for windows < len(rest) && rest[windows].Check.Rule == res.Check.Rule {
			windows++
		}
		denied := slices.ContainsFunc(rest[:windows], func(r algorithms.Result) bool { return !r.HasRoom })
		rest = rest[windows:]
		r := p.byName[res.Check.Rule]
		r.requests++
		c := r.clients.of(res.Check.Key)
		if denied {
			r.denied++
			if m.byRule == nil {
				m.byRule = make([]int64, len(p.rules))
			}
			m.byRule[r.index]++
		}
		if c == nil {
			continue
		}
		c.requests++
		if denied {
			c.denied++
		}
		if res.Check.Limit != r.Limit { // a tier's
			continue
		}
		c.own = true
		p.demand.ask(r, c, &res.Check, p.current.status)
	}
}

// worst returns the minutes with the most denials, those first.
func (p *replay) worst(n int) []minute {
	all := slices.DeleteFunc(slices.Clone(p.minutes), func(m minute) bool { return m.byRule == nil })
	slices.SortStableFunc(all, func(a, b minute) int { return cmp.Compare(b.denied, a.denied) })
	return all[:min(n, len(all))]
}
