package rulefile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// raise publishes the document with further overrides of a rule, and returns the new
// version. All else in the text stays as it is.
func (l *Loader) raise(ctx context.Context, f Fleet, rule string, overrides []ratelimit.Override) (int64, error) {
	d, err := f.Document(ctx)
	if err != nil {
		return 0, err
	}
	before, err := l.Parse(f.key(), d.Text)
	if err != nil {
		return 0, err
	}
	text, err := withOverrides(d.Text, rule, overrides)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: edit the document, and publish it", f.key(), err)
	}
	after, err := l.Parse(f.key(), text)
	if err != nil {
		return 0, err
	}
	named := func(r ratelimit.Rule) bool { return r.Name == rule }
	was, is := slices.IndexFunc(before, named), slices.IndexFunc(after, named)
	if was < 0 || was != is || len(before) != len(after) || len(before[was].Overrides)+len(overrides) != len(after[is].Overrides) {
		return 0, fmt.Errorf("%s: the rule %q is not written as a list entry that can be edited here: edit the document, and publish it", f.key(), rule)
	}
	return f.Publish(ctx, Document{Text: text, By: "operators' page", Note: "override of rule " + rule}, d.Version)
}

// withOverrides returns a document with overrides added to a rule, before those that it
// has. They are written as JSON, which YAML includes.
func withOverrides(text []byte, rule string, overrides []ratelimit.Override) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	var items []string
	for _, o := range overrides {
		item := struct {
			Client []string  `json:"client"`
			Limit  []string  `json:"limit"`
			Until  time.Time `json:"until"`
		}{Client: o.Client, Until: o.Until.UTC()}
		for _, limit := range o.Limits {
			item.Limit = append(item.Limit, limit.String())
		}
		line, err := json.Marshal(item)
		if err != nil {
			return nil, err
		}
		items = append(items, string(line))
	}
	if rules := member(document.Content[0], "rules"); rules != nil {
		for _, r := range rules.Content {
			if name := member(r, "name"); name != nil && name.Value == rule {
				return insert(text, r, name, items)
			}
		}
	}
	return nil, fmt.Errorf("no rule %q is in it", rule)
}

var errForm = errors.New("its overrides are not written as a list that can be edited here")

// insert adds items to the overrides of a rule, in the form that they have.
func insert(text []byte, rule, name *yaml.Node, items []string) ([]byte, error) {
	lines := strings.SplitAfter(string(text), "\n")
	// at cuts a line at a node, whose column counts characters.
	at := func(n *yaml.Node) (line int, before, after string) {
		all := []rune(lines[n.Line-1])
		return n.Line - 1, string(all[:n.Column-1]), string(all[n.Column-1:])
	}
	list := strings.Join(items, ", ")
	switch there := member(rule, "overrides"); {
	case there == nil && rule.Style&yaml.FlowStyle != 0:
		line, before, after := at(rule)
		lines[line] = before + `{"overrides": [` + list + "], " + after[1:]
	case there == nil && name.Line == rule.Line && name.Style&(yaml.LiteralStyle|yaml.FoldedStyle) == 0:
		line, before, _ := at(rule.Content[0])
		lines[line] = strings.TrimRight(lines[line], "\n") + "\n" + strings.Repeat(" ", len([]rune(before))) + "overrides: [" + list + "]\n"
	case there == nil, there.Kind != yaml.SequenceNode, len(there.Content) == 0:
		return nil, errForm
	case there.Style&yaml.FlowStyle != 0:
		line, before, after := at(there)
		lines[line] = before + "[" + list + ", " + after[1:]
	default:
		line, before, _ := at(there.Content[0])
		if strings.TrimSpace(before) != "-" {
			return nil, errForm
		}
		lines[line] = before + strings.Join(items, "\n"+before) + "\n" + lines[line]
	}
	return []byte(strings.Join(lines, "")), nil
}
