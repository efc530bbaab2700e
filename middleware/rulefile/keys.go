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

// key reads a key or a list of keys, which are joined. It returns nil after a mistake.
func (v value) key() *named {
	if v.Kind == yaml.SequenceNode && len(v.Content) > maxParts {
		value{v.Content[maxParts], v.d, v.path}.bad("a key of %d; at most %d", len(v.Content), maxParts)
		return nil
	}
	var names []string
	parts := oneOrMore(v, "keys, as in [tenant, route]", func(v value) (k keyfunc.Key, ok bool) {
		k, name := v.keyPart()
		if k != nil && slices.Contains(names, name) {
			v.bad("%s is in the list already", name)
		}
		names = append(names, name)
		return k, k != nil
	})
	if len(parts) == 0 {
		return nil
	}
	k, name := parts[0], names[0]
	if len(parts) > 1 {
		k, name = keyfunc.Join(parts...), "["+strings.Join(names, ", ")+"]"
	}
	if v.d.made[name] == nil { // rules with the same names share one Key, so that it is resolved once for each request
		v.d.made[name] = &named{keyfunc.Describe(k), name}
	}
	return v.d.made[name]
}

// keyPart reads one key, and returns it with its name.
func (v value) keyPart() (k keyfunc.Key, name string) {
	text, ok := v.text("write ip, header:NAME, apikey:NAME or cookie:NAME")
	if !ok {
		return nil, ""
	}
	kind, header, colon := strings.Cut(text, ":")
	if !colon {
		return v.own(text), text
	}
	switch kind {
	case "apikey":
		k = keyfunc.APIKey(header)
	case "cookie":
		k = keyfunc.Cookie(header)
	case "header":
		k = keyfunc.Header(header)
	default:
		v.bad("no such key: %.64q%s; write header:NAME, apikey:NAME or cookie:NAME", text, meant(kind, []string{"header", "apikey", "cookie"}))
		return nil, ""
	}
	err := keyfunc.Describe(k).Validate()
	if keyfunc.Describe(keyfunc.Cookie(header)).Validate() != nil { // names of headers have the same letters
		err = fmt.Errorf("%.64q is no name of a header or cookie; write %s:NAME, as in header:X-Device", header, kind)
	}
	if err != nil {
		v.bad("%w", err)
		return nil, ""
	}
	return k, keyfunc.Describe(k).String()
}

// own returns the program's key of a name.
func (v value) own(name string) keyfunc.Key {
	d := v.d
	if d.keys[name] == nil && d.keyFor != nil && words.MatchString(name) {
		if k := d.keyFor(name); k != nil {
			d.keys[name] = k
		}
	}
	if d.keys[name] == nil {
		known := slices.Sorted(maps.Keys(d.keys))
		v.bad("no such key: %.64q%s; this program has %s, header:NAME, apikey:NAME and cookie:NAME", name, meant(name, known), strings.Join(known, ", "))
	}
	return d.keys[name]
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
