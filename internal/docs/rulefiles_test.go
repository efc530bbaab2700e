package docs

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// ruleFiles returns the rule files of the repository that are good: those of pages, of the
// examples and of the recipes.
func ruleFiles(t *testing.T) map[string]string {
	t.Helper()
	found := make(map[string]string)
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language == "yaml" && strings.Contains(b.text, "version: 1") {
				found[p.path+" "+strings.TrimSpace(strings.SplitN(b.text, "\n", 3)[1])] = b.text
			}
		}
	}
	for _, pattern := range []string{"testdata/rules/*.yaml", "testdata/recipes/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found[file] = string(text)
		}
	}
	return found
}

// Every rule file that readers may copy is a good one, and nothing is odd about it.
func TestRuleFilesOfThePagesAreGood(t *testing.T) {
	user := keyfunc.Context(func(context.Context) (string, bool) { return "", false })
	loader := &rulefile.Loader{Keys: map[string]keyfunc.Key{"user": user, "tenant": user, "route": keyfunc.Route(func(r *http.Request) string { return r.Pattern })}}
	files := ruleFiles(t)
	if len(files) < 7 {
		t.Errorf("%d rule files seen", len(files))
	}
	for name, text := range files {
		rules, err := loader.Parse(name, []byte(text))
		if err != nil {
			t.Error(err)
			continue
		}
		var log bytes.Buffer
		_, err = ratelimit.New(ratelimit.Config{Rules: rules, TierFor: func(*http.Request) string { return "" }, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil || log.Len() > 0 {
			t.Errorf("%s: %v\n%s", name, err, &log)
		}
	}
}

// smallLimit finds limits below ten units in a minute or more, in Go and in text. What
// follows one on its line names the algorithm, the burst or the calendar.
var smallLimit = regexp.MustCompile(`\.Per(?:Minute|Hour)\([1-9]\)|(?:[Ll]imits?"?: *|\b(?:MustParse|ParseLimit)\()[\["]*[1-9] ?/ ?[0-9]*(?:m|min|minute|h|hour|d)\b([^,\]}\n]*)`)

// smallWindows returns limits of which New warns that a sliding_window denies for long.
func smallWindows(text string) (found []string) {
	for _, m := range smallLimit.FindAllStringSubmatch(text, -1) {
		if named, _, _ := strings.Cut(m[1], "#"); !strings.ContainsAny(named, "_@") && !strings.Contains(named, "burst") && !strings.Contains(named, "gcra") {
			found = append(found, m[0])
		}
	}
	return found
}

// What readers copy does not make the middleware warn of it.
func TestSmallLimitsNameTheirAlgorithm(t *testing.T) {
	wantNone(t, shape{seen: smallLimit, least: 20, wrong: smallWindows, samples: map[string]int{
		"limit: 5/1m":                              1,
		"limit: 5/1m # a comment with an _":        1,
		"limit: 5/1m sliding_log":                  0,
		"{limit: [9/min, 100/1d], name: a_b}":      1,
		`{"limit": "5/1h", "charge_on": [401]}`:    1,
		"limit: 5/1s":                              0,
		"limit: 15/1m":                             0,
		"limit: 5/day@UTC":                         0,
		"Limit: algorithms.PerMinute(5)":           1,
		"Limit: ratelimit.PerMinute(50)":           0,
		`ratelimit.MustParse("5/30m")`:             1,
		`ratelimit.MustParse("5/1m burst 9")`:      0,
		`ratelimit.MustParse("5/30m sliding_log")`: 0,
	}, mend: "name the algorithm, such as sliding_log, or write ten units or more", without: []string{"testdata/rules/bad"}})
}
