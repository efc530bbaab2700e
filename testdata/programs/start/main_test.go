package main

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

func TestSixthLoginWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit, err := limits(new(algorithms.Memory))
		if err != nil {
			t.Fatal(err)
		}
		server := limit.Handler(routes())
		login := func() *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			server.ServeHTTP(w, httptest.NewRequest("POST", "/login", nil))
			return w
		}
		for range 5 {
			if w := login(); w.Code != http.StatusOK {
				t.Fatal(w.Code)
			}
		}
		denied := login()
		if denied.Code != http.StatusTooManyRequests {
			t.Fatal(denied.Code)
		}
		seconds, _ := strconv.Atoi(denied.Header().Get("Retry-After"))
		time.Sleep(time.Duration(seconds) * time.Second) // takes no time: the clock is fake
		if w := login(); w.Code != http.StatusOK {
			t.Errorf("%d after %d s", w.Code, seconds)
		}
	})
}
