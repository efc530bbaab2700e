package rulefile

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Format returns the document of rules, with all defaults written out. A Loader reads
// the same rules from it. In place of functions there is a comment. Rules that
// [ratelimit.ValidateRules] refuses are an error, and so is a Key that has no name in
// documents.
func Format(rules []ratelimit.Rule) ([]byte, error) {
	errs := []error{ratelimit.ValidateRules(rules)}
	list := &yaml.Node{Kind: yaml.SequenceNode}
	for i := range rules {
		r := &rules[i]
		for i, k := range [...]keyfunc.Key{r.Key, r.TierBy} {
			names := namesOf(k)
			if k != nil && (names == nil || i == 1 && len(names) > 1) {
				errs = append(errs, fmt.Errorf("rulefile: rule %q: %s: %s has no name in documents; give it one in Loader.Keys and read the rule from a document", r.Name, [...]string{"key", "tier by"}[i], keyfunc.Describe(k)))
			}
		}
		rule := &yaml.Node{Kind: yaml.MappingNode, HeadComment: functions(r)}
		for _, f := range fields {
			if value := f.print(r); value != nil {
				rule.Content = append(rule.Content, textNode(f.name), value)
			}
		}
		list.Content = append(list.Content, rule)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	document := &yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
		textNode("version"), {Kind: yaml.ScalarNode, Tag: "!!int", Value: version}, textNode("rules"), list,
	}}
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(document), encoder.Close()); err != nil {
		return nil, fmt.Errorf("rulefile: %w", err)
	}
	// Rules in code may have what documents may not, such as a pattern of 2000 characters.
	anyKey := func(string) keyfunc.Key { return keyfunc.IP }
	if _, err := (&decoder{name: "rulefile: Format", keys: make(map[string]keyfunc.Key), keyFor: anyKey, valid: true}).decode(b.Bytes()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// functions returns a comment that names the rule's functions.
func functions(r *ratelimit.Rule) string {
	switch {
	case r.LimitsFor != nil && r.CostFor != nil:
		return "# LimitsFor and CostFor are functions of the program"
	case r.LimitsFor != nil:
		return "# LimitsFor is a function of the program"
	case r.CostFor != nil:
		return "# CostFor is a function of the program"
	}
	return ""
}

// unclear matches texts that are no texts in YAML 1.1, such as yes and 1:30.
var unclear = regexp.MustCompile(`(?i)^(y|yes|n|no|on|off|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9]*)?)$`)

func textNode(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: text}
	if unclear.MatchString(text) || strings.ContainsAny(text, "\n\r\t") {
		n.Style = yaml.DoubleQuotedStyle
	}
	return n
}

func intNode[T int | int64](number T) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!int", Value: strconv.FormatInt(int64(number), 10)}
}

func boolNode(b bool) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: strconv.FormatBool(b)}
}

func fractionNode(fraction float64) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!float", Value: strconv.FormatFloat(fraction, 'f', -1, 64)}
	if fraction == 0 || fraction == 1 {
		n.Tag = "!!int"
	}
	return n
}

// limitNode is the text of a limit, or a list of several.
func limitNode(limits []algorithms.Limit) *yaml.Node {
	if len(limits) == 1 {
		return textNode(view.Limit(limits[0]))
	}
	return listNode(view.LimitsOf(limits), textNode)
}

func keyNode(k keyfunc.Key) *yaml.Node {
	names := namesOf(k)
	if len(names) == 1 {
		return textNode(names[0])
	}
	return listNode(names, textNode)
}

func banNode(b algorithms.Ban) *yaml.Node {
	if b == (algorithms.Ban{}) {
		return nil
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle, Content: []*yaml.Node{textNode("after"), intNode(b.After)}}
	if b.Within != 0 {
		n.Content = append(n.Content, textNode("within"), textNode(view.Span(b.Within)))
	}
	n.Content = append(n.Content, textNode("for"), textNode(view.Span(b.For)))
	return n
}

func listNode[T any](items []T, node func(T) *yaml.Node) *yaml.Node {
	if len(items) == 0 {
		return nil
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
	for _, item := range items {
		n.Content = append(n.Content, node(item))
	}
	return n
}

func mapNode[T any](m map[string]T, node func(T) *yaml.Node) *yaml.Node {
	if len(m) == 0 {
		return nil
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		n.Content = append(n.Content, textNode(name), node(m[name]))
	}
	return n
}
