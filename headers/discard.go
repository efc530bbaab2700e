//go:build go1.27

package headers

import (
	"context"
	"net/http"
	"time"
)

// discard closes the body. From Go 1.27 on, net/http then reads the rest of a short
// body itself, so that the connection can be used again. A Close that meets a Read
// of a stalled body would wait for a mutex, which stops the time of a synctest bubble.
func discard(_ context.Context, resp *http.Response, _ time.Duration) {
	_ = resp.Body.Close()
}
