package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed75154129/ratelimit/internal/hint"
)

// other is the key of OneOf for everything that is not listed.
const other = "other"

// OneOf returns a [Key] that is the key of k if that is one of the values, and "other" if
// it is not. So each of the values has its own count, and whatever else clients make up or
// leave out shares one. Use it to [Join] a client and what the client asks for, such as a
// model:
//
//	keyfunc.Join(user, keyfunc.OneOf(keyfunc.BodyJSON("model", 1<<20), "large", "small"))
//
// The values are plain ones, as an operator writes them. Blanks around them and, as by
// [strings.EqualFold], their case do not count. The key has the case of the list.
//
// [ErrNoKey] of k becomes "other"; other errors stay as they are. A nil k, a k whose values
// are secret, and no values are mistakes. So is a value that is empty, listed twice,
// "other", or not one key of k.
func OneOf(k Key, values ...string) Key {
	part, one := wrapOne("OneOf", k, "")
	one.traits, one.field, one.client = hint.Traits{Route: part.traits.Route}, false, false
	listed := map[string]string{other: other} // the key by its folded form
	wrong := func(format string, args ...any) {
		one.mistake = errors.Join(one.mistake, mistake("OneOf", format, args...))
	}
	switch {
	case one.mistake != nil:
		return one
	case part.secret:
		wrong("the values of %s are secret: put Hashed around OneOf, or limit by another key", part.name)
		return one
	case len(values) == 0:
		wrong("no values: list those that have a count of their own")
	}
	for _, value := range values {
		if folded(value) == "" {
			wrong("a value is empty: leave it out, because requests without a key are %q", other)
			continue
		}
		texts, err := part.keys([]string{value})
		switch {
		case err != nil:
			wrong("value %q: %w", value, err)
			continue
		case len(texts) != 1:
			wrong("value %q: stands for %d keys: put OneOf around each of them", value, len(texts))
			continue
		case folded(texts[0]) == other:
			wrong("value %q: leave it out, because it is the key of everything that is not listed", value)
		case listed[folded(texts[0])] != "":
			wrong("value %q: it is in the list already", value)
		}
		listed[folded(texts[0])] = texts[0]
	}
	one.name = "oneof(" + part.name + "=" + strings.Join(values, "|") + ")"
	one.resolve = func(r *http.Request) (string, error) {
		text, err := part.resolve(r)
		if err != nil && !errors.Is(err, ErrNoKey) {
			return "", err
		}
		if text, ok := listed[folded(text)]; ok {
			return text, nil
		}
		return other, nil
	}
	one.exact = func(plain []string) (string, error) {
		if len(plain) == 1 && folded(plain[0]) == other {
			return other, nil
		}
		text, err := part.exact(plain)
		if err != nil {
			return "", err
		}
		if listed[folded(text)] == "" { // misspelled, it must not be everything else
			return "", fmt.Errorf("keyfunc: %s: %q is not listed; everything that is not listed is %q", one.name, text, other)
		}
		return listed[folded(text)], nil
	}
	one.keys = func(plain []string) ([]string, error) {
		text, err := one.exact(plain)
		return []string{text}, err
	}
	return one
}

// folded returns what of a text is compared.
func folded(text string) string { return strings.Map(fold, strings.TrimSpace(text)) }
