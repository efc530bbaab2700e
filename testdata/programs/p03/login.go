// 3. Five failed logins a minute per IP and per account, then a ban of 15 minutes.
package p03

import (
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func limits(guard *failmode.Guard, trusted keyfunc.Proxies, secret []byte) (*ratelimit.Middleware, error) {
	login := ratelimit.Rule{
		Match:    []string{"POST /auth/login"},
		Limit:    algorithms.Limit{Rate: 5, Period: time.Minute, Algorithm: algorithms.SlidingLog},
		ChargeOn: []int{http.StatusUnauthorized, http.StatusForbidden}, // a success gives back
		Ban:      algorithms.Ban{After: 1, For: 15 * time.Minute},      // at the first denial
		Fail:     failmode.Closed,
	}
	byIP, byAccount := login, login
	byIP.Name, byIP.Key = "login-ip", trusted.IP()
	byAccount.Name, byAccount.Hidden = "login-account", true // nobody learns how active an account is
	byAccount.Key = keyfunc.Hashed(keyfunc.Required(keyfunc.BodyJSON("email", 8<<10), http.StatusBadRequest), secret)
	return ratelimit.New(ratelimit.Config{
		Limiter: guard,
		Rules:   []ratelimit.Rule{byIP, byAccount},
		Refused: func(w http.ResponseWriter, r *http.Request, err error) {
			http.Error(w, `{"error":"email required"}`, http.StatusBadRequest)
		},
	})
}
