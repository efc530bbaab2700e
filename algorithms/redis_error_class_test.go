package algorithms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/internal/bridge"
)

// answer is what a Redis says after "-".
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestClassOf(t *testing.T) {
	for err, want := range map[error]bridge.ErrorClass{
		nil:                       "",
		redis.ErrPoolTimeout:      bridge.ClassBusy,
		redis.ErrClosed:           bridge.ClassUnreachable,
		io.EOF:                    bridge.ClassUnknown,
		os.ErrDeadlineExceeded:    bridge.ClassUnknown,
		context.DeadlineExceeded:  bridge.ClassUnknown,
		errors.New("anything"):    bridge.ClassUnknown,
		fmt.Errorf("%w", errBusy): bridge.ClassBusy,
		fmt.Errorf("x: %w", &net.OpError{Op: "dial", Err: io.EOF}):                                      bridge.ClassUnreachable,
		&net.OpError{Op: "read", Err: io.EOF}:                                                           bridge.ClassUnknown,
		checkReply([]int64{1}, 4, 1):                                                                    bridge.ClassMisused,
		answer("LOADING Redis is loading the dataset in memory"):                                        bridge.ClassUnavailable,
		answer("READONLY You can't write against a read only replica."):                                 bridge.ClassUnavailable,
		answer("ERR READONLY You can't write"):                                                          bridge.ClassUnavailable,
		answer("OOM command not allowed when used memory > 'maxmemory'. script: x, on @user_script:1."): bridge.ClassUnavailable,
		answer("ERR Error running script (call to f_91): @user_script:4: @user_script: 4: -READONLY You can't write against a read only replica."): bridge.ClassUnavailable,
		answer("ERR Error running script (call to f_91): @user_script:4: -OOM command not allowed"):                                                bridge.ClassUnavailable,
		answer("ERR Error running script (call to f_91): @user_script:4: user_script:4: attempt to index"):                                         bridge.ClassMisused,
		answer("BUSY Redis is busy running a script."):                                                                                             bridge.ClassUnavailable,
		answer("ERR max number of clients reached"):                                                                                                bridge.ClassUnavailable,
		answer("CLUSTERDOWN The cluster is down"):                                                                                                  bridge.ClassUnavailable,
		answer("TRYAGAIN Multiple keys request during rehashing"):                                                                                  bridge.ClassMoved,
		answer("MOVED 4134 127.0.0.1:19800"):                                                                                                       bridge.ClassMoved,
		answer("ASK 4134 127.0.0.1:19800"):                                                                                                         bridge.ClassMoved,
		answer("MISCONF Redis is configured to save RDB snapshots"):                                                                                bridge.ClassUnavailable,
		answer("NOAUTH Authentication required."):                                                                                                  bridge.ClassRefused,
		answer("ERR Protocol error: unauthenticated multibulk length"):                                                                             bridge.ClassRefused,
		answer("WRONGPASS invalid username-password pair"):                                                                                         bridge.ClassRefused,
		answer("NOPERM this user has no permissions to access"):                                                                                    bridge.ClassRefused,
		answer("ERR The user executing the script can't run this command or subcommand script: x"):                                                 bridge.ClassRefused,
		answer("WRONGTYPE Operation against a key"):                                                                                                bridge.ClassMisused,
		answer("CROSSSLOT Keys in request don't hash to the same slot"):                                                                            bridge.ClassMisused,
		answer("ERR user_script:1: attempt to index"):                                                                                              bridge.ClassMisused,
	} {
		if got := classOf(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
