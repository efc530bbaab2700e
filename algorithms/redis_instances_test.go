package algorithms

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

func TestBeatCountsInstances(t *testing.T) {
	srv, clock := redistest.StartWithClock(t)
	r := &Redis{Client: srv.Client(t), Namespace: "test", Budget: roomy}
	const lease = 15 * time.Second
	beat := func(id string, lease time.Duration, want int) {
		t.Helper()
		if got, err := storeOf(r).Beat(t.Context(), id, lease); err != nil || got != want {
			t.Errorf("%s: %d instances, %v, want %d", id, got, err, want)
		}
	}
	beat("a", lease, 1)
	beat("b", lease, 2)
	beat("a", lease, 2)
	clock.Advance(lease - time.Millisecond)
	beat("c", lease, 3)
	clock.Advance(time.Millisecond)
	beat("c", lease, 1) // the others were not heard of for a lease
	beat("a", lease, 2)
	beat("a", 0, 1) // leaves
	beat("c", lease, 1)
	beat("c", 0, 0)

	clock.Advance(time.Hour)
	beat("a", lease, 1)
	clock.Advance(-time.Hour) // it was wrong: what it promised holds for a lease
	beat("b", lease, 2)
	clock.Advance(lease)
	beat("b", lease, 1)
	clock.Advance(lease + 2*time.Millisecond)
	if n := srv.Client(t).Exists(t.Context(), "test:instances").Val(); n != 0 {
		t.Error("a key is left when nobody beats")
	}

	srv.Client(t).Set(t.Context(), "test:instances", "word", 0)
	if _, err := storeOf(r).Beat(t.Context(), "a", lease); !errors.Is(err, transport.ErrForeign) {
		t.Errorf("a foreign value: %v", err)
	}
}

func TestServerWarnings(t *testing.T) {
	srv := redistest.Start(t)
	client := srv.Client(t)
	r := &Redis{Client: client, Namespace: "test", Budget: roomy}
	if warned, err := storeOf(r).ServerWarnings(t.Context()); err != nil || len(warned) > 0 {
		t.Errorf("noeviction: %q, %v", warned, err)
	}
	client.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru")
	warned, err := storeOf(r).ServerWarnings(t.Context())
	if err != nil || len(warned) != 1 || !strings.Contains(warned[0], srv.Addr+": maxmemory-policy is allkeys-lru") {
		t.Errorf("allkeys-lru: %q, %v", warned, err)
	}
	srv.Stop(t)
	if _, err := storeOf(r).ServerWarnings(t.Context()); err == nil {
		t.Error("no error from a server that is away")
	}
}
