package simulate

import (
	"testing"
	"time"
)

const s = time.Second

// at is requests of one client that were served when they came or, where the
// second time is negative, denied.
func at(times ...[2]time.Duration) (requests []Request, outcomes []Outcome) {
	for _, t := range times {
		requests = append(requests, Request{At: t[0], Cost: 1})
		outcomes = append(outcomes, Outcome{Allowed: t[1] >= 0, Served: t[1]})
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
		got := Judge(requests, outcomes, 2, time.Minute, nil)
		if got.FalseAdmits != tt.falseAdmits || got.FalseDenials != tt.falseDenials || got.Worst != tt.worst || got.Room != tt.room {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}

func TestJudgeCountsCosts(t *testing.T) {
	requests := []Request{{At: 0, Cost: 3}, {At: s, Cost: 2}, {At: 2 * s, Cost: 2}, {At: 3 * s, Cost: 1}}
	outcomes := []Outcome{{Allowed: true}, {}, {Allowed: true, Served: 2 * s}, {}}
	got := Judge(requests, outcomes, 4, time.Minute, nil)
	if got.FalseAdmits != 1 || got.FalseDenials != 0 || got.Worst != 5 || got.Units != 5 {
		t.Errorf("%+v", got)
	}
}
