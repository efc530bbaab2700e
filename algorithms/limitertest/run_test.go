package limitertest_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
)

const childEnv = "LIMITERTEST_RUN_WRONG_LIMITERS"

// TestRunFindsMistakes runs the suite on limiters that are wrong, in another
// process, because it has to fail there.
func TestRunFindsMistakes(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		runWrongLimiters(t)
		return
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestRunFindsMistakes$", "-test.v")
	cmd.Env = append(os.Environ(), childEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Error("the suite did not fail")
	}
	text := string(out)

	failures := make(map[string][]string) // of each limiter
	for _, m := range regexp.MustCompile(`(?m)^ *--- FAIL: TestRunFindsMistakes/([^/\s]+)/(\S+)`).FindAllStringSubmatch(text, -1) {
		failures[m[1]] = append(failures[m[1]], strings.ReplaceAll(m[2], "_", " "))
	}
	for _, w := range mistakes {
		found := failures[w.name]
		t.Logf("%s: %d cases fail", w.name, len(found))
		if !slices.ContainsFunc(found, func(name string) bool { return strings.Contains(name, w.foundBy) }) {
			t.Errorf("%s: not found by %q, but by %q", w.name, w.foundBy, found)
		}
	}
	for _, right := range []string{"right", "decorated"} {
		if found := failures[right]; len(found) > 0 {
			t.Errorf("%s: fails %q", right, found)
		}
		if !strings.Contains(text, "--- PASS: TestRunFindsMistakes/"+right+"/a_cost_of_0_means_1") {
			t.Errorf("%s: was not tested", right)
		}
	}
	const message = `"a cost of the whole quota is admitted once" of 10/1s fixed_window, step 2: Take of 1, 2.25s after the first:
        	check 0 (rule "rule", key "vector 0", 10/1s fixed_window, cost 1): RetryAfter = 750.001ms, want 750ms`
	if squeeze := strings.Join(strings.Fields(text), " "); !strings.Contains(squeeze, strings.Join(strings.Fields(message), " ")) {
		t.Errorf("no message says\n%s", message)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// runWrongLimiters also runs two that are not.
func runWrongLimiters(t *testing.T) {
	run := func(name string, limiter func() algorithms.Limiter) {
		t.Run(name, func(t *testing.T) {
			limitertest.Run(t, func(*testing.T) limitertest.Subject { return limitertest.Subject{Limiter: limiter()} })
		})
	}
	for i := range mistakes {
		run(mistakes[i].name, func() algorithms.Limiter { return wrongLimiter{new(algorithms.Memory), &mistakes[i]} })
	}
	run("right", func() algorithms.Limiter { return new(algorithms.Memory) })
	run("decorated", func() algorithms.Limiter { return struct{ algorithms.Limiter }{new(algorithms.Memory)} })
}
