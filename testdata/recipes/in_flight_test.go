package recipes

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// wantStatus serves a request and compares its status.
func wantStatus(t *testing.T, h http.Handler, method, path string, want int) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, from("192.0.2.1:1", method, path)())
	if w.Code != want {
		t.Errorf("%s %s: status %d, want %d", method, path, w.Code, want)
	}
}

func TestExports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules, h := exports(keyfunc.IP, func(context.Context) { time.Sleep(time.Minute) })
		h = limited(t, rules...).Handler(h)
		wantStatus(t, h, "POST", "/exports", http.StatusAccepted)
		time.Sleep(30 * time.Second)
		wantStatus(t, h, "POST", "/exports", http.StatusAccepted)
		wantStatus(t, h, "POST", "/exports", http.StatusTooManyRequests)
		time.Sleep(31 * time.Second)
		wantStatus(t, h, "POST", "/exports", http.StatusAccepted)
		wantStatus(t, h, "POST", "/exports", http.StatusTooManyRequests)
		time.Sleep(time.Minute)
	})
}

func TestSockets(t *testing.T) {
	upgrade := func(http.ResponseWriter, *http.Request) (socket, error) { return nil, nil }
	serve := func(*http.Request, socket) { time.Sleep(time.Hour) }
	for name, h := range map[string]http.Handler{
		"pumped":    pumped(upgrade, func(*http.Request, socket) {}, serve),
		"handed on": handedOn(upgrade, serve),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := limited(t, sockets(keyfunc.IP)...).Handler(h)
				for range 5 {
					go wantStatus(t, h, "GET", "/ws", http.StatusOK)
				}
				synctest.Wait()
				time.Sleep(59 * time.Minute)
				wantStatus(t, h, "GET", "/ws", http.StatusTooManyRequests)
				time.Sleep(2 * time.Minute)
				go wantStatus(t, h, "GET", "/ws", http.StatusOK)
				time.Sleep(2 * time.Hour)
			})
		})
	}
}

// A connection's messages are read until it ends, also after its handler.
func TestMessagesOfSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := limited(t, ratelimit.Rule{Name: "messages", Key: keyfunc.IP, Limit: algorithms.PerMinute(20)})
		upgrade := func(http.ResponseWriter, *http.Request) (socket, error) { return &conn{waiting: 15}, nil }
		handled := 0
		serve := func(r *http.Request, conn socket) {
			time.Sleep(time.Minute) // a handler that hands on has returned
			if err := messages(limit, r, conn, func([]byte) { handled++ }); !errors.Is(err, io.EOF) {
				t.Error(err)
			}
		}
		for name, h := range map[string]http.Handler{
			"pumped":    pumped(upgrade, func(*http.Request, socket) {}, serve),
			"handed on": handedOn(upgrade, serve),
		} {
			handled = 0
			ctx, cancel := context.WithCancel(t.Context())
			limited(t, sockets(keyfunc.IP)...).Handler(h).ServeHTTP(httptest.NewRecorder(), from("192.0.2.1:1", "GET", "/ws")().WithContext(ctx))
			cancel() // as net/http does
			time.Sleep(time.Hour)
			if handled != 15 {
				t.Errorf("%s: %d messages", name, handled)
			}
		}
	})
}
