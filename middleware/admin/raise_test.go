package admin_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/algorithms/limitertest"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/admin"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// An operator raises a client's limit in the document that all processes follow, in each
// form that a rule may have there. All else in the document stays. A client whose key is a
// secret is not written into the document by a page that does not show it.
func TestAdminRaises(t *testing.T) {
	const good = `{"client":["alice"],"limit":["9/1m sliding_log"],"until":"2000-01-08T00:00:00Z"}`
	for name, c := range map[string]struct{ rule, want string }{ // want is what follows "rules:"
		"block":             {"\n  - name: r # why\n    key: user\n    limit: 1/1m sliding_log\n", "\n  - name: r # why\n    overrides: [" + good + "]\n    key: user\n    limit: 1/1m sliding_log\n"},
		"name at the end":   {"\n- limit: 1/1m sliding_log\n  key: user\n  name: r\n", ""},
		"flow":              {" [{name: r, key: user, limit: 1/1m sliding_log}]\n", ` [{"overrides": [` + good + `], name: r, key: user, limit: 1/1m sliding_log}]` + "\n"},
		"flow, non-ASCII":   {" [{x-n: 'é', name: o, key: user, limit: 99/1m}, {name: r, key: user, limit: 1/1m sliding_log}]\n", ` [{x-n: 'é', name: o, key: user, limit: 99/1m}, {"overrides": [` + good + `], name: r, key: user, limit: 1/1m sliding_log}]` + "\n"},
		"flow overrides":    {"\n- name: r\n  overrides: [{client: bob, limit: 7/1h sliding_log}]\n  key: user\n  limit: 1/1m sliding_log\n", "\n- name: r\n  overrides: [" + good + ", {client: bob, limit: 7/1h sliding_log}]\n  key: user\n  limit: 1/1m sliding_log\n"},
		"block overrides":   {"\n- name: r\n  key: user\n  limit: 1/1m sliding_log\n  overrides:\n    # of sales\n    - client: bob\n      limit: 7/1h sliding_log", "\n- name: r\n  key: user\n  limit: 1/1m sliding_log\n  overrides:\n    # of sales\n    - " + good + "\n    - client: bob\n      limit: 7/1h sliding_log"},
		"the same client":   {"\n- name: r\n  overrides: [{client: alice, limit: 7/1h sliding_log}]\n  key: user\n  limit: 1/1m sliding_log\n", ""},
		"a secret":          {" [{name: r, key: 'apikey:User', limit: 1/1m sliding_log}]\n", ""}, // which the page does not show
		"a dash of its own": {"\n- name: r\n  key: user\n  limit: 1/1m sliding_log\n  overrides:\n    -\n      client: bob\n      limit: 7/1h sliding_log\n", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			fleet := rulefile.Fleet{Client: limitertest.Redis(t), Namespace: "shop"}
			before := "version: 1\nrules:" + c.rule
			if _, err := fleet.Publish(t.Context(), rulefile.Document{Text: []byte(before)}, 0); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			loader := &rulefile.Loader{Source: fleet, Keys: map[string]keyfunc.Key{"user": keyfunc.Header("User")}}
			rules, err := loader.Load(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			m := mustNew(t, ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules})
			o := operator{admin.Handler(m), t, ""}
			const raise = "action=raise&rule=r&value=alice&for=7d&limit="
			limit := url.QueryEscape("9/1m sliding_log")
			if w := o.post(raise + limit); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "does not follow a document in Redis") {
				t.Errorf("%s, before Watch: %d %s", name, w.Code, w.Body)
			}
			go loader.Watch(t.Context(), m)
			time.Sleep(4 * time.Second) // of fake time
			time.Sleep(time.Until(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)))
			for _, bad := range []string{"9", "", "unlimited,"} {
				if w := o.post(raise + bad); w.Code != http.StatusBadRequest {
					t.Errorf("%s: limit %q: %d %s", name, bad, w.Code, w.Body)
				}
			}
			w := o.post(raise + limit)
			d, err := fleet.Document(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if w.Code != http.StatusConflict || d.Version != 1 || string(d.Text) != before {
					t.Errorf("%s: %d %s\nversion %d:\n%s", name, w.Code, w.Body, d.Version, d.Text)
				}
				return
			}
			want := "version: 1\nrules:" + c.want
			want = strings.ReplaceAll(want, "2000-01-08T00:00:00Z", time.Now().Add(7*24*time.Hour).UTC().Format(time.RFC3339))
			if w.Code != http.StatusOK || d.Version != 2 || string(d.Text) != want {
				t.Errorf("%s: %d %s\nversion %d:\n%s\nwant\n%s", name, w.Code, w.Body, d.Version, d.Text, want)
			}
			time.Sleep(4 * time.Second)
			app := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
			if got := times(9, app, "GET /", "User", "alice"); got != http.StatusOK {
				t.Errorf("%s: alice's ninth request: %d", name, got)
			}
			if got := times(2, app, "GET /", "User", "eve"); got != http.StatusTooManyRequests {
				t.Errorf("%s: eve's second request: %d", name, got)
			}
		})
	}
}
