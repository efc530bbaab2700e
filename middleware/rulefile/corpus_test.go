package rulefile_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

var update = flag.Bool("update", false, "write the golden files anew")

const corpus = "../../testdata/rules"

// loader is that of a program with names of its own.
func loader() *rulefile.Loader {
	user := func(context.Context) (string, bool) { return "alice", true }
	return &rulefile.Loader{
		Keys: map[string]keyfunc.Key{
			"tenant": keyfunc.Optional(keyfunc.Context(user)), "user": keyfunc.Context(user), "route": keyfunc.Mux(http.NewServeMux()),
		},
		Tiers: []string{"pro", "enterprise", "internal", "on", "no", "1:30", "007", "per cent %"},
	}
}

// files returns the documents of a folder, by name.
func files(t testing.TB, folder string) map[string][]byte {
	t.Helper()
	found := make(map[string][]byte)
	for _, ending := range []string{"yaml", "json"} {
		paths, _ := filepath.Glob(filepath.Join(corpus, folder, "*."+ending))
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			found[filepath.Base(path)] = text
		}
	}
	if len(found) < 5 {
		t.Fatalf("%d documents in %s", len(found), folder)
	}
	return found
}

// golden compares a text with the file beside a document.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v; look at what -update writes", err)
	}
	if got != string(want) {
		t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
	}
}

// Each bad document has all its mistakes reported at once, where they are and with
// how to mend them.
func TestBadDocuments(t *testing.T) {
	bad := files(t, "bad")
	if len(bad) < 20 {
		t.Errorf("%d documents", len(bad))
	}
	for name, text := range bad {
		rules, err := loader().Parse(name, text)
		if err == nil || rules != nil {
			t.Errorf("%s is accepted: %v", name, rules)
			continue
		}
		for line := range strings.Lines(err.Error()) {
			if !strings.HasPrefix(line, name+":") {
				t.Errorf("%s: a mistake without a place, or in two lines: %s", name, line)
			}
		}
		golden(t, filepath.Join(corpus, "bad", strings.TrimSuffix(name, ".yaml")+".txt"), err.Error()+"\n")
	}
}

// Each good document is printed as it was understood, and that reads as the same.
func TestGoodDocuments(t *testing.T) {
	for name, text := range files(t, "good") {
		rules, err := loader().Parse(name, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		printed := roundTrip(t, name, rules)
		golden(t, filepath.Join(corpus, "good", strings.TrimSuffix(strings.TrimSuffix(name, ".yaml"), ".json")+".txt"), printed)
	}
}

// roundTrip prints rules and reads them again.
func roundTrip(t failer, name string, rules []ratelimit.Rule) (printed string) {
	t.Helper()
	first, err := rulefile.Format(rules)
	if err != nil {
		t.Fatalf("%s: cannot be printed: %v", name, err)
	}
	again, err := anyTier().Parse(name, first)
	if err != nil {
		t.Fatalf("%s: what was printed is refused: %v\n%s", name, err, first)
	}
	if got, want := plain(again), plain(rules); !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: reads again as\n%+v\nwant\n%+v\n%s", name, got, want, first)
	}
	if second, err := rulefile.Format(again); err != nil || string(second) != string(first) {
		t.Fatalf("%s: is printed as\n%s\nand then as\n%s\n%v", name, first, second, err)
	}
	return string(first)
}

// A failer is a test: Go's, or rapid's.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

func anyTier() *rulefile.Loader {
	l := loader()
	l.Tiers = nil
	return l
}

// compared is a rule with its defaults filled in, and its key by name.
type compared struct {
	ratelimit.Rule
	key string
}

func plain(rules []ratelimit.Rule) []compared {
	all := make([]compared, len(rules))
	for i, r := range rules {
		key := r.Key.(fmt.Stringer).String()
		if r.TierBy != nil {
			key += " by " + r.TierBy.(fmt.Stringer).String()
			r.TierBy = nil
		}
		r.Key, r.LimitsFor, r.CostFor = nil, nil, nil
		r.Cost, r.Limits, r.Tiers = max(r.Cost, 1), filledAll(append([]algorithms.Limit{r.Limit}, r.Limits...)), maps.Clone(r.Tiers)
		r.Overrides = slices.Clone(r.Overrides)
		r.Limit = algorithms.Limit{}
		for tier, limits := range r.Tiers {
			if !slices.Equal(limits, ratelimit.Unlimited()) {
				r.Tiers[tier] = filledAll(limits)
			}
		}
		for j, o := range r.Overrides {
			if !slices.Equal(o.Limits, ratelimit.Unlimited()) {
				r.Overrides[j].Limits = filledAll(o.Limits)
			}
		}
		all[i] = compared{r, key}
	}
	return all
}

func filledAll(limits []algorithms.Limit) []algorithms.Limit {
	limits = slices.Clone(limits)
	for i := range limits {
		limits[i] = filled(limits[i])
	}
	return limits
}

func filled(l algorithms.Limit) algorithms.Limit {
	if l.Algorithm == "" {
		l.Algorithm = algorithms.SlidingWindow
		if l.Burst != 0 {
			l.Algorithm = algorithms.TokenBucket
		}
		if l.Calendar != "" {
			l.Algorithm = algorithms.CalendarWindow
		}
	}
	return l
}
