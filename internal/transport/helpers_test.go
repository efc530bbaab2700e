package transport_test

import (
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// roomy is a budget for tests that are about something else.
const roomy = 10 * time.Second

// storeOf is a Redis as package failmode has it.
var storeOf = (*algorithms.Redis).Store

// transportOf is what a Redis sends through.
func transportOf(r *algorithms.Redis) *transport.Transport { return storeOf(r).Transport }

func perDay(rate int64) algorithms.Limit {
	return algorithms.Limit{Rate: rate, Period: 24 * time.Hour}
}
