package onstatus_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/internal/onstatus"
)

// full is a ResponseWriter with every optional method.
type full struct{ *httptest.ResponseRecorder }

func (full) Flush() {}
func (full) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return nil, nil, nil
}
func (f full) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{f.ResponseRecorder}, r)
}

// Every combination of optional methods is that of the writer underneath. A flush that is
// not supported writes no status.
func TestEveryKindOfWriter(t *testing.T) {
	type (
		w = http.ResponseWriter
		f = http.Flusher
		h = http.Hijacker
	)
	can := func(w http.ResponseWriter) (does [3]bool) {
		_, does[0] = w.(http.Flusher)
		_, does[1] = w.(http.Hijacker)
		_, does[2] = w.(io.ReaderFrom)
		return does
	}
	all := full{httptest.NewRecorder()}
	seen := make(map[[3]bool]bool)
	for _, under := range []http.ResponseWriter{
		struct{ w }{all}, struct { // HTTP/2
			w
			f
		}{all, all}, struct {
			w
			h
		}{all, all}, struct { // gin's
			w
			f
			h
		}{all, all, all}, all,
	} {
		want := can(under)
		seen[want] = true
		all.Body.Reset()
		told := 0
		got := onstatus.Wrap(under, func(status int) { told = status })
		if can(got) != want {
			t.Errorf("%v, want %v", can(got), want)
		}
		if u, ok := got.(interface{ Unwrap() http.ResponseWriter }); !ok || u.Unwrap() != under {
			t.Errorf("%v does not unwrap to its own", want)
		}
		if err := http.NewResponseController(got).Flush(); errors.Is(err, http.ErrNotSupported) == want[0] || (told == http.StatusOK) != want[0] {
			t.Errorf("%v: a flush: %v; told %d", want, err, told)
		}
		text := strings.Repeat("0123456789", 100)
		if n, err := io.Copy(got, struct{ io.Reader }{strings.NewReader(text)}); n != 1000 || err != nil || all.Body.String() != text || told != http.StatusOK {
			t.Errorf("%v: copied %d, %v; told %d", want, n, err, told)
		}
	}
	if len(seen) != 5 {
		t.Errorf("%d kinds of writers", len(seen))
	}
}

// What a connection can copy by itself, it copies: a file, and a part of one. A pipe is none,
// though it is an *os.File.
func TestFilesAreCopiedByTheConnection(t *testing.T) {
	file, err := os.Open("onstatus.go")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, _ = w.WriteString(strings.Repeat("x", 1000))
	w.Close()
	for _, c := range []struct {
		src  io.Reader
		want bool
	}{{io.LimitReader(file, 1000), true}, {file, true}, {r, false}} {
		under := &copies{ResponseRecorder: httptest.NewRecorder()}
		_, err := io.Copy(onstatus.Wrap(under, func(int) {}), c.src)
		if got := under.itself; err != nil || got != c.want || under.Body.Len() < 1000 {
			t.Errorf("%T: copied by the connection: %v, want %v; %d bytes, %v", c.src, got, c.want, under.Body.Len(), err)
		}
	}
}

type copies struct {
	*httptest.ResponseRecorder
	itself bool
}

func (*copies) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

func (c *copies) ReadFrom(src io.Reader) (int64, error) {
	c.itself = true
	return io.Copy(c.ResponseRecorder, src)
}

// The function is called once, with the final status, before that is written.
func TestTheStatusIsToldOnceBeforeItIsWritten(t *testing.T) {
	broken := io.MultiReader(strings.NewReader(""), readerFunc(func([]byte) (int, error) { return 0, errors.New("broken") }))
	for name, c := range map[string]struct {
		respond func(http.ResponseWriter)
		want    []int
	}{
		"nothing":  {func(http.ResponseWriter) {}, nil},
		"a status": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnauthorized); w.WriteHeader(http.StatusOK) }, []int{401}},
		"an informational one": {func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnauthorized)
		}, []int{401}},
		"an informational one alone": {func(w http.ResponseWriter) { w.WriteHeader(http.StatusEarlyHints) }, nil},
		"101":                        {func(w http.ResponseWriter) { w.WriteHeader(http.StatusSwitchingProtocols) }, []int{101}},
		"none":                       {func(w http.ResponseWriter) { w.WriteHeader(0) }, nil}, // net/http panics
		"one below 100":              {func(w http.ResponseWriter) { w.WriteHeader(99) }, nil},
		"one of 4 digits":            {func(w http.ResponseWriter) { w.WriteHeader(1000) }, nil},
		"the largest":                {func(w http.ResponseWriter) { w.WriteHeader(999) }, []int{999}},

		"a body":          {func(w http.ResponseWriter) { fmt.Fprint(w, "hi"); w.WriteHeader(http.StatusUnauthorized) }, []int{200}},
		"nothing written": {func(w http.ResponseWriter) { _, _ = w.Write(nil) }, []int{200}},
		"a string":        {func(w http.ResponseWriter) { _, _ = io.WriteString(w, "hi") }, []int{200}},
		"a flush":         {func(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }, []int{200}},
		"a hijack": {func(w http.ResponseWriter) {
			_, _, _ = w.(http.Hijacker).Hijack()
			w.WriteHeader(http.StatusOK)
		}, []int{101}},
		"an empty source": {func(w http.ResponseWriter) {
			_, _ = w.(io.ReaderFrom).ReadFrom(broken)
			w.WriteHeader(http.StatusUnauthorized)
		}, []int{401}},
	} {
		t.Run(name, func(t *testing.T) {
			under := full{httptest.NewRecorder()}
			under.Code = 0
			var told []int
			defer func() {
				if _ = recover(); !slices.Equal(told, c.want) {
					t.Errorf("told %v, want %v", told, c.want)
				}
			}()
			c.respond(onstatus.Wrap(under, func(status int) {
				if under.Code >= 200 {
					t.Error("told after it was written")
				}
				told = append(told, status)
			}))
		})
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// unwraps is what most middleware makes of a ResponseWriter, such as to log the status.
type unwraps struct{ http.ResponseWriter }

func (w unwraps) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A handler that takes over the connection of a writer further inside is noticed.
func TestAHijackInsideAnotherWrapper(t *testing.T) {
	var told []int
	w := onstatus.Wrap(unwraps{full{httptest.NewRecorder()}}, func(status int) { told = append(told, status) })
	if _, _, err := http.NewResponseController(w).Hijack(); err != nil {
		t.Fatal(err)
	}
	if w.WriteHeader(http.StatusBadGateway); !slices.Equal(told, []int{http.StatusSwitchingProtocols}) {
		t.Errorf("told %v", told)
	}
}
