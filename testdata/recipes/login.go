package recipes

import (
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

func logins(client keyfunc.Key) []ratelimit.Rule {
	match := []string{"/auth/login"}
	account := keyfunc.Required(keyfunc.BodyJSON("email", 8<<10), http.StatusBadRequest)
	return []ratelimit.Rule{
		{
			Name: "login-ip", Match: match, Key: client, ChargeOn: []int{401, 403}, Fail: ratelimit.FailClosed,
			Limit: ratelimit.MustParse("10/1m sliding_log"),
			Ban:   ratelimit.Ban{After: 20, Within: 10 * time.Minute, For: time.Hour}, // at the twentieth failure
		},
		{
			Name: "login-account", Match: match, Key: account, ChargeOn: []int{401, 403}, Fail: ratelimit.FailClosed, Hidden: true,
			Limit: ratelimit.MustParse("20/1h sliding_log"),
		},
	}
}
