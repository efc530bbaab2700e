// 6. Outbound calls: 10 a second over all processes, obeying the third party.
package p06

import (
	"net/http"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/failmode"
	"github.com/seed75154129/ratelimit/headers"
)

func client(guard *failmode.Guard) *http.Client {
	limit := algorithms.Limit{Rate: 10, Period: time.Second, Burst: 10, Algorithm: algorithms.LeakyBucket}
	return &http.Client{Timeout: time.Minute, Transport: &headers.Transport{
		Limiter: guard, // a 429 with Retry-After holds back every process
		Checks: func(r *http.Request) []algorithms.Check {
			return []algorithms.Check{{Rule: "outbound", Key: r.URL.Host, Limit: limit}}
		},
	}}
}
