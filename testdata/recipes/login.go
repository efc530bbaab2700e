package recipes

import (
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func logins(client keyfunc.Key) []ratelimit.Rule {
	match := []string{"/auth/login"}
	account := keyfunc.Required(keyfunc.BodyJSON("email", 8<<10), http.StatusBadRequest)
	return []ratelimit.Rule{
		{
			Name: "login-ip", Match: match, Key: client, ChargeOn: []int{401, 403}, Fail: failmode.Closed,
			Limit: algorithms.Limit{Rate: 10, Period: time.Minute, Algorithm: algorithms.SlidingLog},
			Ban:   algorithms.Ban{After: 20, Within: 10 * time.Minute, For: time.Hour}, // 10 failures, then 20 denials
		},
		{
			Name: "login-account", Match: match, Key: account, ChargeOn: []int{401, 403}, Fail: failmode.Closed, Hidden: true,
			Limit: algorithms.Limit{Rate: 20, Period: time.Hour, Algorithm: algorithms.SlidingLog},
		},
	}
}
