package rulefile

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// maxParts is how many keys a rule may join.
const maxParts = 16

// words matches the names that a program may give to its keys.
var words = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// A named is a Key with its name in documents, such as "tenant".
type named struct {
	keyfunc.Described
	name string
}

// String returns the name as a document has it.
func (k *named) String() string { return k.name }

// Traits is for package internal/hint.
func (k *named) Traits() hint.Traits { return hint.Of(k.Described) }

// Exact is for package internal/hint.
func (k *named) Exact(values []string) (string, error) { return hint.Exact(k.Described, values) }

// key reads a key or a list of keys. It returns nil after a mistake.
func (d *decoder) key(n *yaml.Node, path string) *named {
	if n.Kind != yaml.SequenceNode {
		part, name := d.part(n, path)
		if part == nil {
			return nil
		}
		return d.named(part, name)
	}
	items, ok := d.list(n, path, "keys, as in [tenant, route]")
	if len(items) > maxParts {
		d.bad(placeOf(items[maxParts]), path, "a key of %d; at most %d", len(items), maxParts)
		return nil
	}
	parts, names := make([]keyfunc.Key, 0, len(items)), make([]string, 0, len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", path, i)
		part, name := d.part(item, at)
		if part != nil && slices.Contains(names, name) {
			d.bad(placeOf(item), at, "%s is in the list already", name)
		}
		ok = ok && part != nil
		parts, names = append(parts, part), append(names, name)
	}
	switch {
	case !ok:
		return nil
	case len(parts) == 1:
		return d.named(parts[0], names...)
	}
	return d.named(keyfunc.Join(parts...), names...)
}

// named returns the key of these names. Rules with the same names share one Key, so
// that the middleware resolves it once for each request.
func (d *decoder) named(k keyfunc.Key, names ...string) *named {
	all := strings.Join(names, ",")
	if d.made[all] == nil {
		if d.made == nil {
			d.made = make(map[string]*named)
		}
		name := names[0]
		if len(names) > 1 {
			name = "[" + strings.Join(names, ", ") + "]"
		}
		d.made[all] = &named{keyfunc.Describe(k), name}
	}
	return d.made[all]
}

// part reads one key, and returns it with its name.
func (d *decoder) part(n *yaml.Node, path string) (k keyfunc.Key, name string) {
	text, ok := d.text(n, path, "write ip, header:NAME, apikey:NAME or cookie:NAME")
	if !ok {
		return nil, ""
	}
	kind, header, colon := strings.Cut(text, ":")
	if !colon {
		if k = d.keys[text]; k == nil && d.keyFor != nil && words.MatchString(text) {
			if k = d.keyFor(text); k != nil {
				d.keys[text] = k
			}
		}
		if k == nil {
			known := slices.Sorted(maps.Keys(d.keys))
			d.bad(placeOf(n), path, "no such key: %.64q%s; this program has %s, header:NAME, apikey:NAME and cookie:NAME", text, meant(text, known), strings.Join(known, ", "))
		}
		return k, text
	}
	switch kind {
	case "apikey":
		k = keyfunc.APIKey(header)
	case "cookie":
		k = keyfunc.Cookie(header)
	case "header":
		k = keyfunc.Header(header)
	default:
		d.bad(placeOf(n), path, "no such key: %.64q%s; write header:NAME, apikey:NAME or cookie:NAME", text, meant(kind, []string{"header", "apikey", "cookie"}))
		return nil, ""
	}
	name = keyfunc.Describe(k).String()
	if keyfunc.Describe(keyfunc.Cookie(header)).Validate() != nil { // names of headers have the same letters
		d.bad(placeOf(n), path, "%.64q is no name of a header or cookie; write %s:NAME, as in header:X-Device", header, kind)
		return nil, ""
	}
	if err := keyfunc.Describe(k).Validate(); err != nil {
		d.bad(placeOf(n), path, "%w", err)
		return nil, ""
	}
	return k, name
}

// vocabulary returns all keys beside header:NAME, apikey:NAME and cookie:NAME, by name.
func vocabulary(own map[string]keyfunc.Key) (map[string]keyfunc.Key, error) {
	known := map[string]keyfunc.Key{"ip": keyfunc.IP, "everyone": keyfunc.Everyone}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(own)) {
		f, isFunc := own[name].(keyfunc.Func)
		switch {
		case !words.MatchString(name):
			errs = append(errs, fmt.Errorf("rulefile: Loader.Keys[%q]: a name has letters, digits, '-', '_' and '.', at most 64", name))
		case own[name] == nil || isFunc && f == nil:
			errs = append(errs, fmt.Errorf("rulefile: Loader.Keys[%q]: the Key is nil", name))
		}
		known[name] = own[name]
	}
	return known, errors.Join(errs...)
}
