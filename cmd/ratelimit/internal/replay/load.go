package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// wantedName is the name of a field, with a header's in its canonical form.
func wantedName(name string) string {
	if header, ok := strings.CutPrefix(name, "header:"); ok {
		return "header:" + http.CanonicalHeaderKey(header)
	}
	return name
}

// loadRules reads the rules. The program's own keys are taken from the fields of
// their names: value returns the one that the request under way has.
func (c *config) loadRules(value func(name string) string) ([]ratelimit.Rule, error) {
	own := func(name string) keyfunc.Key {
		return keyfunc.Func(func(*http.Request) (string, error) {
			if v := value(name); v != "" {
				return v, nil
			}
			return "", keyfunc.ErrNoKey
		})
	}
	loader := rulefile.Loader{Source: rulefile.File(c.ruleFile), Keys: map[string]keyfunc.Key{"ip": c.proxies.IP()}, KeyFor: own}
	if c.fields["ip"] != "" {
		loader.Keys["ip"] = own("ip")
	}
	if len(c.routes) > 0 {
		mux, err := routes(c.routes)
		if err != nil {
			return nil, err
		}
		loader.Keys["route"] = keyfunc.Mux(mux)
	}
	return loader.Load(context.Background())
}

// routes returns a ServeMux with the patterns.
func routes(patterns []string) (mux *http.ServeMux, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("-routes: %v", v)
		}
	}()
	mux = http.NewServeMux()
	for _, pattern := range patterns {
		mux.Handle(strings.TrimSpace(pattern), http.NotFoundHandler())
	}
	return mux, nil
}

// wanted returns the fields that the rules' keys need.
func (c *config) wanted(rules []*rule) (all []string) {
	for _, r := range rules {
		for _, name := range r.names {
			kind, header, colon := strings.Cut(name, ":")
			switch {
			case colon && (kind == "header" || kind == "apikey"):
				all = append(all, "header:"+header)
			case colon && kind == "cookie":
				all = append(all, "header:Cookie")
			case isOwn(name) && (name != "route" || len(c.routes) == 0), name == "ip" && c.fields["ip"] != "":
				all = append(all, name)
			}
		}
	}
	if c.fields["tier"] != "" {
		all = append(all, "tier")
	}
	if header := c.proxies.Header; header != "" {
		all = append(all, "header:"+http.CanonicalHeaderKey(header))
	}
	all = append(all, "header:X-Forwarded-For") // to say that it is ignored
	slices.Sort(all)
	return slices.Compact(all)
}

// leaveOut marks the rules whose keys the logs did not have, which were applied to no
// request, and notes the tiers that they did not have.
func (c *config) leaveOut(p *replay) {
	for _, r := range p.rules {
		switch {
		case r.Tiers == nil:
		case c.fields["tier"] == "":
			r.note = "all clients have no tier here; add -field tier=FIELD"
		case p.lacks("tier"):
			r.note = "all clients have no tier here: the log does not have the field " + c.fields["tier"]
		}
		for _, name := range r.names {
			_, header, colon := strings.Cut(name, ":")
			switch {
			case r.notReplayed != "" || !p.lacks(name):
			case colon:
				r.leave("the log does not have the header %s; if it has it under another name, add -field header:%[1]s=FIELD", header)
			case name == "route":
				r.leave("no log has the route; add -routes with the patterns of the program's ServeMux")
			case name == "ip" && c.fields["ip"] == "":
				r.leave("the log does not have the client's address; if it has it under another name, add -field address=FIELD")
			default:
				r.leave("the log does not have the key %s; if it has it under another name, add -field %[1]s=FIELD", name)
			}
		}
	}
}

func (r *rule) leave(format string, args ...any) {
	r.notReplayed = fmt.Sprintf(format, args...)
}

// replay replays the logs and reports.
func (c *config) replay(streams cli.Streams) error {
	var p *replay
	rules, err := c.loadRules(func(name string) string { return p.value(name) })
	if err != nil {
		return err
	}
	if p, err = newReplay(rules, c.skip); err != nil {
		return err
	}
	t := new(trash)
	sources, err := c.openAll(streams.In, t, c.wanted(p.rules))
	defer func() {
		for _, s := range sources {
			_ = s.close() // they were only read
		}
	}()
	if err != nil {
		return err
	}
	p.sample(sources)
	show := newProgress(sources, streams.Err, c.verbose)
	for s := earliest(sources); s != nil; s = earliest(sources) {
		p.send(s.head, s.plan)
		s.head = nil
		show.step(p.requests)
	}
	show.end()
	c.leaveOut(p)

	result := report{config: c, replay: p, trash: t, sources: sources}
	if p.requests == 0 {
		return errors.Join(ended(sources), fmt.Errorf("no request in %s\n%s", strings.Join(c.logs, ", "), t))
	}
	if err := result.print(streams.Out); err != nil {
		return err
	}
	return errors.Join(c.write(&result), ended(sources))
}

// openAll opens all logs.
func (c *config) openAll(stdin io.Reader, t *trash, wanted []string) (sources []*source, err error) {
	for _, name := range c.logs {
		s, err := open(name, stdin, t)
		if err != nil {
			return sources, err
		}
		s.plan = newPlan(s.sample, wanted, c.fields, c.zone)
		sources = append(sources, s)
	}
	return sources, nil
}

// write writes the result for other programs.
func (c *config) write(r *report) (err error) {
	if c.output == "" {
		return nil
	}
	f, err := os.Create(c.output)
	if err != nil {
		return err
	}
	return errors.Join(r.write(f), f.Close())
}

// ended returns why logs ended early.
func ended(sources []*source) error {
	var errs []error
	for _, s := range sources {
		if s.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w after line %d: the rest is not replayed", s.name, s.err, s.number))
		}
	}
	return errors.Join(errs...)
}
