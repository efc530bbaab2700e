package keyfunc

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/seed75154129/ratelimit/internal/hint"
)

// A key is every [Key] that this package makes. What it says of itself is found out
// when it is made.
type key struct {
	name      string
	mistake   error // everything that is wrong with it and its parts
	traits    hint.Traits
	readsBody bool
	secret    bool
	field     bool // it has what clients write into a field of the body
	client    bool // it has something else that may identify a client

	resolve func(*http.Request) (string, error) // never "" without an error

	takes int // how many values keys takes
	keys  func(values []string) ([]string, error)
	exact func(values []string) (string, error) // the one key; no secrets but their stored forms
}

// Resolve returns the mistake, if there is one: an error that wraps neither ErrNoKey
// nor ErrSkip, for First and Optional would hide the mistake and with it the limit.
func (k *key) Resolve(r *http.Request) (string, error) {
	if k.mistake != nil {
		return "", k.mistake
	}
	return k.resolve(r)
}

func (k *key) Validate() error { return k.mistake }
func (k *key) String() string  { return k.name }
func (k *key) ReadsBody() bool { return k.readsBody }
func (k *key) Values() int     { return k.takes }
func (k *key) Secret() bool    { return k.secret }

// Traits is for package internal/hint.
func (k *key) Traits() hint.Traits { return k.traits }

func (k *key) Keys(values ...string) ([]string, error) {
	if k.mistake != nil {
		return nil, k.mistake
	}
	return k.keys(values)
}

// Exact is for [hint.Exact].
func (k *key) Exact(values []string) (string, error) {
	if k.mistake != nil {
		return "", k.mistake
	}
	return k.exact(values)
}

// leaf returns a key that has no parts and takes one plain value, of which keyOf
// makes a key.
func leaf(name string, traits hint.Traits, mistake error, resolve func(*http.Request) (string, error), keyOf func(value string) (string, error)) *key {
	one := func(values []string) (string, error) {
		if len(values) != 1 {
			return "", fmt.Errorf("keyfunc: %s: takes one value, got %d", name, len(values))
		}
		text, err := keyOf(values[0])
		if err != nil {
			return "", fmt.Errorf("keyfunc: %s: %w", name, err)
		}
		return text, nil
	}
	return &key{name: name, traits: traits, client: !traits.Route, mistake: mistake, resolve: resolve, takes: 1, exact: one, keys: func(values []string) ([]string, error) {
		text, err := one(values)
		if err != nil {
			return nil, err
		}
		return []string{text}, nil
	}}
}

// storedOnly makes exact refuse all but the stored form, which begins with prefix.
func (k *key) storedOnly(prefix string, stored func(values []string) (string, error)) {
	k.secret = true
	k.exact = func(values []string) (string, error) {
		if len(values) == 1 && isStored(prefix, values[0]) {
			return values[0], nil
		}
		text, err := stored(values)
		if err != nil {
			return "", err
		}
		return "", fmt.Errorf("keyfunc: %s: a secret must not be written down: write its stored form, %s", k.name, text)
	}
}

// isStored reports whether a text is a digest behind a prefix.
func isStored(prefix, text string) bool {
	sum, ok := strings.CutPrefix(text, prefix)
	bits, err := base64.RawURLEncoding.Strict().DecodeString(sum)
	return ok && err == nil && len(bits) == 16
}

// plain is the keyOf of keys that are the value itself.
func plain(value string) (string, error) {
	if value == "" {
		return "", errors.New("the value is empty")
	}
	return value, nil
}

// wrap returns the parts of a wrapper as keys of this package, and the wrapper with
// all that it has from its parts.
func wrap(constructor string, given ...Key) (parts []*key, wrapper *key) {
	parts, wrapper = make([]*key, len(given)), new(key)
	if len(given) == 0 {
		wrapper.mistake = mistake(constructor, "no keys: give at least one")
	}
	for i, k := range given {
		part := own(k)
		if part == nil {
			part = &key{name: "nil", mistake: mistake(constructor, "key %d of %d is nil", i+1, len(given))}
		}
		parts[i] = part
		wrapper.mistake = errors.Join(wrapper.mistake, part.mistake)
		wrapper.traits = wrapper.traits.And(part.traits)
		wrapper.readsBody = wrapper.readsBody || part.readsBody
		wrapper.secret = wrapper.secret || part.secret
		wrapper.field, wrapper.client = wrapper.field || part.field, wrapper.client || part.client
	}
	return parts, wrapper
}

// wrapOne returns a wrapper of one key, which stands for the same plain values.
func wrapOne(constructor string, k Key, arguments string) (part, wrapper *key) {
	parts, wrapper := wrap(constructor, k)
	part = parts[0]
	wrapper.name = strings.ToLower(constructor) + "(" + part.name + arguments + ")"
	wrapper.takes, wrapper.keys, wrapper.exact = part.takes, part.keys, part.exact
	return part, wrapper
}

func names(parts []*key) string {
	all := make([]string, len(parts))
	for i, part := range parts {
		all[i] = part.name
	}
	return strings.Join(all, ", ")
}

// own returns k as a key of this package, nil if k is nil. What k does not say of
// itself is as the comment of [Describe] has it.
func own(k Key) *key {
	switch k := k.(type) {
	case nil:
		return nil
	case *key:
		return k
	case Func:
		if k == nil {
			return nil
		}
	}
	name := fmt.Sprintf("%T", k)
	if s, ok := k.(fmt.Stringer); ok {
		name = s.String()
	}
	owned := leaf(name, hint.Of(k), nil, func(r *http.Request) (string, error) {
		text, err := k.Resolve(r)
		switch {
		case err != nil:
			return "", err
		case text == "":
			return "", ErrNoKey
		}
		return text, nil
	}, plain)
	if described, ok := k.(Described); ok {
		owned.mistake, owned.readsBody, owned.secret = described.Validate(), described.ReadsBody(), described.Secret()
		owned.takes, owned.keys = described.Values(), func(values []string) ([]string, error) { return hint.Keys(described, values) }
		owned.exact = func(values []string) (string, error) { return hint.Exact(described, values) }
	} else {
		owned.mistake = halfDescribed(k)
	}
	return owned
}

// halfDescribed returns what is wrong with a Key that was meant to be [Described].
func halfDescribed(k Key) error {
	const mend = "implement all methods of keyfunc.Described, or embed what keyfunc.Describe returns"
	switch k.(type) { // not by reflection on names, with which the linker keeps every method
	case interface{ Validate() error }, interface{ ReadsBody() bool }, interface{ Values() int }, interface{ Secret() bool },
		interface {
			Keys(values ...string) ([]string, error)
		}:
		return fmt.Errorf("keyfunc: %T has some methods of keyfunc.Described and not all, so that none would be used: %s", k, mend)
	}
	t := reflect.TypeOf(k)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Struct {
		if f, ok := t.FieldByName("Key"); ok && f.Anonymous && f.Type == reflect.TypeFor[Key]() {
			return fmt.Errorf("keyfunc: %T embeds a keyfunc.Key, whose methods other than Resolve would not be used: %s", k, mend)
		}
	}
	return nil
}

// mistake returns an error about the arguments of a constructor.
func mistake(constructor, format string, args ...any) error {
	return fmt.Errorf("keyfunc: "+constructor+": "+format, args...)
}
