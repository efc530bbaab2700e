package admin

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/view"
)

// An order is what an operator asks for.
type order struct {
	action string // "peek", "reset", "used", "raise", "ban" or "unban"
	rule   string // "" asks for the overview or, with values, for all rules
	Values []string
	ID     string             // of a listed key, instead of values
	lasts  time.Duration      // the ban or the override
	limits []algorithms.Limit // of the override
	used   int64              // units, of the one count that has what was sent of key, tier, override and limit
	count  map[string]string
	look   string // the token of a look-up that a browser was sent to
	secret bool   // the values are a secret under some rule
	done   string // what was done before it, and when
}

// A mistake is what an operator is told, and its status.
type mistake struct {
	status int
	err    error
}

func (e *mistake) Error() string { return e.err.Error() }

func (e *mistake) Unwrap() error { return e.err }

const (
	maxOrder  = 64 << 10 // bytes of a form or a query
	maxValues = 16
)

// orderOf reads a request. A form that is posted counts without the URL's query.
func orderOf(w http.ResponseWriter, r *http.Request) (o order, err error) {
	bad := func(status int, format string, args ...any) error {
		return &mistake{status, fmt.Errorf(format, args...)}
	}
	var form url.Values
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if len(r.URL.RawQuery) > maxOrder {
			return order{}, bad(http.StatusRequestURITooLong, "the query has more than %d bytes", maxOrder)
		}
		form, err = url.ParseQuery(r.URL.RawQuery)
		o.action = "peek"
		if form.Has("action") {
			return order{}, bad(http.StatusMethodNotAllowed, "an action takes POST")
		}
	case http.MethodPost:
		r.Body = http.MaxBytesReader(w, r.Body, maxOrder)
		err = r.ParseForm()
		form, o.action = r.PostForm, r.PostForm.Get("action")
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			return order{}, bad(http.StatusRequestEntityTooLarge, "the form has more than %d bytes", maxOrder)
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		return order{}, bad(http.StatusMethodNotAllowed, "takes GET and POST")
	}
	if err != nil {
		return order{}, bad(http.StatusBadRequest, "%w", err)
	}
	if r.Method != http.MethodPost && form.Has("look") {
		o.look = form.Get("look")
		return o, nil
	}
	o.rule, o.ID = form.Get("rule"), form.Get("id")
	for _, value := range form["value"] {
		if !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl) {
			return order{}, bad(http.StatusBadRequest, "a value has control characters or is not UTF-8: use Middleware.Checks in the program")
		}
		o.Values = append(o.Values, strings.TrimSpace(value))
	}
	switch {
	case o.rule == "" && o.action != "peek" || o.rule == "" && o.Values == nil && r.Method == http.MethodPost:
		return order{}, bad(http.StatusBadRequest, "no rule: send a form with action, rule and value")
	case len(o.Values) > maxValues:
		return order{}, bad(http.StatusBadRequest, "more than %d values", maxValues)
	case o.ID != "" && o.Values != nil:
		return order{}, bad(http.StatusBadRequest, "an id and values: send one of them")
	}
	switch o.action {
	case "peek", "reset", "unban":
	case "raise":
		for text := range strings.SplitSeq(form.Get("limit"), ",") {
			l, err := algorithms.ParseLimit(strings.TrimSpace(text))
			if err != nil {
				return order{}, bad(http.StatusBadRequest, "%w", err)
			}
			o.limits = append(o.limits, l)
		}
		fallthrough
	case "ban":
		if o.lasts, err = view.ParseSpan(form.Get("for")); err != nil {
			return order{}, bad(http.StatusBadRequest, "for: %w", err)
		}
	case "used":
		if o.used, err = strconv.ParseInt(form.Get("n"), 10, 64); err != nil || o.used < 0 {
			return order{}, bad(http.StatusBadRequest, "n: %.64q is no number of units; send one such as n=0 or n=4000", form.Get("n"))
		}
		o.count = make(map[string]string)
		for _, field := range []string{"key", "tier", "override", "limit"} {
			if form.Has(field) {
				o.count[field] = form.Get(field)
			}
		}
		if text, sent := o.count["limit"]; sent {
			l, err := algorithms.ParseLimit(text)
			if err != nil {
				return order{}, bad(http.StatusBadRequest, "limit: %w", err)
			}
			o.count["limit"] = view.Limit(l)
		}
	default:
		return order{}, bad(http.StatusBadRequest, "no such action: %.64q; send peek, reset, used, raise, ban or unban", o.action)
	}
	return o, nil
}
