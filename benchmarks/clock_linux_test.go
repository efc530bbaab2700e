package benchmarks

import (
	"syscall"
	"time"
)

// sleepUntil wakes more exactly than Go's timers do, which wait for whole
// milliseconds where nothing else is to be done.
func sleepUntil(t time.Time) {
	for d := time.Until(t); d > 0; d = time.Until(t) {
		spec := syscall.NsecToTimespec(int64(d))
		_ = syscall.Nanosleep(&spec, nil) // if a signal ends it early, it sleeps again
	}
}

// cpuTime is what this process has used: other processes do not disturb it.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails for other arguments only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
