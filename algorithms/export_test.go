package algorithms

import "time"

// KeyOf is the key of a check's count.
func KeyOf(namespace string, c Check) string { return keyOf(namespace, c) }

// SetClock sets the clock of this process, by which a Redis tells windows of calendars.
func (r *Redis) SetClock(now func() time.Time) { r.now = now }
