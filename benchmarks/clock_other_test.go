//go:build !linux

package benchmarks

import "time"

func sleepUntil(t time.Time) { time.Sleep(time.Until(t)) }

// cpuTime is the nearest thing that every system has.
func cpuTime() time.Duration { return wallTime() }
