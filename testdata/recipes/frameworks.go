package recipes

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed75154129/ratelimit"
)

func ginLimit(limit *ratelimit.Middleware) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		limit.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			passed, c.Request = true, r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort()
		}
	}
}
