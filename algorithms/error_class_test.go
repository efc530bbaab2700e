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
)

// answer is what a Redis says after "-".
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestClassOf(t *testing.T) {
	for err, want := range map[error]ErrorClass{
		nil:                       "",
		redis.ErrPoolTimeout:      ClassBusy,
		redis.ErrClosed:           ClassUnreachable,
		io.EOF:                    ClassUnknown,
		os.ErrDeadlineExceeded:    ClassUnknown,
		context.DeadlineExceeded:  ClassUnknown,
		errors.New("anything"):    ClassUnknown,
		fmt.Errorf("%w", ErrBusy): ClassBusy,
		fmt.Errorf("%w: %w", ErrBudget, os.ErrDeadlineExceeded):                                         ClassUnknown,
		fmt.Errorf("x: %w", &net.OpError{Op: "dial", Err: io.EOF}):                                      ClassUnreachable,
		&net.OpError{Op: "read", Err: io.EOF}:                                                           ClassUnknown,
		checkReply([]int64{1}, 4, 1):                                                                    ClassMisused,
		answer("LOADING Redis is loading the dataset in memory"):                                        ClassUnavailable,
		answer("READONLY You can't write against a read only replica."):                                 ClassUnavailable,
		answer("ERR READONLY You can't write"):                                                          ClassUnavailable,
		answer("OOM command not allowed when used memory > 'maxmemory'. script: x, on @user_script:1."): ClassUnavailable,
		answer("ERR Error running script (call to f_91): @user_script:4: @user_script: 4: -READONLY You can't write against a read only replica."): ClassUnavailable,
		answer("ERR Error running script (call to f_91): @user_script:4: -OOM command not allowed"):                                                ClassUnavailable,
		answer("ERR Error running script (call to f_91): @user_script:4: user_script:4: attempt to index"):                                         ClassMisused,
		answer("BUSY Redis is busy running a script."):                                                                                             ClassUnavailable,
		answer("ERR max number of clients reached"):                                                                                                ClassUnavailable,
		answer("CLUSTERDOWN The cluster is down"):                                                                                                  ClassUnavailable,
		answer("TRYAGAIN Multiple keys request during rehashing"):                                                                                  ClassMoved,
		answer("MOVED 4134 127.0.0.1:19800"):                                                                                                       ClassMoved,
		answer("ASK 4134 127.0.0.1:19800"):                                                                                                         ClassMoved,
		answer("MISCONF Redis is configured to save RDB snapshots"):                                                                                ClassUnavailable,
		answer("NOAUTH Authentication required."):                                                                                                  ClassRefused,
		answer("ERR Protocol error: unauthenticated multibulk length"):                                                                             ClassRefused,
		answer("WRONGPASS invalid username-password pair"):                                                                                         ClassRefused,
		answer("NOPERM this user has no permissions to access"):                                                                                    ClassRefused,
		answer("ERR The user executing the script can't run this command or subcommand script: x"):                                                 ClassRefused,
		answer("WRONGTYPE Operation against a key"):                                                                                                ClassMisused,
		answer("CROSSSLOT Keys in request don't hash to the same slot"):                                                                            ClassMisused,
		answer("ERR user_script:1: attempt to index"):                                                                                              ClassMisused,
	} {
		if got := ClassOf(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}
