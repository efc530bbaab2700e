// Package admin has a page for operators of a Middleware: the rules in force, bans, and the
// counts of a client. Read [Handler] first. Only programs that import admin link it.
//
//	private.Handle("/ratelimit/", admin.Handler(limit)) // no authentication: not for clients
package admin

// The page is one resource. Form fields, not the path, say what to do, so the page works
// wherever it is mounted. [http.CrossOriginProtection] refuses POSTs of other sites, and
// the content security policy allows neither scripts nor frames. Host names other than
// localhost and those given to Handler are refused, because a name can be made to resolve
// to the server (DNS rebinding).

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// Handler returns a handler for operators of a Middleware: the rules in force and their
// version, the keys that were denied most, the bans that this process knows of, and, for
// one client, its counts, Reset, Ban and the end of a ban. It answers browsers with a page
// and all others with JSON. After a POST, browsers are redirected to a look-up, so that a
// reload repeats nothing.
//
//	mux.Handle("/ratelimit/", admin.Handler(limit))
//
//	GET                                       the rules, the keys denied most and the bans
//	GET   ?rule=per-ip&value=2001:db8::1      the client's counts
//	GET   ?value=2001:db8::1                  the client's counts by all rules that take the value
//	POST  action=reset&rule=per-ip&value=…    forgets what the client has used
//	POST  action=used&n=4000&rule=…&value=…   sets the units used of one limit; see below
//	POST  action=ban&for=15m&rule=…&value=…   bans the client; action=unban ends the ban
//	POST  action=raise&limit=9/1m&for=7d&…    sets the client's limits for so long; see below
//	POST  action=peek&rule=…&value=…          like GET, with nothing secret in the URL
//
// A client is named as for [ratelimit.Middleware.Checks], with a value for each part of
// the rule's Key, or by the id of an entry in one of the lists. The path does not matter.
// A ban that would deny nothing is refused: the rule has no Ban or is in shadow for the
// client, or the client is unlimited. action=raise adds an override to the document in Redis, if a
// rulefile.Loader with a Fleet watches it for this Middleware; otherwise copy the override
// that the page shows into the rules.
//
// Use action=used to restore a count that was lost, or to give a client more units. If a
// rule has several limits for the client, add the limit, tier, override or key of the count
// that is meant, as a look-up shows them. Like Reset, action=used ends a ban of that key.
//
// Config.Logger logs all changes. Keys are hashed as in the log, unless Config.LogKeys is
// set.
//
// Never serve it to the public: it has no authentication, and shows and lifts all
// limits. Put it on a listener of its own, or behind authentication. It refuses what
// pages of other sites make a browser send, except for links. It also refuses requests whose
// Host, without the port, is neither an address, localhost nor one of hosts: any site can
// make a name of its own resolve to this server.
func Handler(limit *ratelimit.Middleware, hosts ...string) http.Handler {
	h := handler{limit: limit, limiter: limit.Limiter()}
	names := make([]string, len(hosts))
	for i, host := range hosts {
		names[i] = nameOf(host)
	}
	protection := http.NewCrossOriginProtection()
	denied := func(w http.ResponseWriter, r *http.Request) {
		refuse(w, r, http.StatusForbidden, errors.New("refused: sent by a page of another site, or through a proxy that changed the Host"))
	}
	protection.SetDenyHandler(http.HandlerFunc(denied))
	protected := protection.Handler(http.HandlerFunc(h.serve))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range fields {
			w.Header().Set(name, value)
		}
		if host := nameOf(r.Host); !isOurs(host) && !slices.Contains(names, host) {
			refuse(w, r, http.StatusMisdirectedRequest,
				fmt.Errorf("refused: the host %.253q is neither an address nor localhost; if it is a name of yours, write admin.Handler(limit, %.253[1]q)", host))
			return
		}
		if isEmbedded(r) {
			denied(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		protected.ServeHTTP(w, r.WithContext(ctx))
	})
}

// patience bounds all that a request asks the limiter.
const patience = 10 * time.Second

// fields keep the page out of caches and frames, and scripts out of the page.
var fields = map[string]string{
	"Cache-Control":                "no-store",
	"Content-Security-Policy":      "default-src 'none'; style-src '" + styleHash + "'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
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

// isEmbedded reports whether a page of another site made a browser send a request without
// the operator following a link, as for an image or a frame. The page could not read the
// answer, but each look-up is work for the store.
func isEmbedded(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && r.Header.Get("Sec-Fetch-Dest") != "document"
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) {
	o, err := orderOf(w, r)
	if err == nil && o.look != "" {
		o, err = h.recall(o.look)
	}
	var clients []*clientView
	switch {
	case err != nil:
	case o.rule != "":
		var client *clientView
		if client, err = h.carryOut(r, o); client != nil {
			clients = append(clients, client)
		}
	case o.Values != nil:
		clients, err = h.lookEverywhere(r.Context(), o)
	}
	status := http.StatusOK
	if e, ok := errors.AsType[*mistake](err); ok {
		status = e.status
	}
	switch {
	case wantsPage(r) && r.Method == http.MethodPost && err == nil: // so that a reload repeats nothing
		w.Header().Set("Location", "?look="+h.remember(o))
		w.WriteHeader(http.StatusSeeOther)
	case wantsPage(r):
		writePage(w, status, h.overview(r.Context()), clients, err)
	case err != nil:
		writeError(w, status, err)
	case clients != nil && o.rule == "":
		writeJSON(w, status, map[string]any{"clients": clients})
	case clients != nil:
		writeJSON(w, status, clients[0])
	default:
		writeJSON(w, status, h.overview(r.Context()))
	}
}

// maxLooks is how many look-ups can be reloaded.
const maxLooks = 64

// remember keeps an order as a look-up, and returns its token. A URL with the order's values
// would bring secrets into logs.
func (h *handler) remember(o order) (token string) {
	if text := done[o.action]; text != "" {
		o.done = text + time.Now().UTC().Format(" at 15:04:05 UTC.")
	}
	o.action, o.look = "peek", rand.Text()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looks = append(h.looks[max(0, len(h.looks)-maxLooks+1):], o)
	return o.look
}

// recall returns the look-up of a token.
func (h *handler) recall(token string) (order, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.looks, func(o order) bool { return o.look == token }); i >= 0 {
		return h.looks[i], nil
	}
	return order{}, &mistake{http.StatusNotFound, errors.New("this process does not have this look-up, or no longer: look the client up again")}
}

// refuse responds to a request that may be of another site, which is shown nothing.
func refuse(w http.ResponseWriter, r *http.Request, status int, err error) {
	if wantsPage(r) {
		writePage(w, status, nil, nil, err)
		return
	}
	writeError(w, status, err)
}

// wantsPage reports whether a request is a browser's.
func wantsPage(r *http.Request) bool {
	return strings.Contains(strings.Join(r.Header["Accept"], ","), "text/html")
}

func writeError(w http.ResponseWriter, status int, err error) {
	writeJSON(w, status, map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	text, err := json.MarshalIndent(body, "", "  ")
	if err != nil { // not reached: texts, numbers and times of years with four digits
		text = []byte(`{"error": "cannot be written as JSON"}`)
	}
	write(w, status, "application/json", append(text, '\n'))
}
