package accuracy

import (
	"testing"
	"time"
)

const s = time.Second

// at is requests of one client that were served when they came or, where the
// second time is negative, denied.
func at(times ...[2]time.Duration) (requests []request, outcomes []outcome) {
	for _, t := range times {
		requests = append(requests, request{at: t[0], cost: 1})
		outcomes = append(outcomes, outcome{allowed: t[1] >= 0, served: t[1]})
	}
	return requests, outcomes
}

func TestJudge(t *testing.T) {
	for _, tt := range []struct {
		name                      string
		times                     [][2]time.Duration
		falseAdmits, falseDenials int
		worst, room               int64
	}{
		{"a unit counts for exactly one period", [][2]time.Duration{{0, 0}, {s, s}, {60 * s, 60 * s}}, 0, 0, 2, 0},
		{"and until then", [][2]time.Duration{{0, 0}, {s, s}, {60*s - 1, 60*s - 1}}, 1, 0, 3, 0},
		{"a denial is right at the limit", [][2]time.Duration{{0, 0}, {s, s}, {60*s - 1, -1}}, 0, 0, 2, 0},
		{"and false below it", [][2]time.Duration{{0, 0}, {s, s}, {60 * s, -1}, {61 * s, -1}}, 0, 2, 2, 2},
		{"a delayed request counts when it is served", [][2]time.Duration{{0, 0}, {0, 30 * s}, {0, 60 * s}, {0, -1}}, 0, 1, 2, 1},
	} {
		requests, outcomes := at(tt.times...)
		got := judge(requests, outcomes, 2)
		if got.falseAdmits != tt.falseAdmits || got.falseDenials != tt.falseDenials || got.worst != tt.worst || got.room != tt.room {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestJudgeCountsCosts(t *testing.T) {
	requests := []request{{at: 0, cost: 3}, {at: s, cost: 2}, {at: 2 * s, cost: 2}, {at: 3 * s, cost: 1}}
	outcomes := []outcome{{allowed: true}, {}, {allowed: true, served: 2 * s}, {}}
	got := judge(requests, outcomes, 4)
	if got.falseAdmits != 1 || got.falseDenials != 0 || got.worst != 5 || got.units != 5 {
		t.Errorf("%+v", got)
	}
}

func TestJudgeClients(t *testing.T) {
	// Client 0 stays within 2 and is denied; 1 sends 3 and is not; 2 sends 3 and is.
	requests := []request{
		{0, 0, 1}, {0, 1, 1}, {0, 2, 1},
		{s, 0, 1}, {s, 1, 1}, {s, 2, 1},
		{2 * s, 1, 1}, {2 * s, 2, 1},
	}
	outcomes := make([]outcome, len(requests))
	for i := range outcomes {
		outcomes[i] = outcome{allowed: i != 3 && i != 7, served: requests[i].at}
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
