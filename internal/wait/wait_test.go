package wait_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/internal/wait"
)

func TestFor(t *testing.T) {
	for name, c := range map[string]struct {
		d, deadline, canceled time.Duration // 0 is none
		want                  error
		took                  time.Duration
	}{
		"nothing to wait for":      {0, 0, 0, nil, 0},
		"to the end":               {time.Hour, 0, 0, nil, time.Hour},
		"just in time":             {time.Hour, time.Hour + 1, 0, nil, time.Hour},
		"too late":                 {time.Hour, time.Hour - 1, 0, wait.ErrTooLate, 0},
		"canceled meanwhile":       {time.Hour, 0, time.Minute, context.Canceled, time.Minute},
		"canceled, for no time":    {0, 0, -1, nil, 0},
		"canceled before it began": {time.Hour, 0, -1, context.Canceled, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				if c.canceled > 0 {
					defer time.AfterFunc(c.canceled, cancel).Stop()
				} else if c.canceled < 0 {
					cancel()
				}
				begun := time.Now()
				err := wait.For(ctx, c.d)
				if took := time.Since(begun); !errors.Is(err, c.want) || took != c.took {
					t.Errorf("%v after %s, want %v after %s", err, took, c.want, c.took)
				}
			})
		})
	}
}
