package shed_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/seed75154129/ratelimit/middleware/shed"
)

type sessionKey struct{}

// A server with 8 database connections works on 16 requests at once. The fields of a
// Shedder that are left out have defaults.
func Example() {
	shedder := &shed.Shedder{Min: 16, Max: 16, Priority: func(r *http.Request) shed.Priority {
		if r.Context().Value(sessionKey{}) == nil { // of the session, never a header
			return shed.Low
		}
		return shed.High
	}}
	handler := shedder.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		fmt.Printf("%.0f %% of the places are taken\n", 100*shedder.Load())
	}))
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	// Output:
	// 6 % of the places are taken
}
