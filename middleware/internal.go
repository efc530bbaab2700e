package middleware

import (
	"log/slog"
	"time"

	"github.com/seed75154129/ratelimit/internal/banned"
	"github.com/seed75154129/ratelimit/internal/inside"
	"github.com/seed75154129/ratelimit/internal/topk"
	"github.com/seed75154129/ratelimit/internal/view"
)

// Internal is for the packages of this module, and no part of the API.
var Internal inside.Door[opened]

// opened is what package admin needs of a Middleware.
type opened struct{}

// State returns the rules in force.
func (opened) State(m *Middleware) view.State {
	m.mustBeMade()
	set := m.rules.Load()
	s := view.State{Rules: make([]view.Rule, len(set.rules)), Generation: set.generation, Version: set.version, Share: m.share.text, Err: m.failure()}
	for i := range set.rules {
		s.Rules[i] = viewOf(&set.rules[i].source)
	}
	return s
}

// Denied returns the keys that were denied most, as TopDenied does, but in clear.
func (opened) Denied(m *Middleware) []topk.Entry { return m.top.List(time.Since(m.start)) }

// Bans returns the bans that the Middleware knows of, whose keys are as Shown returns them.
func (opened) Bans(m *Middleware) *banned.List { return &m.bans }

// Shown returns how a key is shown.
func (opened) Shown(m *Middleware, key string) view.Key {
	kept := bounded(key)
	return view.Key{Text: m.shown(key), ID: m.keyID(kept), Kept: kept, Whole: !isBounded(kept)}
}

// Client returns the counts of keys by a rule.
func (opened) Client(m *Middleware, rule string, keys ...string) (c view.Client, err error) {
	r, err := m.rules.Load().named(rule)
	if err != nil {
		return c, err
	}
	c.Limits = r.limits(keys)
	c.Checks = countsOf(c.Limits)
	return c, nil
}

// Logger returns where changes by operators are logged.
func (opened) Logger(m *Middleware) *slog.Logger { return m.logger }
