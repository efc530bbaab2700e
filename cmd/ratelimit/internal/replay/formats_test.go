package replay

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What common servers write is read, and by whom the request came, what for and
// when is the same.
func TestFormats(t *testing.T) {
	const rules = `version: 1
rules:
  - {name: per-ip, key: ip, limit: 1/1h fixed_window}
  - {name: login, match: [POST /login], key: [ip, user], limit: 1/1h fixed_window}
  - {name: agent, key: "header:User-Agent", limit: 1/1h fixed_window}
`
	for name, c := range map[string]struct {
		line  string
		rules [3]int64 // requests
	}{
		"common":                {`192.0.2.1 - alice [20/Nov/2026:10:30:00 +0100] "POST /login HTTP/1.1" 200 5`, [3]int64{1, 1, 0}},
		"combined":              {`192.0.2.1 - alice [20/Nov/2026:09:30:00 +0000] "POST /login HTTP/2.0" 200 5 "-" "curl/8"`, [3]int64{1, 1, 1}},
		"nginx' main":           {`192.0.2.1 - alice [20/Nov/2026:09:30:00 +0000] "POST /login HTTP/1.0" 200 5 "-" "curl/8" "10.0.0.1"`, [3]int64{1, 1, 1}},
		"with a virtual host":   {`shop.example:443 192.0.2.1 - alice [20/Nov/2026:04:30:00 -0500] "POST /login HTTP/1.1" 200 5 "-" "curl/8"`, [3]int64{1, 1, 1}},
		"with an IPv6 address":  {`2001:db8::1 - alice [20/Nov/2026:09:30:00 +0000] "POST /login HTTP/1.1" 200 5 "-" "curl/8"`, [3]int64{1, 1, 1}},
		"of a user with blanks": {`192.0.2.1 - alice [x] y [20/Nov/2026:09:30:00 +0000] "POST /login HTTP/1.1" 200 - "-" "curl/8"`, [3]int64{1, 1, 1}},
		"absolute target":       {`192.0.2.1 - alice [20/Nov/2026:09:30:00 +0000] "POST http://shop.example/login HTTP/1.1" 200 5 "-" "a \"b\""`, [3]int64{1, 1, 1}},
		"through a socket":      {`unix: - alice [20/Nov/2026:09:30:00 +0000] "POST /login HTTP/1.1" 200 5 "-" "curl/8"`, [3]int64{1, 1, 1}},
		"Caddy": {`{"level":"info","ts":1795167000.123,"logger":"http.log.access","msg":"handled request","request":{"remote_ip":"192.0.2.1","remote_port":"5","client_ip":"192.0.2.1",` +
			`"proto":"HTTP/2.0","method":"POST","host":"shop","uri":"/login","headers":{"User-Agent":["curl/8"]}},"user_id":"alice","duration":0.001,"size":5,"status":200}`, [3]int64{1, 1, 1}},
		"Traefik": {`{"ClientAddr":"192.0.2.1:5","ClientHost":"192.0.2.1","ClientUsername":"alice","DownstreamStatus":200,"RequestMethod":"POST","RequestPath":"/login",` +
			`"StartUTC":"2026-11-20T09:30:00.5Z","request_User-Agent":"curl/8","time":"2026-11-20T09:30:01Z"}`, [3]int64{1, 1, 1}},
		"nginx as JSON": {`{"time_iso8601":"2026-11-20T10:30:00+01:00","remote_addr":"192.0.2.1","remote_user":"alice","request":"POST /login HTTP/1.1","status":"200","http_user_agent":"curl/8"}`, [3]int64{1, 1, 1}},
		"Google Cloud":  {`{"httpRequest":{"requestMethod":"POST","requestUrl":"https://shop.example/login","status":200,"remoteIp":"192.0.2.1"},"timestamp":"2026-11-20T09:30:00Z"}`, [3]int64{1, 0, 0}},
		"ECS":           {`{"@timestamp":"2026-11-20T09:30:00.000Z","client.ip":"192.0.2.1","http":{"request":{"method":"POST"},"response":{"status_code":200}},"url":{"path":"/login"},"user":"alice","user_agent":"x"}`, [3]int64{1, 1, 1}},
		"milliseconds":  {`{"time":1795167000123,"remote_addr":"192.0.2.1","method":"POST","path":"/login?next=/","status":200,"user":"alice"}`, [3]int64{1, 1, 0}},
		"nanoseconds":   {`{"time":"1795167000123456789","remote_addr":"192.0.2.1","method":"POST","path":"/login","status":200,"user":"alice"}`, [3]int64{1, 1, 0}},
		"no zone":       {`{"time":"2026-11-20 09:30:00","remote_addr":"192.0.2.1","method":"POST","path":"/login","status":200,"user":"alice"}`, [3]int64{1, 1, 0}},
	} {
		stdout, result := replays(t, rules, "\ufeff"+c.line+"\r\n\r\n"+c.line, nil, "2 requests from 2026-11-20 09:30:00 to 2026-11-20 09:30:00Z")
		for i, rule := range []string{"per-ip", "login", "agent"} {
			if got := numbers(t, result, rule); got[0] != 2*c.rules[i] {
				t.Errorf("%s: rule %s: %v\n%s", name, rule, got, stdout)
			}
		}
	}
}

// What else a rule needs and the log does not have, and fields that have other names.
func TestWhatALogDoesNotSay(t *testing.T) {
	const rules = `version: 1
rules:
  - {name: held, key: ip, limit: 3/1m, tiers: {pro: 2 in flight}}
  - {name: plan, key: ip, limit: 1/1h, tiers: {pro: 9/1h}}
  - {name: both, key: ip, limit: [5/1s, 600/1h]}
`
	_, result := replays(t, rules, combined, nil,
		"not replayed: a log does not say how long requests took",
		"note: all clients have no tier here; add -field tier=FIELD",
		"no smallest limit is searched for: the rule has several")
	if held, plan := result.Rules[0], result.Rules[1]; held.NotReplayed == "" || plan.NotReplayed != "" || plan.Requests == 0 {
		t.Errorf("%+v, %+v", held, plan)
	}
	replays(t, rules, combined, []string{"-field", "tier=plan"}, "note: all clients have no tier here: the log does not have the field plan")
	const log = `{"when":"2026-11-20T09:30:00Z","who":"192.0.2.1","what":"/a"}` + "\n"
	for want, args := range map[string][]string{
		"no time; say which field has it: -field time=FIELD":        nil,
		"no request; say which fields have it: -field method=FIELD": {"-field", "time=when", "-field", "status=code"},
	} {
		if _, _, stderr, _ := runs(t, log, append(args, "-rules", file(t, "rules.yaml", rules), "-")...); !strings.Contains(stderr, want) {
			t.Errorf("%q: no %q in\n%s", args, want, stderr)
		}
	}
}

// A rule whose key is not in the log is not replayed as if all clients were one;
// the report says what to add.
func TestKeysThatTheLogDoesNotHave(t *testing.T) {
	const rules = `version: 1
rules:
  - {name: a, key: "apikey:X-Api-Key", limit: 1/1h}
  - {name: b, key: [ip, tenant], limit: 1/1h}
  - {name: c, key: route, limit: 1/1h}
  - {name: d, key: user, limit: 1/1h}
  - {name: e, key: everyone, limit: 100/1h}
  - {name: f, key: ip, limit: 2 in flight}
`
	_, result := replays(t, rules, combined, nil,
		"not replayed: the log does not have the header X-Api-Key; if it has it under another name, add -field header:X-Api-Key=FIELD",
		"not replayed: the log does not have the key tenant; if it has it under another name, add -field tenant=FIELD",
		"not replayed: no log has the route; add -routes",
		"requests without user: 4, to which the rule was not applied",
	)
	for rule, want := range map[string][4]int64{"a": {}, "b": {}, "c": {}, "d": {6, 5, 1, 1}, "e": {10, 0, 1, 0}, "f": {}} {
		if got := numbers(t, result, rule); got[0] != want[0] || got[2] != want[2] {
			t.Errorf("%s: %v, want %v", rule, got, want)
		}
	}
	for i, want := range []string{"the log does not have the header X-Api-Key; ", "the log does not have the key tenant; ", "no log has the route; ", "", "", "a log does not say how long requests took"} {
		if got := result.Rules[i].NotReplayed; !strings.HasPrefix(got, want) || (got == "") != (want == "") {
			t.Errorf("%s: not replayed: %q, want %q", result.Rules[i].Name, got, want)
		}
	}
	const log = `{"time":"2026-11-20T09:30:00Z","ip":"192.0.2.1","method":"GET","path":"/a/1","status":200,"key":"s3cret","account":{"id":7}}
{"time":"2026-11-20T09:30:00Z","ip":"192.0.2.1","method":"GET","path":"/a/2","status":200,"key":"s3cret","account":{"id":8}}
`
	stdout, result := replays(t, rules, log, []string{"-field", "header:x-api-key=key", "-field", "tenant=account.id", "-routes", "GET /a/{id},GET /b", "-field", "user=host"})
	for rule, want := range map[string][4]int64{"a": {2, 1, 1, 1}, "b": {2, 0, 2, 0}, "c": {2, 1, 1, 1}, "d": {}} {
		if got := numbers(t, result, rule); got != want {
			t.Errorf("%s: %v, want %v", rule, got, want)
		}
	}
	if strings.Contains(stdout, "s3cret") {
		t.Errorf("shows the secret:\n%s", stdout)
	}
	// Redacted secrets are none: all clients would be one.
	replays(t, "version: 1\nrules: [{name: a, key: \"apikey:Authorization\", limit: 1/1h}]",
		`{"ts":1795167000,"request":{"remote_ip":"192.0.2.1","method":"GET","uri":"/","headers":{"Authorization":["REDACTED"]}},"status":200}`, nil, "not replayed: the log does not have the header Authorization")
}

// A field whose first value comes late is read, and the whole log says whether it has a
// field.
func TestFieldsThatComeLate(t *testing.T) {
	const lines = 2000 // without the field: more than the plan is made of
	second := func(i int) time.Time { return nine.Add(time.Duration(i) * time.Second) }
	asJSON := func(late, early string) string {
		var log strings.Builder
		for i := range lines + 50 {
			ip, more := fmt.Sprintf("10.0.%d.%d", i/250, i%250), early
			if i >= lines {
				ip, more = "10.1.0.1", late
			}
			fmt.Fprintf(&log, `{"time":%q,"ip":%q,"method":"GET","path":"/","status":200%s}`+"\n", second(i).Format(time.RFC3339), ip, more)
		}
		return log.String()
	}
	asText := func(late string) string {
		var log strings.Builder
		for i := range lines + 50 {
			user := "-"
			if i >= lines {
				user = late
			}
			log.WriteString(strings.Replace(at(second(i), 1, "/"), " - - ", " - "+user+" ", 1))
		}
		return log.String()
	}
	for name, c := range map[string]struct {
		rule, log string
		flags     []string
		want      [4]int64
		says      string
	}{
		"an empty tier":   {"key: ip, limit: 3/1h, tiers: {pro: 100/1h}", asJSON(`,"plan":"pro"`, `,"plan":""`), []string{"-field", "tier=plan"}, [4]int64{lines + 50, 0, lines + 1, 0}, "tier=plan"},
		"no tier":         {"key: ip, limit: 3/1h, tiers: {pro: 100/1h}", asJSON(`,"plan":"pro"`, ""), []string{"-field", "tier=plan"}, [4]int64{lines + 50, 0, lines + 1, 0}, "tier=plan"},
		"a named user":    {"key: user, limit: 3/1h", asJSON(`,"who":"alice"`, ""), []string{"-field", "user=who"}, [4]int64{50, 47, 1, 1}, "requests before the first with user: 2,000, to which the rule was not applied"},
		"a user":          {"key: user, limit: 3/1h", asJSON(`,"remote_user":"alice"`, ""), nil, [4]int64{50, 47, 1, 1}, "user=remote_user"},
		"a user, as text": {"key: user, limit: 3/1h", asText("alice"), nil, [4]int64{50, 47, 1, 1}, "requests before the first with user: 2,000, to which the rule was not applied"},
		"a header": {"key: \"apikey:X-Api-Key\", limit: 3/1h", asJSON(`,"key":"k"`, ""), []string{"-field", "header:X-Api-Key=key"}, [4]int64{50, 47, 1, 1},
			"requests before the first with apikey:X-Api-Key: 2,000, to which the rule was not applied"},
		"a tier that there is not": {"key: ip, limit: 3/1h, tiers: {pro: 100/1h}", asJSON("", ""), []string{"-field", "tier=plan"}, [4]int64{lines + 50, 47, lines + 1, 1}, "the log does not have the field plan"},
		"a key that there is not":  {"key: \"apikey:X-Api-Key\", limit: 3/1h", asJSON("", ""), nil, [4]int64{}, "r     3/1h   off"},
	} {
		stdout, result := replays(t, "version: 1\nrules: [{name: r, "+c.rule+"}]", c.log, c.flags, c.says)
		got := numbers(t, result, "r")
		if got != c.want || strings.Contains(stdout, "does not have") != strings.Contains(name, "there is not") || (result.Rules[0].NotReplayed != "") != (c.want[0] == 0) {
			t.Errorf("%s: %v, want %v\n%s", name, got, c.want, stdout)
		}
	}
}

// Who is behind a proxy is believed from trusted proxies alone, as in the middleware.
func TestForwardedFor(t *testing.T) {
	const rules = "version: 1\nrules: [{name: per-ip, key: ip, limit: 100/1m}]"
	const log = `10.0.0.1 - - [20/Nov/2026:09:30:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-" "192.0.2.1"
10.0.0.1 - - [20/Nov/2026:09:30:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-" "6.6.6.6, 192.0.2.1"
10.0.0.1 - - [20/Nov/2026:09:30:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-" "192.0.2.2, 10.0.0.7"
203.0.113.9 - - [20/Nov/2026:09:30:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-" "192.0.2.1"
10.0.0.1 - - [20/Nov/2026:09:30:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-" "<script>"
`
	_, result := replays(t, rules, log, nil, "X-Forwarded-For of 5 requests is ignored")
	if got := numbers(t, result, "per-ip"); got[2] != 2 {
		t.Errorf("trusting nobody: %v", got)
	}
	_, result = replays(t, rules, log, []string{"-trusted-proxies", "10.0.0.0/8"}, "requests without ip: 1, which share one count, as they would in production")
	if got := numbers(t, result, "per-ip"); got[2] != 4 { // two behind the proxy, one who lies, and the one without
		t.Errorf("trusting 10.0.0.0/8: %v", got)
	}
}

func TestTiersSkipAndOwnAddresses(t *testing.T) {
	const rules = "version: 1\nrules: [{name: plan, key: ip, limit: 1/1h, tiers: {pro: 2/1h, staff: unlimited}}]"
	const log = `{"time":1795167000,"host":"a","plan":"","method":"GET","path":"/","status":200}
{"time":1795167000,"host":"a","plan":"","method":"GET","path":"/","status":200}
{"time":1795167000,"host":"b","plan":"pro","method":"GET","path":"/","status":200}
{"time":1795167000,"host":"b","plan":"pro","method":"GET","path":"/","status":200}
{"time":1795167000,"host":"c","plan":"staff","method":"GET","path":"/","status":200}
{"time":1795167000,"host":"a","plan":"","method":"GET","path":"/healthz","status":200}
`
	replays(t, rules, log, nil, "not replayed: the log does not have the client's address")
	stdout, result := replays(t, rules, log, []string{"-field", "ip=host", "-field", "tier=plan", "-skip", "GET /healthz"}, "smallest limit that denies under 1 % of the clients with the rule's own limit: 2/1h (0 of 1)")
	if got := numbers(t, result, "plan"); got != [4]int64{4, 1, 2, 1} {
		t.Errorf("%v\n%s", got, stdout)
	}
}

// Responses that a rule does not charge need no room in the smallest limit.
func TestWhatIsNotChargedNeedsNoRoom(t *testing.T) {
	const rules = "version: 1\nrules: [{name: a, key: ip, limit: 9/1m fixed_window, charge_on: [401]}]"
	log := strings.Repeat(at(nine, 1, "/"), 5) + strings.Replace(at(nine, 1, "/"), " 200 ", " 401 ", 1)
	replays(t, rules, log, nil, "of the clients: 1/1m fixed_window (0 of 1)")
}

// Bans and rules with sync are replayed as they are.
func TestBansAndSync(t *testing.T) {
	const rules = "version: 1\nrules: [{name: a, key: ip, limit: 1/1s fixed_window, ban: {after: 2, within: 1m, for: 15m}}, {name: b, key: ip, limit: 100/1m, sync: 1s}]"
	var log strings.Builder
	for _, seconds := range []int{0, 0, 0, 10, 20} {
		log.WriteString(at(nine.Add(time.Duration(seconds)*time.Second), 1, "/"))
	}
	stdout, result := replays(t, rules, log.String(), nil)
	if got := numbers(t, result, "a"); got[1] != 4 || numbers(t, result, "b")[0] != 5 { // the last two are banned
		t.Errorf("%v, want 4 denied\n%s", got, stdout)
	}
}
