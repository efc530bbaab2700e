package docs

import (
	"regexp"
	"strings"
	"testing"
)

// loginLimit finds the limits of rules for logins, in YAML and in Go.
var loginLimit = regexp.MustCompile(`(?s)\b[Nn]ame: *"?login[\w-]*\b.{0,200}?\b([Ll]imits?: *[^\n]*)`)

// withoutSlidingLog returns the limits of rules for logins that are no sliding_log. A limit
// that another line defines is not looked at.
func withoutSlidingLog(text string) (found []string) {
	for _, m := range loginLimit.FindAllStringSubmatch(text, -1) {
		limit := strings.ToLower(strings.ReplaceAll(m[1], "_", ""))
		if strings.Contains(limit, "slidinglog") || !strings.ContainsAny(limit, "/{(") {
			continue
		}
		found = append(found, m[1])
	}
	return found
}

// Pages, examples and rule files have one answer to which algorithm logins need.
func TestLoginsAreLimitedBySlidingLogs(t *testing.T) {
	wantNone(t, shape{seen: loginLimit, least: 15, wrong: withoutSlidingLog, samples: map[string]int{
		"- name: login\n  key: ip\n  limit: 5/1m sliding_log":   0,
		"{name: login, key: ip, limit: 5/1m}":                   1,
		"{name: login-ip, key: ip, limit: [5/1m fixed_window]}": 1,
		`{Name: "login", Limit: algorithms.PerMinute(5)}`:       1,
		`{Name: "login", Limit: perIP}`:                         0,
		"Name:  \"login\",\nLimit: algorithms.Limit{Algorithm: algorithms.SlidingLog},\nName: \"login\",\nLimit: algorithms.Limit{Algorithm: algorithms.GCRA},": 1,
	}, mend: "a sliding_log admits no more than the limit in any period", without: []string{"testdata/rules/bad", "testdata/rules/good", "docs/design"}})
}
