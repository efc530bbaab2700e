package accuracy

import (
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/simulate"
)

const s = time.Second

func TestJudgeClients(t *testing.T) {
	// Client 0 stays within 2 and is denied; 1 sends 3 and is not; 2 sends 3 and is.
	requests := []simulate.Request{
		{At: 0, Client: 0, Cost: 1}, {At: 0, Client: 1, Cost: 1}, {At: 0, Client: 2, Cost: 1},
		{At: s, Client: 0, Cost: 1}, {At: s, Client: 1, Cost: 1}, {At: s, Client: 2, Cost: 1},
		{At: 2 * s, Client: 1, Cost: 1}, {At: 2 * s, Client: 2, Cost: 1},
	}
	outcomes := make([]simulate.Outcome, len(requests))
	for i := range outcomes {
		outcomes[i] = simulate.Outcome{Allowed: i != 3 && i != 7, Served: requests[i].At}
	}
	want := verdict{requests: 8, clients: 3, over: 2, wronglyDenied: 1, wronglyFree: 1, wrong: 2}
	if got := judgeClients(requests, outcomes, 2); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDocument(t *testing.T) {
	f := figures{"a": "1", "b": "| x |\n"}
	const text = "of <!-- a -->2<!-- / --> and\n<!-- b --><!-- / -->\nnot <!-- c -->3<!-- / -->"
	if stale := f.stale(text); len(stale) != 2 {
		t.Errorf("stale: %q", stale)
	}
	filled := f.fill(text)
	if want := "of <!-- a -->1<!-- / --> and\n<!-- b -->\n\n| x |\n\n<!-- / -->\nnot <!-- c -->3<!-- / -->"; filled != want {
		t.Errorf("filled:\n%s", filled)
	}
	if stale := f.stale(filled); len(stale) != 0 {
		t.Errorf("stale after filling: %q", stale)
	}
	if names := places(filled); len(names) != 3 {
		t.Errorf("places: %q", names)
	}
}
