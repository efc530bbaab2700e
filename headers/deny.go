package headers

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/hidden"
)

// The problem types that draft-ietf-httpapi-ratelimit-headers-11 registers, for
// the member "type" of a problem document (RFC 9457). [Deny] sends them.
const (
	QuotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	AbnormalUsageDetected    = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// Status returns the status code for a decision: 200 for an admitted request, 429 for a
// denied one, and 503 for one that is denied only by rules that could not be counted (fail
// closed).
func Status(d algorithms.Decision) int {
	if d.Allowed {
		return http.StatusOK
	}
	status := http.StatusTooManyRequests
	for i := range d.Results {
		switch r := &d.Results[i]; {
		case !r.Denies():
		case counted(r):
			return http.StatusTooManyRequests
		default:
			status = http.StatusServiceUnavailable
		}
	}
	return status
}

// counted reports whether the check was decided. Results of hidden rules have an Err even
// if they were; see package hidden.
func counted(r *algorithms.Result) bool { return r.Err == nil || errors.Is(r.Err, hidden.Err) }

// Deny is the default response to a denied request: the status of [Status], Retry-After,
// and a problem document (RFC 9457). The document's type is [TemporaryReducedCapacity]
// with a 503. With a 429 it is [AbnormalUsageDetected] if a ban denies the request, and
// [QuotaExceeded] otherwise. The document's violated-policies are the names of the rules
// that denied the request; hidden rules are left out. If a calendar window denied the
// request, resets_at is when the next window begins, in UTC. A client whose Accept
// excludes JSON gets two lines of text instead. Cache-Control is no-store.
func Deny(w http.ResponseWriter, r *http.Request, d algorithms.Decision) {
	h := w.Header()
	p := problemOf(d, setRetryAfter(h, d))
	contentType := "text/plain; charset=utf-8"
	json := acceptsJSON(r.Header["Accept"])
	if json {
		contentType = "application/problem+json"
	}
	delete(h, "Content-Length") // it is that of another body
	values := [...]string{"no-store", contentType, "nosniff", "Accept"}
	h["Cache-Control"] = values[0:1:1]
	h["Content-Type"] = values[1:2:2]
	h["X-Content-Type-Options"] = values[2:3:3]
	if h["Vary"] == nil {
		h["Vary"] = values[3:4:4]
	} else {
		varyByAccept(h)
	}
	w.WriteHeader(p.status)
	if r.Method == http.MethodHead {
		return
	}
	body := bodies.Get().(*[]byte)
	if json {
		*body = p.appendJSON((*body)[:0], d)
	} else {
		*body = p.appendText((*body)[:0])
	}
	_, _ = w.Write(*body) // an error means that the client has left
	bodies.Put(body)
}

// bodies are buffers for responses, reused during floods.
var bodies = sync.Pool{New: func() any { return new(make([]byte, 0, 384)) }}

// A problem is a problem document without violated-policies. Its strings need no escaping
// in JSON. It does not tell the client why a rule could not be counted.
type problem struct {
	kind, title, detail string
	status              int
	retryAfter          int64 // seconds, or absent
}

func problemOf(d algorithms.Decision, retryAfter int64) problem {
	p := problem{QuotaExceeded, "Quota Exceeded", "Too many requests.", Status(d), retryAfter}
	if p.status == http.StatusServiceUnavailable {
		p.kind, p.title, p.detail = TemporaryReducedCapacity, "Temporary Reduced Capacity", "The server cannot take the request at the moment."
	}
	for i := range d.Results {
		if r := &d.Results[i]; r.BannedFor > 0 && r.Denies() && p.status == http.StatusTooManyRequests {
			p.kind, p.title, p.detail = AbnormalUsageDetected, "Abnormal Usage Detected", "Too many requests were denied."
		}
	}
	if d.RetryAfter() == algorithms.Never {
		p.detail = "The request costs more than its limit can hold. Retrying will not help."
	}
	return p
}

// resetsAt is when the last of the calendar windows that deny has room again.
func resetsAt(d algorithms.Decision) (last time.Time, ok bool) {
	for i := range d.Results {
		r := &d.Results[i]
		if r.Err == nil && r.Denies() && r.Check.Limit.Calendar != "" && r.RetryAfter != algorithms.Never {
			if at := time.Unix(unixCeil(r.At, r.RetryAfter), 0); at.After(last) {
				last, ok = at, true
			}
		}
	}
	return last, ok
}

func (p *problem) appendText(b []byte) []byte {
	b = append(b, p.title...)
	b = append(b, '\n')
	b = p.appendDetail(b)
	return append(b, '\n')
}

func (p *problem) appendDetail(b []byte) []byte {
	b = append(b, p.detail...)
	if p.retryAfter != absent {
		b = append(b, " Retry in "...)
		b = strconv.AppendInt(b, p.retryAfter, 10)
		b = append(b, " s."...)
	}
	return b
}

func (p *problem) appendJSON(b []byte, d algorithms.Decision) []byte {
	b = append(b, `{"type":"`...)
	b = append(b, p.kind...)
	b = append(b, `","title":"`...)
	b = append(b, p.title...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(p.status), 10)
	b = append(b, `,"detail":"`...)
	b = p.appendDetail(b)
	if at, ok := resetsAt(d); ok {
		b = append(b, `","resets_at":"`...)
		b = at.UTC().AppendFormat(b, time.RFC3339)
	}
	b = append(b, `","violated-policies":[`...)
	var room [4]string
	violated := room[:0]
	for i := range d.Results {
		r := &d.Results[i]
		if !r.Denies() || r.Check.Rule == "" || r.Err != nil && p.status == http.StatusTooManyRequests {
			continue
		}
		name := policyName(&d, i) // as the fields spell it
		if slices.Contains(violated, name) {
			continue
		}
		if len(violated) > 0 {
			b = append(b, ',')
		}
		violated = append(violated, name)
		b = appendJSONString(b, name)
	}
	return append(b, "]}\n"...)
}

// appendJSONString appends printable ASCII as a JSON string. As encoding/json
// does, it escapes what could end a script in HTML.
func appendJSONString(b []byte, text string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for i := range len(text) {
		switch c := text[i]; c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '<', '>', '&':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}

// varyByAccept adds Accept to Vary.
func varyByAccept(h http.Header) {
	for _, line := range h["Vary"] {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.TrimSpace(name); name == "*" || strings.EqualFold(name, "Accept") {
				return
			}
		}
	}
	h["Vary"] = append(h["Vary"], "Accept")
}

// jsonRanges are the media ranges of Accept that include a problem document,
// the most specific last.
var jsonRanges = [...]string{"*/*", "application/*", "application/json", "application/problem+json"}

// acceptsJSON reports whether a client with these Accept lines takes a problem
// document. By RFC 9110, section 12.5.1, the most specific range decides, and a weight of 0
// means "not acceptable". Without Accept, everything is accepted.
func acceptsJSON(lines []string) bool {
	said, accepted, best := false, false, -1
	for _, line := range lines {
		for member := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(member, ";")
			if media = strings.TrimSpace(media); media == "" {
				continue
			}
			said = true
			for rank := max(best, 0); rank < len(jsonRanges); rank++ {
				if !strings.EqualFold(media, jsonRanges[rank]) {
					continue
				}
				// The same range may come again with other parameters.
				accepted = weight(params) > 0 || rank == best && accepted
				best = rank
			}
		}
	}
	return accepted || !said
}

// weight returns the parameter q; 1 if there is none, or none that parses.
func weight(params string) float64 {
	for param := range strings.SplitSeq(params, ";") {
		name, value, _ := strings.Cut(param, "=")
		if !strings.EqualFold(strings.TrimSpace(name), "q") {
			continue
		}
		if q, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && q >= 0 {
			return q
		}
	}
	return 1
}
