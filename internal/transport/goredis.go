package transport

import "github.com/redis/go-redis/v9"

// go-redis before 9.19 ignores NoRetry: it sends a command that timed out up to
// four times, and Redis executes each. go.mod rules that out; if a replace
// directive goes back behind it, this line does not compile.
var _ = redis.Cmder.NoRetry
