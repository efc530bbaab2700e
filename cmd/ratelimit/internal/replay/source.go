package replay

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	maxLine    = 64 << 10 // longer lines are bad ones: servers bound the request and each header by 8 KiB
	sampled    = 1024     // lines, by which the plan is made
	sampleSize = 4 << 20  // bytes of them
)

// A source is one log: a file, or standard input.
type source struct {
	name   string
	size   int64 // bytes as they are stored; 0 if that is not known
	read   int64 // of them
	plan   *plan
	trash  *trash
	lines  *bufio.Reader
	number int64    // of the last line
	sample []string // the first lines, as far as they are not taken
	err    error    // why the log ended early

	order order
	head  *numbered // the earliest request that is not taken; nil until peek finds it
	close func() error
}

// open opens a log and reads its beginning.
func open(name string, stdin io.Reader, t *trash) (*source, error) {
	s := &source{name: name, trash: t, close: func() error { return nil }}
	stored := stdin
	if name == "-" {
		s.name = "stdin"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		s.close, stored = f.Close, f
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			s.size = info.Size()
		}
	}
	plain, err := unpacked(bufio.NewReaderSize(&counted{stored, &s.read}, maxLine))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", s.name, err), s.close())
	}
	s.lines = bufio.NewReaderSize(plain, maxLine)
	for size := 0; len(s.sample) < sampled && size < sampleSize; {
		line, ok := s.readLine()
		if !ok {
			break
		}
		s.sample = append(s.sample, line)
		size += len(line)
	}
	s.order.late = func(r *numbered, by time.Duration) { t.late(s.name, r, by) }
	s.order.jumped = func(r *numbered) { t.jumped(s.name, r) }
	return s, nil
}

// unpacked returns the content of a log that gzip or bzip2 has packed, or the log itself.
func unpacked(stored *bufio.Reader) (io.Reader, error) {
	magic, _ := stored.Peek(3)
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		return gzip.NewReader(stored)
	case bytes.Equal(magic, []byte("BZh")):
		return bzip2.NewReader(stored), nil
	case bytes.HasPrefix(magic, []byte{0x28, 0xb5, 0x2f}):
		return nil, errors.New("packed by zstd: unpack it, as in zstd -dc FILE | ratelimit replay -rules RULES -")
	}
	return stored, nil
}

// A counted reader counts bytes.
type counted struct {
	io.Reader
	n *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += int64(n)
	return n, err
}

// readLine returns the next line; false at the end of the log.
func (s *source) readLine() (string, bool) {
	line, err := s.lines.ReadSlice('\n')
	if len(line) == 0 && err != nil {
		if !errors.Is(err, io.EOF) {
			s.err = err
		}
		return "", false
	}
	s.number++
	line = bytes.TrimRight(line, "\r\n")
	if s.number == 1 {
		line = bytes.TrimPrefix(line, []byte("\ufeff"))
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		s.trash.bad(s.name, s.number, string(line), errLong)
		line = nil
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = s.lines.ReadSlice('\n')
		}
	}
	return string(line), true
}

// next puts the next line in order; false at the end of the log.
func (s *source) next() bool {
	var line string
	number := s.number - int64(len(s.sample)) + 1
	if len(s.sample) > 0 {
		line, s.sample = s.sample[0], s.sample[1:]
	} else {
		var ok bool
		if line, ok = s.readLine(); !ok {
			return false
		}
	}
	if line == "" {
		return true
	}
	r, err := s.plan.parse(line)
	if err != nil {
		s.trash.bad(s.name, number, line, err)
		return true
	}
	s.order.add(&numbered{r, number})
	return true
}

// peek returns the earliest request that is not taken; nil at the end.
func (s *source) peek() *numbered {
	for more := true; s.head == nil && more; {
		if s.head = s.order.ready(false); s.head == nil {
			more = s.next()
		}
	}
	if s.head == nil {
		s.head = s.order.ready(true)
	}
	return s.head
}

// earliest returns the source that has the next request; nil when all have ended.
// Logs of several servers overlap, and rotated ones follow each other.
func earliest(sources []*source) (first *source) {
	for _, s := range sources {
		if r := s.peek(); r != nil && (first == nil || r.at.Before(first.head.at)) {
			first = s
		}
	}
	return first
}
