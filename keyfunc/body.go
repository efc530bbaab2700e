package keyfunc

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/seed75154129/ratelimit/internal/hint"
	"github.com/seed75154129/ratelimit/internal/replay"
)

// BodyJSON returns a [Key] that is a field of a JSON body: the string or whole number
// of that name at the top level of the object. Blanks around the value are removed.
// Values that [strings.EqualFold] calls equal are one key, in which ASCII letters are
// lower-cased: " Alice@Example.com" is "alice@example.com". Use it to limit the logins
// to one account, whatever address they come from.
//
// Put a rule by address beside it, because the client chooses the value. Put [Required]
// around it, because a client can omit the field:
//
//	keyfunc.Required(keyfunc.BodyJSON("email", 8<<10), http.StatusBadRequest)
//
// The Content-Type must be application/json or end in +json. If another program could
// read a different value from the same body, the request has no key. The error wraps
// [ErrNoKey] and says why:
//
//   - the Content-Type is not JSON, malformed, longer than 256 bytes or repeated, or
//     has a charset that is not UTF-8, or the body has a Content-Encoding
//   - the object has the field more than once, where userId and user_id are one name:
//     some parsers ignore "-", "_" and, like [encoding/json], the case
//   - the URL's query also has the field, or so does the body when read as a form
//   - the field is empty, or neither a string nor a whole number
//   - the body has more than maxBytes, cannot be read, or is not one valid JSON object
//
// The handler can still read the whole body. If the Key cannot read it, the handler gets
// the same error. Until the request ends, at most maxBytes+1 bytes are kept. Resolving the
// key waits for the body, so give the server a ReadTimeout. Without package middleware, the
// first call replaces r.Body by a reader of the same bytes. If a handler in front has
// read the body, as ParseForm does, the request has no key.
//
// If the handler normalizes the value further, such as by removing dots from addresses,
// each spelling is a key of its own. In that case, let middleware in front put the account
// into the request's context, and limit by [Context].
//
// A field that begins with a slash is a JSON Pointer (RFC 6901) to a field of nested
// objects: "/params/name" is the tool of an MCP call. All of the above then holds for
// each name in the pointer, and in queries and forms also for "params.name" and
// "params[name]". If the pointer leads into an array, the request has no key.
//
// An empty name, a "~" that is neither "~0" nor "~1" in a pointer, and a maxBytes below
// 64, are mistakes.
func BodyJSON(field string, maxBytes int64) Key {
	at, err := pointer(field)
	return inBody("BodyJSON", field, at, err, maxBytes, func(_, mediaType string) error {
		if mediaType != "application/json" && !strings.HasSuffix(mediaType, "+json") {
			return errors.New("the Content-Type is not JSON")
		}
		return nil
	}, fromJSON)
}

// BodyForm returns a [Key] that is a field of a form, as [http.Request.ParseForm] reads
// it. The form is the body of a POST, PUT or PATCH request with the Content-Type
// application/x-www-form-urlencoded.
//
// What [BodyJSON] says holds here as well, except that case matters: EMAIL is not the
// field email. A request also has no key if its body begins like a JSON object, because a
// handler could read it as JSON, or if the body has the field more than once for a parser
// that separates fields by semicolons, too.
//
// For a handler that takes both JSON and forms, combine the two with [First]. An
// account then has one count for JSON and one for forms:
//
//	keyfunc.Required(keyfunc.First(keyfunc.BodyJSON("email", 8<<10), keyfunc.BodyForm("email", 8<<10)), http.StatusBadRequest)
func BodyForm(field string, maxBytes int64) Key {
	return inBody("BodyForm", field, place{newField(field)}, nil, maxBytes, func(method, mediaType string) error {
		switch {
		case method != http.MethodPost && method != http.MethodPut && method != http.MethodPatch:
			return fmt.Errorf("%s requests have no form", method)
		case mediaType != "application/x-www-form-urlencoded":
			return errors.New("the Content-Type is not that of a form")
		}
		return nil
	}, fromForm)
}

const (
	// minBody is the least number of bytes that is taken for the size of a body.
	minBody = 64

	// maxContentType is the longest Content-Type that is read.
	maxContentType = 256
)

// inBody returns the key for a field of the bodies that accept accepts, where find
// finds it. A malformed place is a mistake.
func inBody(constructor, name string, at place, malformed error, maxBytes int64, accept func(method, mediaType string) error,
	find func(body []byte, at, inForms place) (string, error),
) *key {
	var errs []error
	if malformed != nil {
		errs = append(errs, mistake(constructor, "field %q: %w", name, malformed))
	} else if at.hasEmpty() {
		errs = append(errs, mistake(constructor, "the name of the field is empty"))
	}
	if maxBytes < minBody {
		errs = append(errs, mistake(constructor, "at most %d bytes: hardly any body would be read; give %d or more, such as 8<<10", maxBytes, minBody))
	}
	inForms := at.inForms()
	read := func(r *http.Request) (string, error) {
		mediaType, err := plainType(r.Header)
		if err != nil {
			return "", err
		}
		if err := accept(r.Method, mediaType); err != nil {
			return "", err
		}
		for _, f := range inForms {
			if r.URL != nil && f.inQuery(r.URL.RawQuery) {
				return "", fmt.Errorf("field %q is in the URL too", f.name)
			}
		}
		body, err := peek(r, maxBytes)
		if err != nil {
			return "", err
		}
		value, err := find(body, at, inForms)
		if err != nil {
			return "", err
		}
		if value = canonical(value); value == "" {
			return "", fmt.Errorf("field %q is empty", name)
		}
		return value, nil
	}
	k := leaf(strings.ToLower(constructor)+":"+name, hint.Traits{Chosen: "a field of the body"}, errors.Join(errs...), func(r *http.Request) (string, error) {
		value, err := read(r)
		if err != nil {
			return "", fmt.Errorf("%w: body: %w", ErrNoKey, err)
		}
		return value, nil
	}, func(value string) (string, error) { return plain(canonical(value)) })
	k.readsBody = true
	return k
}

// canonical returns the one spelling of a value. Values that are equal under
// [strings.EqualFold] have the same, as they often are one account.
func canonical(value string) string {
	return strings.Map(fold, strings.TrimSpace(value))
}

// plainType returns the media type of a body that can be read as it is.
func plainType(h http.Header) (string, error) {
	types := h.Values("Content-Type")
	if len(types) != 1 {
		return "", fmt.Errorf("the request has %d Content-Types", len(types))
	}
	if strings.Join(h.Values("Content-Encoding"), "") != "" {
		return "", errors.New("the request has a Content-Encoding")
	}
	// ParseMediaType takes 0.2 s for the 1 MB that net/http lets clients send.
	if len(types[0]) > maxContentType {
		return "", fmt.Errorf("the Content-Type has %d bytes, more than %d", len(types[0]), maxContentType)
	}
	mediaType, parameters, err := mime.ParseMediaType(types[0])
	if err != nil {
		return "", fmt.Errorf("the Content-Type is malformed: %w", err)
	}
	switch charset := parameters["charset"]; strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii":
		return mediaType, nil
	default:
		return "", fmt.Errorf("the charset %.32q is not UTF-8", charset)
	}
}

// peek returns the body of r, which the handler can still read.
func peek(r *http.Request, most int64) ([]byte, error) {
	if r.ContentLength > most {
		return nil, fmt.Errorf("more than %d bytes", most)
	}
	body := replay.Of(r)
	if body == nil {
		return nil, errors.New("there is none")
	}
	return body.Peek(most)
}
