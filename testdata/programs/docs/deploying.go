package docs

import (
	"context"
	"errors"
	"net/http"
	"time"
)

func shutDown(server *http.Server) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second) // preStop and these 30 s together are less than the grace period
	defer cancel()
	err = server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // ends open streams
	}
	return err
}
