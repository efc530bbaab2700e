//go:build !linux

package benchmarks

import "time"

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }
