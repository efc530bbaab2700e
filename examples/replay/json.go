package main

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// parseJSON reads a line that is a JSON object.
func (p *plan) parseJSON(line string) (r request, err error) {
	var room [16]string
	got, ok := p.picker.pick(line, room[:0])
	if !ok {
		return r, errFormat
	}
	at, address, method, target, asked, status := got[0], got[1], value(got[2]), value(got[3]), got[4], got[5]
	if r.at, err = p.readTime(at); err != nil {
		return r, err
	}
	if r.status, err = readStatus(value(status)); err != nil {
		return r, err
	}
	r.addr = value(address)
	switch {
	case method != "" && target != "":
		r.set(method, target)
	case strings.HasPrefix(asked, `"`):
		r.setLine(unquote(asked))
	default:
		return r, errRequest
	}
	if len(p.wanted) > 0 {
		r.values = make([]string, len(p.wanted))
		for i := range r.values {
			r.values[i] = present(value(got[len(partNames)+i]))
		}
	}
	return r, nil
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
	if strings.HasPrefix(s, `"`) {
		s = unquote(s)
	}
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
			p.zoneless.Store(true)
			return t, nil
		}
	}
	return time.Time{}, errTime
}
