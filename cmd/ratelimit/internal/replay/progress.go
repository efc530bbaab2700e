package replay

import (
	"fmt"
	"io"
	"os"
	"time"
)

// progress tells how far the replay is.
type progress struct {
	sources []*source
	to      io.Writer // nil writes nothing
	every   time.Duration
	begun   time.Time
	next    time.Time
	begin   string // of a line
	told    bool
}

// newProgress writes to a terminal four times a second, and to anything else, if that is
// wanted, every ten seconds.
func newProgress(sources []*source, to io.Writer, verbose bool) *progress {
	s := &progress{sources: sources, to: to, every: 10 * time.Second, begun: time.Now()}
	if f, ok := to.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			s.every, s.begin, verbose = time.Second/4, "\r\x1b[K", true // the line is replaced
		}
	}
	if s.next = s.begun.Add(s.every); !verbose {
		s.to = nil
	}
	return s
}

func (s *progress) step(requests int64) {
	if s.to == nil || requests&1023 != 0 {
		return
	}
	now := time.Now()
	if now.Before(s.next) {
		return
	}
	s.next, s.told = now.Add(s.every), true
	var read, size int64
	for _, source := range s.sources {
		read += source.read
		if size += source.size; source.size == 0 {
			size += 1 << 62 / int64(len(s.sources)) // unknown
		}
	}
	line := fmt.Sprintf("%sreplay: %s requests in %.0f s", s.begin, count(requests), now.Sub(s.begun).Seconds())
	if size < 1<<60 {
		line += fmt.Sprintf(", %.0f %% of the logs", 100*float64(read)/float64(size))
	}
	if s.begin == "" {
		line += "\n"
	}
	_, _ = io.WriteString(s.to, line) // nobody to tell
}

func (s *progress) end() {
	if s.told && s.begin != "" {
		_, _ = io.WriteString(s.to, s.begin)
	}
}
