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
	match := []string{"POST /auth/login"}
	account := keyfunc.Required(keyfunc.BodyJSON("email", 8<<10), http.StatusBadRequest)
	return []ratelimit.Rule{
		{
			Name: "login-ip", Match: match, Key: client, Limit: algorithms.PerMinute(10), ChargeOn: []int{401, 403}, Fail: failmode.Closed,
			Ban: algorithms.Ban{After: 20, Within: 10 * time.Minute, For: time.Hour}, // 20 denials more, and the address has an hour to wait
		},
		{Name: "login-account", Match: match, Key: account, Limit: algorithms.PerHour(20), ChargeOn: []int{401, 403}, Fail: failmode.Closed, Hidden: true},
	}
}
