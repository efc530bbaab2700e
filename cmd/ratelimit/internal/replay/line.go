package replay

import (
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// A request is one line of a log.
type request struct {
	at     time.Time
	addr   string   // of the connection that the request came by
	url    *url.URL // nil where no handler would see the request
	method string
	target string
	status int      // 0 where there was no response
	values []string // of the wanted fields; "" where the line has none
}

var (
	errFormat  = errors.New("neither the common nor the combined format, nor JSON")
	errTime    = errors.New("no time")
	errRange   = errors.New("time out of range")
	errRequest = errors.New("no request")
	// Of JSON whose fields have other names:
	errTimeField    = errors.New("no time; say which field has it: -field time=FIELD")
	errRequestField = errors.New("no request; say which fields have it: -field method=FIELD -field target=FIELD, or -field request=FIELD")
	errStatus       = errors.New("no status")
	errAddress      = errors.New("the client is no IP address; -field ip=host counts by what it is")
	errLong         = errors.New("line too long")
)

// parse reads a line.
func (p *plan) parse(line string) (r request, err error) {
	if strings.HasPrefix(line, "{") {
		r, err = p.parseJSON(line)
	} else {
		r, err = p.parseText(line)
	}
	if err != nil {
		return r, err
	}
	if year := r.at.Year(); year < 1970 || year > 2100 { // as far as the algorithms are exact
		return r, errRange
	}
	if r.addr == "unix:" {
		r.addr = "@" // as net/http calls it
	} else if !p.named && !isAddr(r.addr) && (line[0] != '{' || p.json["address"] != "") {
		return r, errAddress
	}
	return r, nil
}

const textTime = "02/Jan/2006:15:04:05 -0700"

// textFields are the fields of the text formats, beside time, request and status.
var textFields = []string{"host", "user", "referer", "user_agent", "forwarded_for"}

// parseText reads a line in the common or the combined format, or in one of their
// extensions:
//
//	[virtual host ]address ident user [time] "request" status bytes[ "referer" "user agent"[ "X-Forwarded-For"]]
//
// Clients choose the user, the request and the fields behind the bytes. Servers escape
// the quotes in these fields, so the first `] "` always ends the time.
func (p *plan) parseText(line string) (r request, err error) {
	end := strings.Index(line, `] "`)
	begin := end - len("["+textTime)
	if begin < 1 || line[begin] != '[' {
		return r, errFormat
	}
	if r.at, err = time.Parse(textTime, line[begin+1:end]); err != nil {
		return r, errTime
	}
	var fields [5]string
	host, rest, _ := strings.Cut(line[:begin], " ")
	if next, after, ok := strings.Cut(rest, " "); ok && !isAddr(host) && strings.Contains(host, ":") && isAddr(next) {
		host, rest = next, after // the first was a virtual host
	}
	_, user, _ := strings.Cut(rest, " ")
	r.addr = host

	asked, rest, ok := cutQuoted(line[end+2:])
	if !ok {
		return r, errRequest
	}
	status, rest, _ := strings.Cut(strings.TrimPrefix(rest, " "), " ")
	if r.status, err = readStatus(status); err != nil || status == "" {
		return r, errStatus
	}
	r.setLine(asked)
	if len(p.wanted) == 0 {
		return r, nil
	}
	fields[0], fields[1] = host, unescape(strings.TrimSuffix(user, " "))
	_, rest, _ = strings.Cut(rest, " ") // the bytes
	for i := 2; i < len(fields) && ok; i++ {
		fields[i], rest, ok = cutQuoted(rest)
		rest = strings.TrimPrefix(rest, " ")
	}
	r.values = make([]string, len(p.wanted))
	for i, at := range p.text {
		if at >= 0 {
			r.values[i] = present(fields[at])
		}
	}
	return r, nil
}

// present returns the value of a field, or "" if the server has marked it as missing or
// as removed.
func present(value string) string {
	switch value {
	case "-", "REDACTED", "[REDACTED]":
		return ""
	}
	return value
}

// isAddr reports whether s is an IP address, with or without a port.
func isAddr(s string) bool {
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return true
	}
	_, err := netip.ParseAddrPort(s)
	return err == nil
}

// cutQuoted cuts off a text in quotes, and undoes the server's escapes in it.
func cutQuoted(s string) (text, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", s, false
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return unescape(s[1:i]), s[i+1:], true
		}
	}
	return "", s, false
}

// unescape reverses the escapes of nginx and Apache.
func unescape(s string) string {
	i := strings.IndexByte(s, '\\')
	if i < 0 {
		return s
	}
	b := append(make([]byte, 0, len(s)), s[:i]...)
	for ; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b = append(b, s[i])
			continue
		}
		i++
		switch c := s[i]; c {
		case 'x':
			if n, err := strconv.ParseUint(s[min(i+1, len(s)):min(i+3, len(s))], 16, 8); err == nil && i+2 < len(s) {
				b = append(b, byte(n))
				i += 2
				continue
			}
			b = append(b, '\\', 'x')
		case 'n':
			b = append(b, '\n')
		case 't':
			b = append(b, '\t')
		case 'r':
			b = append(b, '\r')
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

func readStatus(s string) (int, error) {
	if s == "-" || s == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 999 {
		return 0, errStatus
	}
	return n, nil
}

// setLine sets the request by its first line. Whatever net/http would answer by
// itself has no url.
func (r *request) setLine(line string) {
	method, rest, _ := strings.Cut(line, " ")
	target, proto, ok := strings.Cut(rest, " ")
	if !ok {
		return
	}
	if _, _, known := http.ParseHTTPVersion(proto); known || proto == "HTTP/2" || proto == "HTTP/3" {
		r.set(method, target)
	}
}

func (r *request) set(method, target string) {
	if !isToken(method) || method == "PRI" { // the preface of HTTP/2
		return
	}
	if u, err := url.ParseRequestURI(target); err == nil {
		r.method, r.target, r.url = method, target, u
	}
}

func isToken(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`()<>@,;:\"/[]?={}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
