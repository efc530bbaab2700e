package headers

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
)

// The problem types that draft-ietf-httpapi-ratelimit-headers-11 registers, for
// the member type of a problem document (RFC 9457). [Deny] sends the first two;
// the third is for a handler of your own that has noticed abuse.
const (
	QuotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
	AbnormalUsageDetected    = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected"
)

// Status is the status code that a decision asks for: 200 for an admitted
// request, 429 for one over a limit, and 503 for one that only rules deny which
// nobody could count (fail closed).
func Status(d algorithms.Decision) int {
	if d.Allowed {
		return http.StatusOK
	}
	for i := range d.Results {
		if r := &d.Results[i]; !r.Allowed && !r.Check.Shadow && r.Err == nil {
			return http.StatusTooManyRequests
		}
	}
	return http.StatusServiceUnavailable
}

// Deny is the default response to a request that was denied: the status of
// [Status], Retry-After, and a problem document (RFC 9457) of the type
// [QuotaExceeded] or, with a 503, [TemporaryReducedCapacity]. Its
// violated-policies are the names of the rules that denied the request. A client
// whose Accept takes no JSON gets two lines of text. A cache must not keep it.
func Deny(w http.ResponseWriter, r *http.Request, d algorithms.Decision) {
	h := w.Header()
	p := problemOf(d, setRetryAfter(h, d))
	body, contentType := p.text(), "text/plain; charset=utf-8"
	if acceptsJSON(r.Header["Accept"]) {
		body, contentType = p.json(), "application/problem+json"
	}
	h.Del("Content-Length") // whatever set it had another body in mind
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	varyByAccept(h)
	w.WriteHeader(p.Status)
	if r.Method != http.MethodHead {
		_, _ = io.WriteString(w, body) // nobody to tell
	}
}

// A problem is a problem document. What it says is about the request and the
// names of rules; why a rule could not be counted is not the client's business.
type problem struct {
	Type     string   `json:"type"`
	Title    string   `json:"title"`
	Status   int      `json:"status"`
	Detail   string   `json:"detail"`
	Violated []string `json:"violated-policies"`
}

// problemOf describes a denial whose Retry-After is set.
func problemOf(d algorithms.Decision, retryAfter int64) problem {
	p := problem{
		Type:     QuotaExceeded,
		Title:    "Quota Exceeded",
		Status:   Status(d),
		Detail:   "Too many requests.",
		Violated: []string{},
	}
	if p.Status == http.StatusServiceUnavailable {
		p.Type, p.Title = TemporaryReducedCapacity, "Temporary Reduced Capacity"
		p.Detail = "Requests cannot be counted at the moment."
	}
	if retryAfter != absent {
		p.Detail += " Retry in " + strconv.FormatInt(retryAfter, 10) + " s."
	} else if d.RetryAfter() == algorithms.Never {
		p.Detail = "The request costs more than its limit can hold. Retrying will not help."
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Allowed || r.Check.Shadow || r.Err != nil && p.Status == http.StatusTooManyRequests {
			continue
		}
		if name := itemName(r.Check.Rule); !slices.Contains(p.Violated, name) { // as the fields spell it
			p.Violated = append(p.Violated, name)
		}
	}
	return p
}

func (p *problem) text() string { return p.Title + "\n" + p.Detail + "\n" }

func (p *problem) json() string {
	body, _ := json.Marshal(p) // strings and a number: nothing can fail
	return string(body) + "\n"
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
	h.Add("Vary", "Accept")
}
