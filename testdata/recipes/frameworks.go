package recipes

import (
	"bufio"
	"net"
	"net/http"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"

	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

func ginLimit(limit *ratelimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			if w == http.ResponseWriter(c.Writer) { // not wrapped: no Shedder, no ChargeOn
				c.Next()
				return
			}
			own := c.Writer
			c.Writer = &ginWriter{own, w}
			c.Next()
			if status := c.Writer.Status(); c.FullPath() == "" && status/10 == 40 && !c.Writer.Written() {
				http.Error(c.Writer, "no route", status) // otherwise gin writes it, unseen by the rules
			}
			c.Writer.WriteHeaderNow()
			c.Writer = own
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}

// A ginWriter shows the limiter what gin writes.
type ginWriter struct {
	gin.ResponseWriter
	limited http.ResponseWriter
}

func (w *ginWriter) WriteHeaderNow() {
	if !w.Written() {
		w.limited.WriteHeader(w.Status())
	}
	w.ResponseWriter.WriteHeaderNow()
}

func (w *ginWriter) Write(p []byte) (int, error) {
	w.WriteHeaderNow()
	return w.limited.Write(p)
}

func (w *ginWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }

func (w *ginWriter) Flush() {
	w.WriteHeaderNow()
	_ = http.NewResponseController(w.limited).Flush()
}

func (w *ginWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return http.NewResponseController(w.limited).Hijack()
}

func (w *ginWriter) Unwrap() http.ResponseWriter { return w.limited }

func echoLimit(e *echo.Echo, limit *ratelimit.Middleware) {
	e.Use(echo.WrapMiddleware(limit.Handler), func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			if err := next(c); err != nil {
				c.Error(err) // now, so that rules with ChargeOn see the status
			}
			return nil
		}
	})
}
