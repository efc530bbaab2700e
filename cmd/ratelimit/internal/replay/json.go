package replay

import (
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"
)

// parseJSON reads a line that is a JSON object.
func (p *plan) parseJSON(line string) (r request, err error) {
	object, ok := fieldsOf(line)
	if !ok {
		return r, errFormat
	}
	part := func(name string) string { return text(p.find(object, name)) }
	if r.at, err = p.readTime(part("time")); err != nil {
		if p.json["time"] == "" {
			err = errTimeField
		}
		return r, err
	}
	if r.status, err = readStatus(part("status")); err != nil {
		return r, err
	}
	r.addr = part("address")
	if method, target := part("method"), part("target"); method != "" && target != "" {
		r.set(method, target)
	} else if asked, ok := p.find(object, "request").(string); ok {
		r.setLine(asked)
	} else if p.json["request"] == "" && (p.json["method"] == "" || p.json["target"] == "") {
		return r, errRequestField
	} else {
		return r, errRequest
	}
	r.values = make([]string, len(p.wanted))
	for i, name := range p.wanted {
		r.values[i] = present(part(name))
	}
	return r, nil
}

// fieldsOf returns the fields of a JSON object, but for numbers that are too large.
func fieldsOf(line string) (object map[string]any, ok bool) {
	err := json.Unmarshal([]byte(line), &object)
	_, large := errors.AsType[*json.UnmarshalTypeError](err)
	return object, object != nil && (err == nil || large)
}

// find returns the value at a path such as "request.headers.Host"; nil if there is
// none. A field whose own name has dots comes first.
func find(object map[string]any, path string) any {
	if path == "" {
		return nil
	}
	if v, ok := object[path]; ok {
		return v
	}
	for i := range len(path) {
		if path[i] != '.' {
			continue
		}
		if inner, ok := object[path[:i]].(map[string]any); ok {
			if v := find(inner, path[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

// text returns a value as text. A list is a header with several lines.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case []any:
		lines := make([]string, 0, len(v))
		for _, line := range v {
			lines = append(lines, text(line))
		}
		return strings.Join(lines, "\n")
	}
	return ""
}

// readTime reads the forms of a time that servers write. Numbers count seconds,
// milliseconds, microseconds or nanoseconds since 1970, by their size.
func (p *plan) readTime(s string) (time.Time, error) {
	if strings.IndexByte(s, ':') < 0 { // a number
		n, err := strconv.ParseFloat(s, 64)
		switch {
		case err != nil || !(n >= 0 && n < 1e20): // NaN is neither
			return time.Time{}, errTime
		case n < 1e11:
			n *= 1e6
		case n < 1e14:
			n *= 1e3
		case n >= 1e17:
			n /= 1e3
		}
		return time.UnixMicro(int64(math.Round(n))), nil
	}
	for _, layout := range []string{time.RFC3339, textTime, "2006-01-02T15:04:05Z0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	for _, layout := range []string{"2006-01-02T15:04:05", time.DateTime, "2006/01/02 15:04:05"} {
		if t, err := time.ParseInLocation(layout, s, p.zone); err == nil {
			p.zoneless = true
			return t, nil
		}
	}
	return time.Time{}, errTime
}
