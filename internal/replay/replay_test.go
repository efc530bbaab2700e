package replay_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/internal/replay"
)

func requestOf(body io.Reader) *http.Request {
	return &http.Request{Body: io.NopCloser(body), ContentLength: -1}
}

func TestOfReplacesTheBodyOnce(t *testing.T) {
	r := requestOf(strings.NewReader("abc"))
	body := replay.Of(r)
	if r.Body != io.ReadCloser(body) || replay.Of(r) != body || replay.Of(&http.Request{Body: r.Body}) != body {
		t.Error("several Bodies")
	}
	for _, none := range []io.ReadCloser{nil, http.NoBody} {
		if r := (&http.Request{Body: none}); replay.Of(r) != nil || r.Body != none {
			t.Errorf("%v was replaced", none)
		}
	}
}

// However a body is looked at before and while it is read, its reader gets all of
// it, and whoever looks gets all of it or an error.
func TestLookingChangesNothing(t *testing.T) {
	broken := errors.New("broken")
	rapid.Check(t, func(t *rapid.T) {
		sent := rapid.StringN(0, -1, 40).Draw(t, "sent")
		var rest io.Reader = strings.NewReader(sent)
		ends := error(nil)
		if rapid.Bool().Draw(t, "broken") {
			rest, ends = io.MultiReader(rest, iotest.ErrReader(broken)), broken
		}
		if rapid.Bool().Draw(t, "in small pieces") {
			rest = iotest.OneByteReader(rest)
		}
		r := requestOf(rest)
		r.ContentLength = rapid.SampledFrom([]int64{-1, 0, int64(len(sent)), 1 << 40}).Draw(t, "length")
		body, got, known, err := replay.Of(r), "", false, error(nil)
		for err == nil {
			if rapid.Bool().Draw(t, "look") {
				most := rapid.Int64Range(0, 50).Draw(t, "most")
				head, peekErr := body.Peek(most)
				fits := ends == nil && int64(len(sent)) <= most
				switch {
				case peekErr == nil && (string(head) != sent || !fits):
					t.Fatalf("Peek(%d): %q", most, head)
				case peekErr == nil:
					known = true
				case fits && (known || got == ""):
					t.Fatalf("Peek(%d), after %q was read: %v", most, got, peekErr)
				}
				continue
			}
			var n int
			p := make([]byte, rapid.IntRange(0, 9).Draw(t, "n"))
			n, err = body.Read(p)
			got += string(p[:n])
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if got != sent || !errors.Is(err, ends) {
			t.Fatalf("got %q, %v; want %q, %v", got, err, sent, ends)
		}
	})
}

func TestPeekSaysWhyNot(t *testing.T) {
	read := replay.Of(requestOf(strings.NewReader("abc")))
	if _, err := read.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	closed := replay.Of(requestOf(strings.NewReader("abc")))
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		body *replay.Body
		most int64
	}{
		"more than 2 bytes":        {replay.Of(requestOf(strings.NewReader("abc"))), 2},
		"it has been read already": {read, 3},
		"broken":                   {replay.Of(requestOf(iotest.ErrReader(errors.New("broken")))), 3},
	} {
		if head, err := c.body.Peek(c.most); head != nil || err == nil || err.Error() != want {
			t.Errorf("got %q, %v; want %s", head, err, want)
		}
	}
	if head, err := closed.Peek(3); err == nil {
		t.Errorf("a closed body has %q", head)
	}
}

// What is known of a body stays known when the handler has read and closed it.
func TestPeekAfterTheHandler(t *testing.T) {
	body := replay.Of(requestOf(strings.NewReader("abc")))
	for range 2 {
		if head, err := body.Peek(3); string(head) != "abc" || err != nil {
			t.Fatalf("got %q, %v", head, err)
		}
		_, _ = io.ReadAll(body)
		_ = body.Close()
	}
}

// Close must be able to end a Read that waits for the client.
func TestCloseDoesNotWaitForRead(t *testing.T) {
	reader, writer := io.Pipe()
	defer writer.Close()
	body := replay.Of(&http.Request{Body: reader})
	done := make(chan error)
	go func() {
		_, err := body.Read(make([]byte, 1))
		done <- err
	}()
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("Read: %v", err)
	}
}

// Run with -race.
func TestManyGoroutines(t *testing.T) {
	sent := strings.Repeat("abcdefgh", 1000)
	r := requestOf(iotest.HalfReader(strings.NewReader(sent)))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			head, err := replay.Of(r).Peek(int64(1000 * (i + 1)))
			if whole := i == 7; whole != (string(head) == sent) || whole != (err == nil) {
				t.Errorf("Peek(%d): %d bytes, %v", 1000*(i+1), len(head), err)
			}
		})
	}
	all.Wait()
	all.Go(func() { _, _ = replay.Of(r).Peek(10) })
	if got, err := io.ReadAll(r.Body); string(got) != sent || err != nil {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	all.Wait()
}
