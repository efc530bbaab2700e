//go:build !go1.27

package headers

import (
	"context"
	"io"
	"net/http"
	"time"
)

// discard reads a short body to its end, so that the connection can be used
// again, and closes it. If the server keeps it waiting, it closes the body after
// timeout, which ends the Read. That does not hold for a body that net/http
// decompresses: its Close waits for the first Read. Such a body is not read.
func discard(ctx context.Context, resp *http.Response, timeout time.Duration) {
	if !resp.Uncompressed {
		reading, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		stop := context.AfterFunc(reading, func() { _ = resp.Body.Close() })
		_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // closing the connection is cheaper than reading more
		if !stop() {
			return
		}
	}
	_ = resp.Body.Close()
}
