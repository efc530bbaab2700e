package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"
)

// HangUp is an answer that closes the connection.
const HangUp = "hang up"

// StartAnswering starts a proxy that reads each command, and returns its address. What
// answer returns, such as "-ERR no\r\n", is the reply. If that is "", the server at addr
// gets the command. answer is called by several goroutines. The proxy speaks RESP2, and is
// closed in tb's Cleanup.
func StartAnswering(tb testing.TB, addr string, answer func(args []string) string) string {
	tb.Helper()
	l, err := net.Listen("tcp", loopback(0))
	if err != nil {
		tb.Fatalf("redistest: start a proxy: %v", err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	conns := []io.Closer{l}
	opened := func(c io.Closer) {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
	}
	tb.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	all.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return // closed
			}
			opened(client)
			all.Go(func() {
				defer func() { _ = client.Close() }()
				server, err := net.DialTimeout("tcp", addr, dialTimeout)
				if err != nil {
					return
				}
				opened(server)
				defer func() { _ = server.Close() }()
				serveAnswers(client, server, answer)
			})
		}
	})
	return l.Addr().String()
}

// serveAnswers answers a client's commands until one side ends.
func serveAnswers(client, server io.ReadWriter, answer func([]string) string) {
	commands, replies := bufio.NewReader(client), bufio.NewReader(server)
	for {
		raw, args, err := readRESP(commands)
		if err != nil {
			return
		}
		reply := answer(args)
		if reply == HangUp {
			return
		}
		if reply == "" {
			if _, err = io.WriteString(server, raw); err == nil {
				reply, _, err = readRESP(replies)
			}
		}
		if err == nil {
			_, err = io.WriteString(client, reply)
		}
		if err != nil {
			return
		}
	}
}

// readRESP reads one value: as it came, and the strings in it.
func readRESP(r *bufio.Reader) (raw string, texts []string, err error) {
	line, err := r.ReadString('\n')
	if err != nil || len(line) < len("+\r\n") {
		return "", nil, fmt.Errorf("read %q: %w", line, err)
	}
	n, _ := strconv.Atoi(line[1 : len(line)-len("\r\n")])
	switch raw = line; {
	case line[0] == '$' && n >= 0:
		text := make([]byte, n+len("\r\n"))
		if _, err = io.ReadFull(r, text); err != nil {
			return "", nil, err
		}
		return raw + string(text), []string{string(text[:n])}, nil
	case line[0] == '*':
		for range n {
			more, text, err := readRESP(r)
			if err != nil {
				return "", nil, err
			}
			raw, texts = raw+more, append(texts, text...)
		}
	}
	return raw, texts, nil
}
