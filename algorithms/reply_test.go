package algorithms

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/internal/step"
)

// Whatever is in a key or in between, a reply must not panic nor be taken for
// room that a client does not have.
func FuzzReply(f *testing.F) {
	valid := []int64{someTime, 1, someTime, 1, 0}
	f.Add(uint8(0), int64(5), int64(60_000_000), pack(valid))
	f.Add(uint8(1), int64(5), int64(60_000_000), pack([]int64{someTime, 0, someTime - 30_000_000, 5, 5}))
	f.Add(uint8(3), int64(1_000_000), int64(1), pack([]int64{someTime, 1, someTime + 1, 999_999, 0}))
	f.Add(uint8(4), int64(step.MaxSquared), int64(1), pack([]int64{1 << 52, 1, 0, 1<<53 - 1, 1<<53 - 1}))
	f.Add(uint8(5), int64(1), int64(1), pack([]int64{-1, 1, -1, -1, -1}))
	f.Add(uint8(1), int64(5), int64(60_000_000), pack([]int64{someTime, 2, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, which uint8, rate, period int64, packed []byte) {
		a := step.Table[int(which)%len(step.Table)]
		l := Limit{Rate: rate, Period: time.Duration(period) * time.Microsecond, Algorithm: Algorithm(a.Number)}
		switch {
		case a.Queue:
			l.Burst = 1
		case a.Calendar:
			l.Period, l.Calendar = 0, "day@UTC"
		}
		if !l.step().OkFor(l.row()) || period > 1<<50 {
			return
		}
		checks := []Check{{Rule: "r", Limit: l, Cost: 1}}
		ps, err := prepare(checks, new([4]step.Params))
		if err != nil {
			t.Fatal(err)
		}
		d, err := answers(checks, ps, unpack(packed), true)
		if err != nil {
			return
		}
		if r := d.Results[0]; r.Remaining > l.Quota() || r.HasRoom && r.Remaining < 0 || r.ResetAfter < 0 || r.HasRoom != d.Allowed {
			t.Fatalf("%s: %+v", l, d)
		}
	})
}

func pack(numbers []int64) (b []byte) {
	for _, n := range numbers {
		b = binary.BigEndian.AppendUint64(b, uint64(n))
	}
	return b
}

func unpack(b []byte) (numbers []int64) {
	for ; len(b) >= 8; b = b[8:] {
		numbers = append(numbers, int64(binary.BigEndian.Uint64(b)))
	}
	return numbers
}

func TestRepliesThatNoScriptGives(t *testing.T) {
	checks := []Check{{Rule: "r", Limit: PerMinute(5), Cost: 1}}
	ps, err := prepare(checks, new([4]step.Params))
	if err != nil {
		t.Fatal(err)
	}
	for want, reply := range map[string][]int64{
		"0 numbers for 1 keys":        nil,
		"4 numbers for 1 keys":        {someTime, 1, 2, 3},
		"-1 as number 3":              {someTime, 1, someTime, -1, 0},
		"as number 0; want 0 to 2^53": {1 << 53, 1, 0, 0, 0},
	} {
		if _, err := answers(checks, ps, reply, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: got %v, want %q", reply, err, want)
		}
	}
}
