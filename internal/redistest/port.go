package redistest

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Ports lie below the ranges from which Linux, macOS and Windows take the
// source ports of outgoing connections. Otherwise, while a server is stopped,
// any connection of the machine could be given its port, and a client that
// keeps dialling it could even be connected to itself. Cluster nodes also
// listen on port+busOffset, which has to stay below as well.
const (
	firstPort = 10_000
	portCount = 10_000
	busOffset = 10_000
)

// givenPorts are not given twice, so that a stopped server finds its port free
// when it restarts.
var givenPorts sync.Map

// freePort is a port on which, a moment ago, nobody listened.
func freePort() (int, error) {
	for range 1000 {
		port := firstPort + rand.IntN(portCount)
		if !isFree(port) || !isFree(port+busOffset) {
			continue
		}
		if _, given := givenPorts.LoadOrStore(port, true); !given {
			return port, nil
		}
	}
	return 0, errors.New("no free port found in 1000 tries")
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

const loopbackIP = "127.0.0.1"

func loopback(port int) string { return net.JoinHostPort(loopbackIP, strconv.Itoa(port)) }

// askPid asks the Redis at addr who it is. PONG alone would not do: the port
// may belong to a server of somebody else.
//
// It speaks the protocol itself because a go-redis pool stops dialling for a
// second after PoolSize failures.
func askPid(addr string, config *tls.Config) (int, error) {
	const limit = 250 * time.Millisecond // a stranger may accept and say nothing
	conn, err := net.DialTimeout("tcp", addr, limit)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }()
	if config != nil {
		conn = tls.Client(conn, config)
	}
	if err := conn.SetDeadline(time.Now().Add(limit)); err != nil {
		return 0, err
	}
	if _, err := io.WriteString(conn, "PING\r\nINFO server\r\n"); err != nil {
		return 0, err
	}
	r := bufio.NewReader(conn)
	if pong, err := r.ReadString('\n'); err != nil || pong != "+PONG\r\n" {
		return 0, fmt.Errorf("PING: %q, %w", pong, err)
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return 0, fmt.Errorf("INFO server: no process_id: %w", err)
		}
		if pid, ok := strings.CutPrefix(line, "process_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(pid))
		}
	}
}
