package keyfunc

import (
	"bytes"
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
// The error wraps [ErrNoKey] if the field is missing, null or blank, if there is no body, or
// if the body is a form that does not begin as JSON does.
//
// If another program could read a different value from the same request, the error is a
// [*StatusError] with the status 400, which refuses the request, whatever key or rule the
// key is a part of:
//
//   - the Content-Type is neither application/json nor ends in +json, is malformed, longer
//     than 256 bytes or repeated, or has a charset that is not UTF-8, or the body has a
//     Content-Encoding
//   - the object has the field more than once, where userId and user_id are one name:
//     some parsers ignore "-", "_" and, like [encoding/json], the case
//   - the URL's query also has the field, or so does the body when read as a form
//   - the field is neither a string nor a whole number, or a text that is a number such as 7.0
//   - the field has a control character, an invisible one, or an accent that is a character
//     of its own, which many databases ignore
//   - the body has more than maxBytes, cannot be read, or is not one valid JSON object
//
// The sign + and leading zeros of a whole number are removed, so that "007" is "7".
//
// The handler can still read the whole body. If the Key cannot read it, the handler gets
// the same error. Until the request ends, at most maxBytes+1 bytes are kept. Resolving the
// key waits for the body, so give the server a ReadTimeout. Without package middleware, the
// first call replaces r.Body by a reader of the same bytes. If a handler in front has
// read the body, as ParseForm does, the request is refused.
//
// If the handler or its database takes other values for equal, such as addresses with and
// without dots, or é and e, each spelling is a key of its own. In that case, let middleware
// in front put the account's ID into the request's context, and limit by [Context].
//
// A field that begins with a slash is a JSON Pointer (RFC 6901) to a field of nested
// objects: "/params/name" is the tool of an MCP call. All of the above then holds for
// each name in the pointer, and in queries and forms also for "params.name" and
// "params[name]". If the pointer leads into an array, the request is refused.
//
// An empty name, a "~" that is neither "~0" nor "~1" in a pointer, and a maxBytes below
// 64, are mistakes.
func BodyJSON(field string, maxBytes int64) Key {
	at, err := pointer(field)
	inForms := at.inForms()
	return inBody("BodyJSON", field, at, err, maxBytes, func(r *http.Request, mediaType string) (string, error) {
		if !isJSON(mediaType) && mediaType != formType {
			return "", errors.New("the Content-Type is not JSON")
		}
		body, err := peek(r, maxBytes)
		switch {
		case err != nil:
			return "", err
		case isJSON(mediaType):
			return fromJSON(body, at, inForms)
		case beginsAsJSON(body):
			return "", errors.New("the form begins as JSON does")
		}
		return "", fmt.Errorf("%w: body: it is a form", ErrNoKey)
	})
}

// BodyForm returns a [Key] that is a field of a form, as [http.Request.ParseForm] reads
// it. The form is the body of a POST, PUT or PATCH request with the Content-Type
// application/x-www-form-urlencoded.
//
// What [BodyJSON] says holds here as well, except that case matters: EMAIL is not the
// field email. A JSON body has no key. A request is also refused if its form begins as JSON
// does, because a handler could read it as JSON, or if the body has the field more than once
// for a parser that separates fields by semicolons, too.
//
// For a handler that takes both JSON and forms, combine the two with [First]. An
// account then has one count for JSON and one for forms:
//
//	keyfunc.Required(keyfunc.First(keyfunc.BodyJSON("email", 8<<10), keyfunc.BodyForm("email", 8<<10)), http.StatusBadRequest)
func BodyForm(field string, maxBytes int64) Key {
	at := newField(field)
	return inBody("BodyForm", field, place{at}, nil, maxBytes, func(r *http.Request, mediaType string) (string, error) {
		switch {
		case !isJSON(mediaType) && mediaType != formType:
			return "", errors.New("the Content-Type is not that of a form")
		case !isJSON(mediaType) && r.Method != http.MethodPost && r.Method != http.MethodPut && r.Method != http.MethodPatch:
			return "", fmt.Errorf("%s requests have no form", r.Method)
		}
		body, err := peek(r, maxBytes)
		switch {
		case err != nil:
			return "", err
		case !isJSON(mediaType):
			return fromForm(body, at)
		case at.inQuery(string(body)):
			return "", errors.New("the JSON is a form with the field, too")
		}
		return "", fmt.Errorf("%w: body: it is JSON", ErrNoKey)
	})
}

const formType = "application/x-www-form-urlencoded"

func isJSON(mediaType string) bool {
	return mediaType == "application/json" || strings.HasSuffix(mediaType, "+json")
}

// beginsAsJSON reports whether a decoder of JSON in some charset could find an object or
// an array in a body.
func beginsAsJSON(body []byte) bool {
	body = bytes.TrimLeft(body, " \t\r\n")
	return len(body) > 0 && (body[0] == '{' || body[0] == '[' || body[0] < ' ' || body[0] > '~')
}

const (
	// minBody is the least number of bytes that is taken for the size of a body.
	minBody = 64

	// maxContentType is the longest Content-Type that is read.
	maxContentType = 256
)

// inBody returns the key for a field of the bodies in which find finds it, by their media
// type. A malformed place is a mistake. Errors of find that do not wrap ErrNoKey refuse the
// request.
func inBody(constructor, name string, at place, malformed error, maxBytes int64, find func(r *http.Request, mediaType string) (string, error)) *key {
	var errs []error
	if malformed != nil {
		errs = append(errs, mistake(constructor, "field %q: %w", name, malformed))
	} else if at.hasEmpty() {
		errs = append(errs, mistake(constructor, "the name of the field is empty"))
	}
	if maxBytes < minBody {
		errs = append(errs, mistake(constructor, "at most %d bytes: hardly any body would be read; give %d or more, such as 8<<10", maxBytes, minBody))
	}
	inForms, forms := at.inForms(), constructor == "BodyForm" // FormValue takes the query for a form
	read := func(r *http.Request) (string, error) {
		none := !replay.Has(r)
		for _, f := range inForms {
			if (forms || !none) && r.URL != nil && f.inQuery(r.URL.RawQuery) {
				return "", fmt.Errorf("field %q is in the URL", f.name)
			}
		}
		if none {
			return "", fmt.Errorf("%w: body: there is none", ErrNoKey)
		}
		mediaType, err := plainType(r.Header)
		if err != nil {
			return "", err
		}
		value, err := find(r, mediaType)
		if err != nil {
			return "", err
		}
		if strings.TrimSpace(value) == "" {
			return "", fmt.Errorf("%w: body: field %q is empty", ErrNoKey, name)
		}
		return account(value)
	}
	k := leaf(strings.ToLower(constructor)+":"+name, hint.Traits{Chosen: "a field of the body"}, errors.Join(errs...), func(r *http.Request) (string, error) {
		value, err := read(r)
		if err != nil && !errors.Is(err, ErrNoKey) {
			return "", &StatusError{http.StatusBadRequest, "body: " + err.Error()}
		}
		return value, err
	}, account)
	k.readsBody, k.field, k.client = true, true, false
	return k
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
	return replay.Of(r).Peek(most)
}
