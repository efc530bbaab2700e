package lab

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
	"github.com/seed75154129/ratelimit/internal/step"
)

//go:embed web
var web embed.FS

// policy lets the pages load only their own files, because they show texts from URLs
// and access logs, which strangers can write.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// index is the first page, with a box for each algorithm.
var index = func() []byte {
	type box struct {
		Name         algorithms.Algorithm
		Chosen, Held bool
	}
	var boxes []box
	for _, a := range all {
		boxes = append(boxes, box{a, slices.Contains(chosen, a), step.Lookup(uint16(a)).Held})
	}
	var page bytes.Buffer
	if err := template.Must(template.ParseFS(web, "web/index.html")).Execute(&page, boxes); err != nil {
		panic(err) // the page is embedded
	}
	return page.Bytes()
}()

// handler serves the pages, and the simulations and the replay that they show.
func handler(result *replayed.Result) http.Handler {
	files, err := fs.Sub(web, "web")
	if err != nil {
		panic(err) // the folder is embedded
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files))
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(index) // nobody to tell
	})
	mux.HandleFunc("GET /replay", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "replay.html")
	})
	mux.HandleFunc("GET /overload", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, files, "overload.html")
	})
	mux.Handle("GET /simulate", answers(parseScenario, scenario.simulate))
	mux.Handle("GET /overload.json", answers(parseOverload, overloadScenario.simulate))
	var replay any = mistake{Error: "no replay"}
	if result != nil {
		replay = summarize(result)
	}
	mux.HandleFunc("GET /replay.json", func(w http.ResponseWriter, _ *http.Request) {
		status := http.StatusOK
		if result == nil {
			status = http.StatusNotFound
		}
		answer(w, status, replay)
	})
	return guarded(mux)
}

// answers says what a scenario, which the query says, comes to.
func answers[S, R any](parse func(url.Values) (S, error), simulate func(S) (R, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := parse(r.URL.Query())
		if err == nil {
			var result R
			if result, err = simulate(s); err == nil {
				answer(w, http.StatusOK, result)
				return
			}
		}
		m := mistake{Error: err.Error()}
		if wrong, ok := errors.AsType[*fieldError](err); ok {
			m.Field = wrong.field
		}
		answer(w, http.StatusBadRequest, m)
	})
}

// A mistake is the answer to a request that cannot be simulated.
type mistake struct {
	Error string `json:"error"`
	Field string `json:"field,omitempty"` // of the query, where it is one's
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // nobody to tell
}

// guarded refuses requests to any host but an address or localhost, so that a web page
// whose name points here (DNS rebinding) cannot read the lab. It also refuses requests
// that other sites embed, since a simulation takes time. Links from them work.
func guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err != nil && host != "localhost" {
			http.Error(w, "open the lab as localhost, or by its address", http.StatusMisdirectedRequest)
			return
		}
		if r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Mode") != "navigate" {
			http.Error(w, "other sites may link to the lab, not use it", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		w.Header().Set("Cache-Control", "no-cache")
		next.ServeHTTP(w, r)
	})
}
