package onstatus_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/seed75154129/ratelimit/internal/onstatus"
)

// Without gin, WriteHeaderNow writes nothing, whatever wraps the writer.
func TestWriteHeaderNowWithoutGin(t *testing.T) {
	var told []int
	tell := func(status int) { told = append(told, status) }
	w := onstatus.Wrap(onstatus.Wrap(httptest.NewRecorder(), tell), tell)
	w.(interface{ WriteHeaderNow() }).WriteHeaderNow()
	w.WriteHeader(http.StatusUnauthorized)
	if want := []int{401, 401}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}
