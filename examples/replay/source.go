package main

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

const (
	maxLine   = 64 << 10 // longer lines are bad ones: servers bound the request and each header by 8 KiB
	batchSize = 1024     // lines
)

// A source is one log: a file, or standard input.
type source struct {
	name   string
	size   int64 // bytes as they are stored; 0 if that is not known
	read   atomic.Int64
	plan   *plan
	trash  *trash
	lines  *bufio.Reader
	number int64  // of the last line
	first  *batch // read to make the plan
	err    error  // why the log ended early

	batches chan *batch // in order
	parsed  []numbered  // that are not in order yet
	order   order
	head    *numbered // the earliest request that is not taken; nil until peek finds it
	close   func() error
}

// A batch is lines that are parsed together.
type batch struct {
	lines  []string
	from   int64 // the number of the first one
	parsed []numbered
	done   chan struct{}
}

// open opens a log and reads its beginning.
func open(name string, stdin io.Reader, t *trash) (*source, error) {
	s := &source{name: name, trash: t, close: func() error { return nil }}
	stored := stdin
	if name == "-" {
		s.name = "stdin"
	} else {
		f, err := os.Open(name) //nolint:gosec // the user names the file
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
	s.first = s.readBatch()
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
		return nil, errors.New("packed by zstd: unpack it, as in zstd -dc FILE | replay -rules RULES -")
	}
	return stored, nil
}

// A counted reader counts bytes.
type counted struct {
	io.Reader
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// readBatch reads the next lines. At the end of the log there are none.
func (s *source) readBatch() *batch {
	b := &batch{from: s.number + 1, done: make(chan struct{})}
	var text strings.Builder
	var ends []int
	for len(ends) < batchSize && text.Len() < batchSize*maxLine/16 {
		line, err := s.lines.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			if !errors.Is(err, io.EOF) {
				s.err = err
			}
			break
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
		text.Write(line)
		ends = append(ends, text.Len())
	}
	begin := 0
	for _, end := range ends {
		b.lines = append(b.lines, text.String()[begin:end])
		begin = end
	}
	return b
}

// start reads the log in the background. The goroutines that receive from work parse
// its lines. Reading ends with the log, or when stop is closed.
func (s *source) start(work chan<- func(), stop <-chan struct{}) {
	s.batches = make(chan *batch, 4)
	first := s.first
	s.first = nil
	go func() {
		defer close(s.batches)
		for b := first; len(b.lines) > 0; b = s.readBatch() {
			select {
			case s.batches <- b:
			case <-stop:
				return
			}
			select {
			case work <- func() { s.parse(b) }:
			case <-stop:
				return
			}
		}
	}()
}

// parse parses the lines of a batch.
func (s *source) parse(b *batch) {
	b.parsed = make([]numbered, 0, len(b.lines))
	for i, line := range b.lines {
		if line == "" {
			continue
		}
		r, err := s.plan.parse(line)
		if err != nil {
			s.trash.bad(s.name, b.from+int64(i), line, err)
			continue
		}
		b.parsed = append(b.parsed, numbered{r, b.from + int64(i)})
	}
	close(b.done)
}

// peek returns the earliest request that is not taken; nil at the end.
func (s *source) peek() *numbered {
	for s.head == nil {
		if s.head = s.order.ready(false); s.head != nil {
			break
		}
		if len(s.parsed) > 0 {
			s.order.add(&s.parsed[0])
			s.parsed = s.parsed[1:]
		} else if b, ok := <-s.batches; ok {
			<-b.done
			s.parsed = b.parsed
		} else {
			s.head = s.order.ready(true)
			break
		}
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

// sample parses the lines that were read for the plan.
func (s *source) sample() (all []request) {
	for _, line := range s.first.lines {
		if r, err := s.plan.parse(line); err == nil {
			all = append(all, r)
		}
	}
	return all
}
