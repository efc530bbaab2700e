package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Join returns a [Key] made of all the keys: each combination of their values has its own
// count. Each part is preceded by its length, as in "5:alice,4:eu-1", so that no two
// combinations give the same key, whatever the parts contain.
//
// The error is that of the first key that fails, unchanged. Operators name a client by one
// plain value for each part.
//
// No keys, or a nil one, are a mistake. So is a field of the body, such as a model, beside a
// key of the client: a client that makes up a value for each request would have a new count
// for each. Put [OneOf] around the field.
func Join(keys ...Key) Key {
	parts, k := wrap("Join", keys...)
	k.name = "[" + names(parts) + "]"
	k.resolve = func(r *http.Request) (string, error) {
		joined := make([]byte, 0, 64)
		for _, part := range parts {
			text, err := part.resolve(r)
			if err != nil {
				return "", err
			}
			joined = appendPart(joined, text)
		}
		return string(joined), nil
	}
	for _, part := range parts {
		k.takes += part.takes
	}
	if k.mistake == nil && k.field {
		k.mistake = evaded(parts)
	}
	joined := func(values []string, keysOf func(part *key, values []string) ([]string, error)) ([]string, error) {
		if len(values) != k.takes {
			return nil, fmt.Errorf("keyfunc: %s: takes %d values, got %d", k.name, k.takes, len(values))
		}
		all := []string{""}
		for _, part := range parts {
			texts, err := keysOf(part, values[:part.takes])
			if err != nil {
				return nil, err
			}
			values = values[part.takes:]
			all = combinations(all, texts)
		}
		return all, nil
	}
	k.keys = func(values []string) ([]string, error) {
		return joined(values, func(part *key, values []string) ([]string, error) { return part.keys(values) })
	}
	k.exact = func(values []string) (string, error) {
		all, err := joined(values, func(part *key, values []string) ([]string, error) {
			if part.takes == 0 { // everyone
				return part.keys(values)
			}
			text, err := part.exact(values)
			return []string{text}, err
		})
		if err != nil {
			return "", err
		}
		return all[0], nil
	}
	return k
}

// evaded reports a field of the body beside a key of the client.
func evaded(parts []*key) error {
	for i, field := range parts {
		for j, client := range parts {
			if i != j && field.field && client.client {
				return mistake("Join", "made-up values of %s have counts of their own beside %s: "+
					"write keyfunc.OneOf(…) around the field, with the values to count apart, or a rule for each key", field.name, client.name)
			}
		}
	}
	return nil
}

// appendPart appends a part to what Join has joined so far.
func appendPart(joined []byte, part string) []byte {
	if len(joined) > 0 {
		joined = append(joined, ',')
	}
	joined = strconv.AppendInt(joined, int64(len(part)), 10)
	joined = append(joined, ':')
	return append(joined, part...)
}

// combinations appends each of the parts to each of the joined.
func combinations(joined, parts []string) []string {
	all := make([]string, 0, len(joined)*len(parts))
	for _, j := range joined {
		for _, part := range parts {
			all = append(all, string(appendPart([]byte(j), part)))
		}
	}
	return all
}

// First returns a [Key] that is the first of the keys that a request has, such as the
// user or else the address. The key begins with its number among the keys, as in "1:alice"
// and "2:203.0.113.9", so that a user with the name 203.0.113.9 has a different key. If
// you change the order of the keys, all counts start anew.
//
// The next key is tried only after [ErrNoKey]. If no key is left, the error is that of
// the last one. [ErrSkip] and all other errors are returned at once. If an operator
// names a client by plain values, the values stand for every key in the list that
// accepts them.
//
// No keys, or a nil one, are a mistake.
func First(keys ...Key) Key {
	parts, k := wrap("First", keys...)
	k.name = "first(" + names(parts) + ")"
	k.resolve = func(r *http.Request) (string, error) {
		var last error
		for i, part := range parts {
			text, err := part.resolve(r)
			if err == nil {
				return strconv.Itoa(i+1) + ":" + text, nil
			}
			if !errors.Is(err, ErrNoKey) {
				return "", err
			}
			last = err
		}
		return "", last
	}
	for _, part := range parts {
		k.takes = max(k.takes, part.takes)
	}
	k.exact = func(values []string) (string, error) {
		for i, part := range parts {
			number := strconv.Itoa(i+1) + ":"
			if len(values) > 0 && strings.HasPrefix(values[0], number) {
				text, err := part.exact(append([]string{values[0][len(number):]}, values[1:]...))
				return number + text, err
			}
		}
		return "", fmt.Errorf("keyfunc: %s: begin with the number of the key that has the value, as in 1:alice", k.name)
	}
	k.keys = func(values []string) (all []string, _ error) {
		var errs []error
		for i, part := range parts {
			texts, err := part.keys(values)
			errs = append(errs, err)
			for _, text := range texts {
				all = append(all, strconv.Itoa(i+1)+":"+text)
			}
		}
		if len(all) == 0 {
			return nil, errors.Join(errs...)
		}
		return all, nil
	}
	return k
}

// Optional returns a [Key] that exempts requests without a key from the rule: it turns
// [ErrNoKey] of k into [ErrSkip]. Other errors stay as they are.
//
// A client can avoid this rule by not logging in or by omitting a header, so another
// rule must count all requests. A nil k is a mistake.
func Optional(k Key) Key {
	part, optional := wrapOne("Optional", k, "")
	optional.resolve = func(r *http.Request) (string, error) {
		text, err := part.resolve(r)
		if errors.Is(err, ErrNoKey) {
			return "", ErrSkip
		}
		return text, err
	}
	return optional
}

// Required returns a [Key] that refuses requests without a key: it turns [ErrNoKey] of k
// into a [*StatusError] with this status, such as [http.StatusUnauthorized] for users
// and [http.StatusBadRequest] for fields of the body. Other errors stay as they are.
// Without Required, requests without a key share one count, which one client can use up
// for all others.
//
// A nil k, and a status that is not 400 to 499, are mistakes.
func Required(k Key, status int) Key {
	part, required := wrapOne("Required", k, ", "+strconv.Itoa(status))
	required.resolve = func(r *http.Request) (string, error) {
		text, err := part.resolve(r)
		if errors.Is(err, ErrNoKey) {
			return "", &StatusError{status, err.Error()}
		}
		return text, err
	}
	if status < 400 || status > 499 {
		required.mistake = errors.Join(required.mistake, mistake("Required", "status %d: give one from 400 to 499, such as 401", status))
	}
	return required
}
