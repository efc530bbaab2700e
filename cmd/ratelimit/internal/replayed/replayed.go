// Package replayed is what a replay of an access log found. Package replay writes
// it as JSON, and package lab shows it:
//
//	{
//	  "version": 1,
//	  "log": "access.log",
//	  "requests": 1200, "denied": 25, "bad": 3,
//	  "rules": [
//	    {"name": "per-ip", "key": "ip", "limit": "200/1m", "requests": 1200, "denied": 20, "clients": 85, "limited": 2,
//	     "smallest": "260/1m", "under": 0.01},
//	    {"name": "login", "match": ["POST /login"], "key": "ip", "limit": "5/1m sliding_log",
//	     "requests": 40, "denied": 6, "clients": 31, "limited": 1},
//	    {"name": "per-user", "key": "user", "limit": "60/1m", "requests": 0, "denied": 0, "clients": 0, "limited": 0,
//	     "not_replayed": "the log does not have the key user"}
//	  ],
//	  "minutes": [
//	    {"start": "2026-11-20T09:00:00Z", "requests": 700, "denied": 25, "by_rule": {"per-ip": 20, "login": 6}},
//	    {"start": "2026-11-20T09:01:00Z", "requests": 500}
//	  ],
//	  "clients": [
//	    {"rule": "per-ip", "key": "203.0.113.9", "requests": 350, "denied": 20}
//	  ]
//	}
//
// A request that two rules deny counts once in denied, and once for each of them
// in by_rule. A rule in shadow denies no request, and its denials are in by_rule
// and in its own count. Keys come from the log, which means from strangers: whoever shows
// them must escape them.
package replayed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// Version is the version of the format. A change that older readers would
// misread raises it; fields may be added without.
const Version = 1

// maxBytes bounds what Read reads: a year of minutes is about 50 MB.
const maxBytes = 64 << 20

// A Result is what the rules would have done to the requests of a log.
type Result struct {
	Version  int      `json:"version"`  // Write sets it
	Log      string   `json:"log"`      // where the requests came from
	Requests int64    `json:"requests"` // decided
	Denied   int64    `json:"denied"`   // requests that at least one rule denied
	Bad      int64    `json:"bad"`      // lines that could not be read
	Rules    []Rule   `json:"rules"`    // in the order of the rule file
	Minutes  []Minute `json:"minutes"`  // in order; a minute without requests may be left out
	Clients  []Client `json:"clients"`  // the keys with the most denials, those first
}

// A Rule is one of the rules, and what it did.
type Rule struct {
	Name     string   `json:"name"`
	Match    []string `json:"match,omitempty"` // none matches every request
	Key      string   `json:"key"`             // as a rule file has it; the names of a list are joined by commas
	Limit    string   `json:"limit"`           // the text form; of several, with commas between them
	Requests int64    `json:"requests"`        // that it decided
	Denied   int64    `json:"denied"`          // of them
	Clients  int64    `json:"clients"`         // keys that it counted
	Limited  int64    `json:"limited"`         // of them, denied at least once

	// Smallest is the smallest limit that denies less than the fraction Under of
	// the SmallestOf clients that have the rule's own limit, and not a tier's; "" where
	// that was not computed.
	Smallest   string  `json:"smallest,omitempty"`
	SmallestOf int64   `json:"smallest_of,omitempty"`
	Under      float64 `json:"under,omitempty"`

	// NotReplayed says why the rule decided no request, such as that the log does not have
	// its key. "" means that it was replayed.
	NotReplayed string `json:"not_replayed,omitempty"`
}

// A Minute is the requests of a minute.
type Minute struct {
	Start    time.Time        `json:"start"` // a whole minute, UTC
	Requests int64            `json:"requests"`
	Denied   int64            `json:"denied,omitempty"`  // requests, each once
	ByRule   map[string]int64 `json:"by_rule,omitempty"` // denials by the rule's name; none is left out
}

// A Client is a key of a rule that was denied.
type Client struct {
	Rule     string `json:"rule"`
	Key      string `json:"key"` // what the rule's key returned
	Requests int64  `json:"requests"`
	Denied   int64  `json:"denied"`
}

// Write writes the result as JSON, and nothing if [Result.Validate] refuses it.
func Write(w io.Writer, r Result) error {
	r.Version = Version
	if err := r.Validate(); err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", " ")
	return encoder.Encode(r)
}

// Read reads and validates a result. Fields that it does not know are ignored.
func Read(r io.Reader) (Result, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBytes+1))
	if err != nil {
		return Result{}, fmt.Errorf("replayed: %w", err)
	}
	if len(text) > maxBytes {
		return Result{}, fmt.Errorf("replayed: more than %d bytes", maxBytes)
	}
	var result Result
	if err := json.Unmarshal(text, &result); err != nil {
		return Result{}, fmt.Errorf("replayed: %w", err)
	}
	if err := result.Validate(); err != nil {
		return Result{}, err
	}
	return result, nil
}

// Validate reports everything that is wrong with the result: numbers that cannot
// be, minutes out of order, rules that are not listed.
func (r Result) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf("replayed: "+format, args...)) }
	part := func(what string, denied, of int64) {
		if denied < 0 || denied > of {
			fail("%s: %d denied of %d requests", what, denied, of)
		}
	}
	if r.Version != Version {
		return fmt.Errorf("replayed: version %d; this program reads version %d", r.Version, Version)
	}
	part("all", r.Denied, r.Requests)
	if r.Bad < 0 {
		fail("%d bad lines", r.Bad)
	}
	rules := make(map[string]bool)
	for _, rule := range r.Rules {
		if rule.Name == "" || rules[rule.Name] {
			fail("rule %q has no name, or another one's", rule.Name)
		}
		rules[rule.Name] = true
		part(fmt.Sprintf("rule %q", rule.Name), rule.Denied, rule.Requests)
		if rule.Limited < 0 || rule.Limited > rule.Clients {
			fail("rule %q: %d limited of %d clients", rule.Name, rule.Limited, rule.Clients)
		}
		if rule.NotReplayed != "" && rule.Requests > 0 {
			fail("rule %q: not replayed, and %d requests", rule.Name, rule.Requests)
		}
		for _, limit := range append(strings.Split(rule.Limit, ", "), rule.Smallest) {
			if _, err := algorithms.ParseLimit(limit); err != nil && limit != "" {
				fail("rule %q: %w", rule.Name, err)
			}
		}
	}
	var last time.Time
	for _, m := range r.Minutes {
		what := "minute " + m.Start.Format(time.RFC3339)
		if !m.Start.Truncate(time.Minute).Equal(m.Start) || !m.Start.After(last) {
			fail("%s is no whole minute, or not after the one before", what)
		}
		if y := m.Start.Year(); y < 1970 || y > 2200 {
			fail("%s is not of this age", what)
		}
		last = m.Start
		part(what, m.Denied, m.Requests)
		for name, denied := range m.ByRule {
			if !rules[name] {
				fail("%s: no rule is called %q", what, name)
			}
			part(fmt.Sprintf("%s, rule %q", what, name), denied, m.Requests)
		}
	}
	for _, c := range r.Clients {
		if !rules[c.Rule] {
			fail("client %q: no rule is called %q", c.Key, c.Rule)
		}
		part(fmt.Sprintf("client %q", c.Key), c.Denied, c.Requests)
	}
	const shown = 20
	if n := len(errs); n > shown {
		errs = append(errs[:shown], fmt.Errorf("replayed: and %d more", n-shown))
	}
	return errors.Join(errs...)
}
