package docs

import (
	"context"
	"net/http"
	"time"
)

func shutDown(server *http.Server) error {
	time.AfterFunc(30*time.Second, func() { _ = server.Close() }) // preStop and these 30 s together are less than the grace period
	return server.Shutdown(context.Background())
}
