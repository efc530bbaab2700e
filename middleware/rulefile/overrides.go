package rulefile

import (
	"fmt"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

var (
	overrideNames = []string{"client", "limit", "until", "note"}
	overrideWords = map[string]string{
		"key": "write client", "value": "write client", "values": "write client", "tenant": "write client", "user": "write client",
		"limits": "write limit", "rate": "write limit", "expires": "write until", "ends": "write until", "end": "write until", "ttl": "write until",
		"comment": "write note", "reason": "write note",
	}
)

func (d *decoder) overrides(n *yaml.Node, path string) []ratelimit.Override {
	items, ok := d.list(n, path, "overrides, as in [{client: acme, limit: 1000/1m}]")
	if !ok {
		return nil
	}
	overrides := make([]ratelimit.Override, len(items))
	for i, item := range items {
		d.override(&overrides[i], item, fmt.Sprintf("%s[%d]", path, i))
	}
	return overrides
}

func (d *decoder) override(o *ratelimit.Override, n *yaml.Node, path string) {
	if !d.mapping(n, path, "as in {client: acme, limit: 1000/1m, until: 2026-12-31@Europe/Berlin, note: ticket 4711}") {
		return
	}
	given := make(map[string]bool)
	d.fields(n, path, func(key, value *yaml.Node, path string) {
		given[key.Value] = true
		switch key.Value {
		case "client":
			o.Client = d.client(value, path)
		case "limit":
			o.Limits = d.exempting(value, path)
		case "until":
			o.Until = d.until(value, path)
		case "note":
			o.Note, _ = d.text(value, path, "put it in quotes")
		default:
			if !free(key.Value) {
				d.unknown(key, path, overrideNames, overrideWords)
			}
		}
	})
	if !given["client"] {
		d.bad(placeOf(n), path+".client", "required: the client, by a value for each part of key")
	}
	if !given["limit"] {
		d.bad(placeOf(n), path+".limit", "required: the client's limit, or unlimited")
	}
}

// client reads the values that name a client.
func (d *decoder) client(n *yaml.Node, path string) (values []string) {
	const mend = "put it in quotes"
	if n.Kind != yaml.SequenceNode {
		if text, ok := d.text(n, path, mend); ok {
			values = []string{text}
		}
		return values
	}
	items, _ := d.list(n, path, "values, one for each part of key")
	for i, item := range items {
		if text, ok := d.text(item, fmt.Sprintf("%s[%d]", path, i), mend); ok {
			values = append(values, text)
		}
	}
	return values
}

var (
	instants = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$`)
	unzoned  = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9:.]+)?$`)
)

// until reads an instant, or the end of a day in a time zone.
func (d *decoder) until(n *yaml.Node, path string) time.Time {
	const mend = "write an instant such as 2026-12-31T23:00:00Z, or 2026-12-31@Europe/Berlin for the end of that day there"
	if n.Kind != yaml.ScalarNode || n.Tag != "!!timestamp" {
		if _, ok := d.text(n, path, mend); !ok {
			return time.Time{}
		}
	}
	date, zone, zoned := strings.Cut(n.Value, "@")
	switch day, err := time.Parse(time.DateOnly, date); {
	case zoned && err == nil:
		loc, err := time.LoadLocation(zone)
		if zone == "" || zone == "Local" || err != nil {
			d.bad(placeOf(n), path, `no time zone %.64q; write one such as UTC or Europe/Berlin. If the zone is right, import _ "time/tzdata" in main`, zone)
			return time.Time{}
		}
		return startOf(day.AddDate(0, 0, 1), loc)
	case instants.MatchString(n.Value):
		if at, err := time.Parse(time.RFC3339, n.Value); err == nil {
			return at.UTC()
		}
	case unzoned.MatchString(n.Value):
		day := n.Value[:len(time.DateOnly)]
		d.bad(placeOf(n), path, "%.64q has no zone; write %sT23:59:59Z for an instant, or %[2]s@Europe/Berlin for the end of that day there", n.Value, day)
		return time.Time{}
	}
	d.bad(placeOf(n), path, "%.64q is no time; %s", n.Value, mend)
	return time.Time{}
}

// startOf returns the first instant at which clocks show a date, which is given as if in
// UTC. [time.Date] is wrong where clocks skip midnight or show it twice.
func startOf(date time.Time, loc *time.Location) time.Time {
	for at := date.AddDate(0, 0, -2).In(loc); ; { // no zone is two days from UTC
		_, offset := at.Zone()
		from, to := at.ZoneBounds()
		first := date.Add(-time.Duration(offset) * time.Second)
		if first.Before(from) {
			first = from
		}
		if to.IsZero() || first.Before(to) {
			return first.UTC()
		}
		at = to
	}
}

// overridesNode prints overrides, one a line.
func overridesNode(overrides []ratelimit.Override) *yaml.Node {
	list := listNode(overrides, func(o ratelimit.Override) *yaml.Node {
		client := listNode(o.Client, textNode)
		if len(o.Client) == 1 {
			client = client.Content[0]
		}
		n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{textNode("client"), client, textNode("limit"), limitNode(o.Limits)}}
		if !o.Until.IsZero() {
			n.Content = append(n.Content, textNode("until"), textNode(o.Until.UTC().Format(time.RFC3339Nano)))
		}
		if o.Note != "" {
			n.Content = append(n.Content, textNode("note"), textNode(o.Note))
		}
		return n
	})
	if list != nil {
		list.Style = 0
	}
	return list
}
