package docs

import (
	"errors"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// A listener hands out its connections.
type listener chan net.Conn

func (l listener) Accept() (net.Conn, error) {
	conn, ok := <-l
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l listener) Close() error   { close(l); return nil }
func (l listener) Addr() net.Addr { return &net.TCPAddr{} }

// A roll-out with an open stream is no error.
func TestShutDownEndsOpenStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			close(ended)
		})}
		conns, served := make(listener), make(chan error, 1)
		go func() { served <- server.Serve(conns) }()
		client, conn := net.Pipe()
		defer client.Close()
		conns <- conn
		if _, err := client.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		begin := time.Now()
		if err := shutDown(server); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 30*time.Second || took > 31*time.Second { // Shutdown polls
			t.Errorf("a stream has %s", took)
		}
		<-ended
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}
