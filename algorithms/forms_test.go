package algorithms

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

var update = flag.Bool("update", false, "write forms of states that are new")

// States are written as testdata/forms.txt says. A form that changes, or whose
// deadlines do, gets another name, and with it other keys. Names are not used again,
// so the file keeps those of former forms.
func TestEachFormHasItsName(t *testing.T) {
	b := RealBackend(t)
	client := b.Client
	path := filepath.Join("testdata", "forms.txt")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, form, _ := strings.Cut(strings.TrimSpace(line), ": ")
		known[name] = form
	}
	compare := func(name string, states []string) {
		form := strings.Join(states, " | ")
		switch was, ok := known[name]; {
		case !ok && *update:
			data = fmt.Appendf(data, "%s: %s\n", name, form)
		case !ok:
			t.Errorf("%s is a new form: run the test with -update", name)
		case was != form:
			t.Errorf("the form of %s has changed: put the next digit at the end of its name, in algorithm.go or key.go, and run the test with -update\n got %s\nwant %s", name, form, was)
		}
	}
	// Valkey decides for itself how it keeps a number that a script has written.
	asNumbers := !strings.Contains(client.Info(t.Context(), "server").Val(), "server_name:valkey")
	stored := func(key string) string {
		state := client.Get(t.Context(), key).Val()
		if encoding := client.ObjectEncoding(t.Context(), key).Val(); asNumbers && (encoding == "int") != (state != "" && !strings.Contains(state, " ")) {
			t.Errorf("%q is kept as %s", state, encoding)
		}
		if list := client.LRange(t.Context(), key, 0, -1).Val(); len(list) > 0 {
			state = strings.Join(list, ",")
		}
		if fields := client.HGetAll(t.Context(), key).Val(); len(fields) > 0 {
			state = fmt.Sprint(fields)
		}
		return fmt.Sprintf("%s for %s", state, client.PTTL(t.Context(), key).Val())
	}

	for i := range step.Table {
		var states []string
		for _, period := range []time.Duration{time.Minute, 1500 * time.Millisecond} {
			check := Check{Rule: "r", Key: "k", Limit: Limit{Rate: 7, Period: period, Algorithm: Algorithm(step.Table[i].Number)}}
			switch {
			case step.Table[i].Bucket:
				check.Limit.Burst = 9
			case step.Table[i].Calendar:
				check.Limit.Period, check.Limit.Calendar = 0, map[time.Duration]string{time.Minute: "day@Asia/Kathmandu"}[period]
				if check.Limit.Calendar == "" {
					check.Limit.Calendar = "month:15@UTC"
				}
			}
			var last Result
			after := int64(2)
			if step.Table[i].Held {
				after = 0
			}
			for j := range int64(3) {
				b.SetTime(someTime + j*1_100_000)
				if check.Cost = j + 1; step.Table[i].Held {
					check.Cost, check.InFlight = 1, new(fmt.Sprint(7, 1, j, 0))
				}
				d, err := b.Redis.Take(t.Context(), check)
				if err != nil || !d.Allowed {
					t.Fatalf("%+v, %v", d, err)
				}
				last = d.Results[0]
				states = append(states, stored(keyOf("test", check)))
			}
			if _, err := b.Redis.Settle(t.Context(), Charge{Result: last, Cost: after}); err != nil {
				t.Fatal(err)
			}
			states = append(states, stored(keyOf("test", check)))
		}
		compare(step.Table[i].Short, states)
	}

	// A window of whole seconds is a number, also after a Settle has made it a text, unless it
	// or the one before has more units than most.
	minute := someTime - someTime%time.Minute.Microseconds()
	for name, of := range map[string]struct {
		algorithm Algorithm
		most      int64
	}{"fw1, many units": {FixedWindow, 999_999}, "sw1, many units": {SlidingWindow, 999}} {
		var states []string
		for _, units := range []int64{of.most, of.most + 1} {
			check := Check{Rule: "r", Key: fmt.Sprint(units), Limit: Limit{Rate: 5_000_000, Period: time.Minute, Algorithm: of.algorithm}}
			take := func(at, cost int64) Result {
				b.SetTime(minute + at*time.Minute.Microseconds())
				check.Cost = cost
				result := mustTake(t, b.Redis, check)[0]
				states = append(states, stored(keyOf("test", check)))
				return result
			}
			take(0, units-1)
			take(0, 1)
			charged := take(1, 50)
			if err := settleAll(t.Context(), b.Redis, 5, charged); err != nil {
				t.Fatal(err)
			}
			states = append(states, stored(keyOf("test", check)))
			take(1, 50)
		}
		compare(name, states)
	}

	if *update {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
