package script

import (
	"errors"
	"slices"
	"testing"

	"github.com/seed75154129/ratelimit/internal/transport"
)

func TestParseReply(t *testing.T) {
	for reply, want := range map[string][]int64{
		"1795000000 42":     {1795000000000042},
		"1795000000 42 1\n": {1795000000000042, 0, 0, 0, 0},
		"1795000000 42 2\n1795000000000000 7\n\n1795 0000001 12": {1795000000000042, 1, 1795000000000000, 7, 0, 0, 0, 0, 0, 1, 1795, 1, 12},
	} {
		if got, err := ParseReply(reply); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v; want %v", reply, got, err, want)
		}
	}
	for _, reply := range []string{
		"", "1795000000", "1795000000 ", "1795000000 42 ", "x 42", "1795000000 4e2", "1795000000 42 1", "1795000000 42 0\n", "1795000000 42 2\n",
		"1795000000 42 2 1\n\n", "1795000000 42 1 1\n", "1795000000 42 x\n", "1795000000 42\n1 ", "1795000000 42\n1 2 3 4", "1795000000 42\n1  2",
		"1795000000 42\n1.5", "1795000000 42\n99999999999999999999",
	} {
		if got, err := ParseReply(reply); !errors.Is(err, transport.ErrReply) {
			t.Errorf("%q: %v, %v; want transport.ErrReply", reply, got, err)
		}
	}
}
