package rulefile

import (
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/step"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var overrideFields = []field[ratelimit.Override]{
	as("client", func(o *ratelimit.Override) *[]string { return &o.Client }, (*decoder).client).orWrite("the client, by a value for each part of key"),
	as("limit", func(o *ratelimit.Override) *[]algorithms.Limit { return &o.Limits }, (*decoder).exempting).orWrite("the client's limit, or unlimited"),
	as("until", func(o *ratelimit.Override) *time.Time { return &o.Until }, (*decoder).until),
	as("note", func(o *ratelimit.Override) *string { return &o.Note }, (*decoder).quoted),
}

func (d *decoder) overrides(n *yaml.Node, path string) []ratelimit.Override {
	return items(d, n, path, "overrides, as in [{client: acme, limit: 1000/1m}]", d.override)
}

// override also returns one with a mistake, so that the others keep their numbers.
func (d *decoder) override(n *yaml.Node, path string) (o ratelimit.Override, ok bool) {
	if d.mapping(n, path, "as in {client: acme, limit: 1000/1m, until: 2026-12-31@Europe/Berlin, note: ticket 4711}") {
		record(d, &o, n, path, overrideFields)
	}
	return o, true
}

// client reads the values that name a client.
func (d *decoder) client(n *yaml.Node, path string) []string {
	return oneOrMore(d, n, path, "values, one for each part of key", func(n *yaml.Node, path string) (string, bool) {
		return d.text(n, path, "put it in quotes")
	})
}

// until reads an instant, or the end of a day in a time zone.
func (d *decoder) until(n *yaml.Node, path string) time.Time {
	const mend = "write an instant such as 2026-12-31T23:00:00Z, or 2026-12-31@Europe/Berlin for the end of that day there"
	if n.Kind != yaml.ScalarNode || n.Tag != "!!timestamp" {
		if _, ok := d.text(n, path, mend); !ok {
			return time.Time{}
		}
	}
	text, zone, zoned := strings.Cut(n.Value, "@")
	if day, err := time.Parse(time.DateOnly, text); zoned && err == nil {
		days, err := step.ParseCalendar("day@" + zone)
		if err != nil {
			d.bad(placeOf(n), path, `no time zone %.64q; write one such as UTC or Europe/Berlin. If the zone is right, import _ "time/tzdata" in main`, zone)
			return time.Time{}
		}
		return days.DayAfter(day).UTC()
	}
	at, err := time.Parse(time.RFC3339, n.Value)
	if err != nil {
		d.bad(placeOf(n), path, "%.64q is neither an instant nor a day in a time zone; %s", n.Value, mend)
	}
	return at.UTC()
}
