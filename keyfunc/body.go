package keyfunc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strings"
)

// Body returns a [Func] whose key is a field of the request's body, without the
// blanks around it and in lower case, so that " Alice@Example.com" is
// "alice@example.com": to limit the logins to one account, from wherever they come.
// It belongs beside a rule by address, since the client chooses the value, and
// wants [Required] around it, since a client can leave the field out:
//
//	keyfunc.Required(keyfunc.Body("email", 8<<10), http.StatusBadRequest)
//
// By Content-Type, the field is that of a form (application/x-www-form-urlencoded)
// or the string or whole number of that name at the top of a JSON object
// (application/json, and what ends in +json). The body of any other type is not
// read, nor one in a Content-Encoding. A name of JSON matches in any case, as it
// does for [encoding/json].
//
// The handler reads the whole body as if nobody had before, and the error where
// reading failed. At most maxBytes and one are held for it, until it has read them.
// Body waits for the body, so give the server a ReadTimeout.
//
// The error wraps [ErrNoKey] and says why if the field is missing, empty, no string
// or whole number, or there more than once, since the handler might take another
// than this; if the body has another type, more than maxBytes, or is malformed or
// cannot be read. If field is empty or maxBytes not positive, every request gets an
// error that says so and wraps neither ErrNoKey nor [ErrSkip].
func Body(field string, maxBytes int64) Func {
	var errs []error
	if field == "" {
		errs = append(errs, errors.New("keyfunc: Body: the name of the field is empty"))
	}
	if maxBytes <= 0 {
		errs = append(errs, fmt.Errorf("keyfunc: Body: at most %d bytes: must be positive", maxBytes))
	}
	if err := errors.Join(errs...); err != nil {
		return failing(err)
	}
	return func(r *http.Request) (string, error) {
		find := finder(r.Header)
		if find == nil {
			return "", fmt.Errorf("%w: the body is neither JSON nor a form", ErrNoKey)
		}
		body, err := peek(r, maxBytes)
		if err != nil {
			return "", fmt.Errorf("%w: body: %w", ErrNoKey, err)
		}
		values, err := find(body, field)
		if err != nil {
			return "", fmt.Errorf("%w: body: %w", ErrNoKey, err)
		}
		if len(values) != 1 {
			return "", fmt.Errorf("%w: field %q is in the body %d times", ErrNoKey, field, len(values))
		}
		value := strings.ToLower(strings.TrimSpace(values[0]))
		if value == "" {
			return "", fmt.Errorf("%w: field %q of the body is empty", ErrNoKey, field)
		}
		return value, nil
	}
}

// finder returns the function that finds all values of a field in a body of the
// type that h declares; nil if there is none.
func finder(h http.Header) func(body []byte, field string) ([]string, error) {
	types := h.Values("Content-Type")
	if len(types) != 1 || h.Get("Content-Encoding") != "" {
		return nil
	}
	mediaType, _, err := mime.ParseMediaType(types[0])
	switch {
	case err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter):
		return nil
	case mediaType == "application/x-www-form-urlencoded":
		return inForm
	case mediaType == "application/json", strings.HasSuffix(mediaType, "+json"):
		return inJSON
	}
	return nil
}

func inForm(body []byte, field string) ([]string, error) {
	form, err := url.ParseQuery(string(body))
	return form[field], err
}

// wholeNumber is a number that has no second spelling, as 1.0 and 1e0 are of 1.
var wholeNumber = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

func inJSON(body []byte, field string) (values []string, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return nil, errors.New("the JSON is no object")
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, err
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, err
		}
		if name, ok := name.(string); !ok || !strings.EqualFold(name, field) {
			continue
		}
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return nil, err
		}
		text, isString := value.(string)
		if !isString && wholeNumber.Match(raw) {
			text, isString = string(raw), true
		}
		if !isString {
			return nil, fmt.Errorf("field %q is neither a string nor a whole number", field)
		}
		values = append(values, text)
	}
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the JSON object")
	}
	return values, nil
}

// peek returns the body of r, and makes r read the same again. It returns an error
// if the body cannot be read or has more than most bytes.
func peek(r *http.Request, most int64) ([]byte, error) {
	tooLong := fmt.Errorf("more than %d bytes", most)
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return nil, errors.New("there is none")
	case r.ContentLength > most:
		return nil, tooLong
	}
	read, err := io.ReadAll(io.LimitReader(r.Body, min(most, math.MaxInt64-1)+1))
	r.Body = &replay{read: read, failed: err, rest: r.Body}
	if err == nil && int64(len(read)) > most {
		err = tooLong
	}
	return read, err
}

// A replay is a body of which a part has been read already.
type replay struct {
	read   []byte
	failed error // what reading more has failed with
	rest   io.ReadCloser
}

func (b *replay) Read(p []byte) (int, error) {
	switch {
	case len(b.read) > 0:
		n := copy(p, b.read)
		b.read = b.read[n:]
		return n, nil
	case b.failed != nil:
		return 0, b.failed
	}
	return b.rest.Read(p)
}

// Close closes the body, after which it cannot be read, replayed or not.
func (b *replay) Close() error {
	b.read, b.failed = nil, nil
	return b.rest.Close()
}
