package replay

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A plan says where in the lines of a log the fields are.
type plan struct {
	zone     *time.Location // of times that name none
	zoneless bool           // there were such times

	named bool // clients are not told apart by their addresses, but by what they are called

	wanted []string            // fields that the rules' keys need: names of keys, and "header:NAME"
	text   []int               // of each of them the index in textFields; -1 where there is none
	json   map[string]string   // the path of each field that a line has had
	sought map[string][]string // the paths where each of the others may be
}

// parts are the fields that every request has, with their names in the JSON of common
// servers: nginx and Apache as in many guides, Caddy, Traefik, Envoy, Google
// Cloud, the Elastic Common Schema.
var parts = map[string][]string{
	"time": {"StartUTC", "time", "timestamp", "@timestamp", "ts", "time_iso8601", "time_local", "msec", "start_time", "datetime", "date"},
	"address": {
		"remote_addr", "remote_ip", "request.remote_ip", "ClientHost", "remote_address", "downstream_remote_address", "client_ip", "clientip", "client_addr",
		"httpRequest.remoteIp", "client.ip", "source.ip", "remote", "ip", "ClientAddr",
	},
	"method":  {"method", "request_method", "RequestMethod", "request.method", "http_method", "verb", "httpRequest.requestMethod", "http.request.method"},
	"target":  {"uri", "request_uri", "RequestPath", "request.uri", "path", "url", "request.url", "httpRequest.requestUrl", "url.original", "url.path"},
	"request": {"request", "request_line"},
	"status":  {"status", "status_code", "DownstreamStatus", "statusCode", "response_code", "code", "httpRequest.status", "http.response.status_code", "response.status"},
}

// names returns the names of a wanted field in JSON.
func names(wanted string) []string {
	header, isHeader := strings.CutPrefix(wanted, "header:")
	switch {
	case wanted == "user":
		return []string{"user", "remote_user", "user_id", "userId", "username", "ClientUsername"}
	case !isHeader:
		return []string{wanted}
	}
	lower := strings.ToLower(header)
	snake := strings.ReplaceAll(lower, "-", "_")
	return []string{
		"request.headers." + header, "headers." + header, "request.headers." + lower, "headers." + lower,
		"http_" + snake, "request_" + header, header, lower, snake, strings.TrimPrefix(snake, "x_"),
	}
}

// inText returns the index in textFields of a wanted field; -1 if there is none.
func inText(wanted string) int {
	switch wanted {
	case "header:Referer":
		wanted = "referer"
	case "header:User-Agent":
		wanted = "user_agent"
	case "header:X-Forwarded-For":
		wanted = "forwarded_for"
	}
	return slices.Index(textFields, wanted)
}

// newPlan makes a plan for the wanted fields from the first lines of a log. given
// are the fields' names by -field. A field that none of these lines has is taken from
// the first line that has it.
func newPlan(lines []string, wanted []string, given map[string]string, zone *time.Location) *plan {
	p := &plan{zone: zone, wanted: wanted, json: make(map[string]string), sought: make(map[string][]string)}
	for _, name := range wanted {
		from := name
		if field, ok := given[name]; ok {
			from = field
		}
		p.text = append(p.text, inText(from))
	}
	var objects []map[string]any
	for _, line := range lines {
		if object, ok := fieldsOf(line); ok {
			objects = append(objects, object)
		}
	}
	look := func(name string, candidates []string) {
		if field, ok := given[name]; ok {
			candidates = []string{field}
		}
		for _, path := range candidates {
			if slices.ContainsFunc(objects, func(o map[string]any) bool { return isText(find(o, path)) }) {
				p.json[name] = path
				return
			}
		}
		p.sought[name] = candidates
	}
	for name, candidates := range parts {
		look(name, candidates)
	}
	for _, name := range wanted {
		look(name, names(name))
	}
	p.named = given["ip"] != ""
	return p
}

// find returns the value of a field in a JSON object; nil if there is none.
func (p *plan) find(object map[string]any, name string) any {
	for _, path := range p.sought[name] {
		if isText(find(object, path)) {
			p.json[name] = path
			delete(p.sought, name)
			break
		}
	}
	return find(object, p.json[name])
}

// isText reports whether a value of a JSON object is one, and no object itself.
func isText(v any) bool { return present(text(v)) != "" }

// found adds the fields that a request has.
func (p *plan) found(r *request, has map[string]bool) {
	if r.addr != "" {
		has["address"] = true
	}
	for i, value := range r.values {
		if value != "" {
			has[p.wanted[i]] = true
		}
	}
}

// setHeaders sets the wanted fields that are headers in a request.
func (p *plan) setHeaders(h http.Header, r *request) {
	for i, name := range p.wanted {
		if header, ok := strings.CutPrefix(name, "header:"); ok && r.values[i] != "" {
			h[header] = strings.Split(r.values[i], "\n")
		}
	}
}

// String says which fields of JSON are read, for the report.
func (p *plan) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(p.json)) {
		all = append(all, name+"="+p.json[name])
	}
	if len(all) == 0 {
		return ""
	}
	return "; fields: " + strings.Join(all, " ")
}
