package algorithms

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/step"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// The documentation says what a Redis user for the limiter may do. It has to
// be enough for everything.
func TestTheDocumentedACLSuffices(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "ACL SETUSER limiter ")
	rules, _, _ := strings.Cut(rest, "\n")
	if !found || !strings.Contains(rules, "+evalsha") {
		t.Fatal("the document has no line ACL SETUSER limiter")
	}
	for _, s := range script.All {
		for _, called := range regexp.MustCompile(`call\('([A-Z]+)'`).FindAllStringSubmatch(s.Text(), -1) {
			if !strings.Contains(rules, " +"+strings.ToLower(called[1])+" ") {
				t.Errorf("%s is not permitted", called[1])
			}
		}
	}
	srv := redistest.Start(t)
	args := []any{"ACL", "SETUSER", "limiter"}
	for rule := range strings.FieldsSeq(rules) {
		args = append(args, rule)
	}
	if err := srv.Client(t).Do(t.Context(), args...).Err(); err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(FailFast(&redis.Options{Addr: srv.Addr, Username: "limiter", Password: "secret"}))
	defer client.Close()
	r := &Redis{Client: client, Namespace: "shop", Budget: roomy}
	for i := range step.Table {
		limit := Limit{Rate: 3, Period: time.Hour, Burst: 3, Algorithm: Algorithm(step.Table[i].Number)}
		if !step.Table[i].Bucket {
			limit.Burst = 0
		}
		check := Check{Rule: step.Table[i].Name, Key: "k", Limit: limit}
		if step.Table[i].Calendar {
			check.Limit.Period, check.Limit.Calendar = 0, "month@UTC"
		}
		costs := []int64{1, 0, 2}
		if step.Table[i].Held {
			costs = costs[:2]
		}
		for _, cost := range costs {
			d, err := r.Take(t.Context(), check)
			if err == nil {
				err = settleAll(t.Context(), r, cost, d.Results...)
			}
			if err != nil {
				t.Errorf("%s: take and settle at %d: %v", limit, cost, err)
			}
		}
		if _, err := r.Peek(t.Context(), check); err != nil {
			t.Errorf("%s: peek: %v", limit, err)
		}
		if err := r.Reset(t.Context(), check); err != nil {
			t.Errorf("%s: reset: %v", limit, err)
		}
	}
	if err := storeOf(r).Warm(t.Context()); err != nil {
		t.Error(err)
	}
	for _, lease := range []time.Duration{time.Minute, 0} {
		if _, err := storeOf(r).Beat(t.Context(), "id", lease); err != nil {
			t.Error(err)
		}
	}
	if _, err := storeOf(r).ServerWarnings(t.Context()); err != nil {
		t.Error(err)
	}
	if err := storeOf(r).Probe(t.Context(), 0); err != nil {
		t.Error(err)
	}
	for _, command := range []string{"BLPOP k 1", "CLIENT KILL 127.0.0.1:1", "RESTORE shop:k 0 v", "SCRIPT DEBUG YES", "FUNCTION LIST", "REPLICAOF NO ONE"} {
		var args []any
		for arg := range strings.FieldsSeq(command) {
			args = append(args, arg)
		}
		if err := client.Do(t.Context(), args...).Err(); err == nil || !strings.HasPrefix(err.Error(), "NOPERM") {
			t.Errorf("%s: %v, want NOPERM", command, err)
		}
	}
	foreign := &Redis{Client: client, Namespace: "other", Budget: roomy}
	if _, err := foreign.Take(t.Context(), Check{Rule: "r", Limit: PerHour(1)}); transport.ClassOf(err) != transport.ClassRefused {
		t.Errorf("another namespace: %v", err)
	}

	// A permission that is withdrawn is no foreign value, also beside one.
	log := Check{Rule: "log", Limit: Limit{Rate: 1, Period: time.Hour, Algorithm: SlidingLog}}
	srv.Client(t).RPush(t.Context(), keyOf("shop", log), "word")
	if err := srv.Client(t).Do(t.Context(), "ACL", "SETUSER", "limiter", "-getrange").Err(); err != nil {
		t.Fatal(err)
	}
	for _, checks := range [][]Check{
		{{Rule: "r", Limit: PerHour(1)}},
		{log, {Rule: "r", Limit: PerHour(1)}},
	} {
		if d, err := r.Take(t.Context(), checks...); transport.ClassOf(err) != transport.ClassRefused {
			t.Errorf("without GETRANGE: %+v, %v", d, err)
		}
	}
}
