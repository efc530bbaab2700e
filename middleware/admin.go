package middleware

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Admin returns a handler for operators: the rules in force and their version, the
// keys that were denied most, the bans that this process knows of, and, for one client,
// its counts, Reset, Ban and the end of a ban. It answers browsers with a page and all
// others with JSON.
//
//	mux.Handle("/ratelimit/", limit.Admin())
//
//	GET                                       the rules, the keys denied most and the bans
//	GET   ?rule=per-ip&value=2001:db8::1      the client's counts
//	GET   ?value=2001:db8::1                  its counts under all rules that count by such a value
//	POST  action=reset&rule=per-ip&value=…    forgets what the client has used
//	POST  action=ban&for=15m&rule=…&value=…   denies it for so long; action=unban ends that
//	POST  action=peek&rule=…&value=…          as GET, with nothing secret in the URL
//
// A client is named as for [Middleware.Checks], with a value for each part of the
// rule's Key, or by the id of an entry in one of the lists. The path
// does not matter. What is changed is logged. Keys are hashed as in the log, unless
// Config.LogKeys.
//
// Never serve it to the public: it has no authentication, and shows and lifts all
// limits. Put it on a listener of its own, or behind authentication. It refuses what
// pages of other sites make a browser send. It also refuses requests whose Host is
// neither an address, localhost nor one of hosts, whatever their port: any site can
// make a name of its own resolve to this server.
func (m *Middleware) Admin(hosts ...string) http.Handler {
	m.mustBeMade()
	names := make([]string, len(hosts))
	for i, host := range hosts {
		names[i] = nameOf(host)
	}
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.answerOperator(w, r, nil, false, &operatorError{http.StatusForbidden,
			errors.New("refused: sent by a page of another site, or through a proxy that changed the Host")})
	}))
	protected := protection.Handler(http.HandlerFunc(m.serveOperator))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range adminHeaders {
			w.Header().Set(name, value)
		}
		if host := nameOf(r.Host); !isOurs(host) && !slices.Contains(names, host) {
			m.answerOperator(w, r, nil, false, &operatorError{http.StatusMisdirectedRequest,
				fmt.Errorf("refused: the host %.253q is neither an address nor localhost; if it is a name of yours, write Admin(%.253[1]q)", host)})
			return
		}
		protected.ServeHTTP(w, r)
	})
}

// adminHeaders keep the page out of caches and frames, and scripts out of the page.
var adminHeaders = map[string]string{
	"Cache-Control":                "no-store",
	"Content-Security-Policy":      "default-src 'none'; style-src '" + adminStyleHash + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
	"Cross-Origin-Resource-Policy": "same-origin",
	"Referrer-Policy":              "same-origin", // with no-referrer, browsers send "Origin: null" even to their own site
	"Vary":                         "Accept",
	"X-Content-Type-Options":       "nosniff",
	"X-Frame-Options":              "DENY",
}

// nameOf returns a host without its port.
func nameOf(host string) string {
	return strings.ToLower(strings.TrimSuffix((&url.URL{Host: host}).Hostname(), "."))
}

// isOurs reports whether a host is one that no other site can have. Whoever owns a
// name can make it resolve to this server, and so make a browser believe that this
// handler is a part of their site.
func isOurs(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil || host == "localhost" || strings.HasSuffix(host, ".localhost")
}

// An operatorError is what an operator is told, and its status.
type operatorError struct {
	status int
	err    error
}

func (e *operatorError) Error() string { return e.err.Error() }
func (e *operatorError) Unwrap() error { return e.err }

func (m *Middleware) serveOperator(w http.ResponseWriter, r *http.Request) {
	o, err := orderOf(w, r)
	var clients []*clientView
	switch {
	case err != nil:
	case o.rule != "":
		var client *clientView
		if client, err = m.carryOut(r, o); client != nil {
			clients = append(clients, client)
		}
	case o.values != nil:
		clients, err = m.lookEverywhere(r.Context(), o)
	}
	m.answerOperator(w, r, clients, o.rule == "", err)
}

// answerOperator responds with clients, or else with the overview. They are a list if
// several were asked for.
func (m *Middleware) answerOperator(w http.ResponseWriter, r *http.Request, clients []*clientView, list bool, err error) {
	status := http.StatusOK
	if e, ok := errors.AsType[*operatorError](err); ok {
		status = e.status
	}
	if strings.Contains(strings.Join(r.Header["Accept"], ","), "text/html") {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.WriteHeader(status)
		p := new(page)
		if status == http.StatusForbidden || status == http.StatusMisdirectedRequest {
			p.document(nil, nil, err) // shows nothing to who may be another site
		} else {
			p.document(m.overview(r.Context()), clients, err)
		}
		_, _ = w.Write(p.html) // nobody to tell
		return
	}
	var body any
	switch {
	case err != nil:
		body = struct {
			Error string `json:"error"`
		}{err.Error()}
	case clients != nil && list:
		body = clientViews{clients}
	case clients != nil:
		body = clients[0]
	default:
		body = m.overview(r.Context())
	}
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil { // not reached: texts and numbers
		text = []byte(`{"error": "cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // nobody to tell
}
