package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// answer is what a Redis says after "-".
type answer string

func (a answer) Error() string { return string(a) }
func (answer) RedisError()     {}

func TestClassOf(t *testing.T) {
	for err, want := range map[error]transport.ErrorClass{
		nil:                  "",
		redis.ErrPoolTimeout: transport.ClassBusy,
		redis.ErrClosed:      transport.ClassConnection,
		io.EOF:               transport.ClassConnection,
		errors.New("redis: autopipeline: queue full (MaxQueuedCommands reached)"):           transport.ClassBusy,
		&net.OpError{Op: "dial", Err: os.NewSyscallError("socket", syscall.EMFILE)}:         transport.ClassBusy,
		&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)}: transport.ClassBusy,
		os.ErrDeadlineExceeded:                                     transport.ClassTimeout,
		context.DeadlineExceeded:                                   transport.ClassTimeout,
		errors.New("anything"):                                     transport.ClassAnswer,
		fmt.Errorf("%w", transport.ErrBusy):                        transport.ClassBusy,
		fmt.Errorf("x: %w", transport.ErrReply):                    transport.ClassAnswer,
		&net.OpError{Op: "read", Err: io.EOF}:                      transport.ClassConnection,
		&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}:      transport.ClassTimeout,
		fmt.Errorf("x: %w", &net.OpError{Op: "dial", Err: io.EOF}): transport.ClassConnection,
		fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(redis.Nil)): transport.ClassConnection,
	} {
		if got := transport.ClassOf(err); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

// What Redis 6.2, 7.0 and 8.0 and Valkey 8.0 and 9.1 answer.
func TestClassOfAnswers(t *testing.T) {
	const sha = " script: 9281215b5471fb7f1dce4d7526d4060ae7a50b43, on @user_script:1."
	const valkey9 = " script: on @user_script:1."
	type is struct {
		class       transport.ErrorClass
		notExecuted bool
	}
	unavailable, moved := is{transport.ClassAnswer, true}, is{transport.ClassBusy, true}
	refused, inScript := is{transport.ClassRefused, true}, is{transport.ClassRefused, false}
	other := is{transport.ClassAnswer, false}
	for text, want := range map[string]is{
		"NOSCRIPT No matching script. Please use EVAL.":                                                                                    moved,
		"LOADING Redis is loading the dataset in memory":                                                                                   unavailable,
		"LOADING Valkey is loading the dataset in memory":                                                                                  unavailable,
		"READONLY You can't write against a read only replica.":                                                                            unavailable,
		"READONLY You can't write against a read only replica." + sha:                                                                      unavailable,
		"OOM command not allowed when used memory > 'maxmemory'." + sha:                                                                    unavailable,
		"OOM command not allowed when used memory > 'maxmemory'." + valkey9:                                                                unavailable,
		"MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.":                                                 unavailable,
		"NOREPLICAS Not enough good replicas to write." + sha:                                                                              unavailable,
		"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                                           unavailable,
		"BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.":                                          unavailable,
		"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.":                                 unavailable,
		"MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk.":                                unavailable,
		"ERR max number of clients reached":                                                                                                unavailable,
		"CLUSTERDOWN The cluster is down":                                                                                                  unavailable,
		"CLUSTERDOWN Hash slot not served":                                                                                                 unavailable,
		"ERR Error running script (call to f_91): @user_script:4: @user_script: 4: -READONLY You can't write against a read only replica.": unavailable,
		"ERR Error running script (call to f_91): @user_script:4: -OOM command not allowed":                                                unavailable,

		"NOSCRIPT No matching script.": moved,

		"MOVED 8579 127.0.0.1:10581":                      moved,
		"ASK 4134 127.0.0.1:19800":                        moved,
		"TRYAGAIN Multiple keys request during rehashing": moved,

		"NOAUTH Authentication required.":                               refused,
		"ERR Protocol error: unauthenticated multibulk length":          refused,
		"ERR Protocol error: unauthenticated bulk length":               refused,
		"WRONGPASS invalid username-password pair or user is disabled.": refused,
		"DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the default user.": refused,
		"DENIED Running in protected mode because protected mode is enabled and no password is set for the default user.":          refused,

		"NOPERM this user has no permissions to run the 'evalsha' command":                       refused,
		"NOPERM User nozadd has no permissions to run the 'evalsha' command":                     refused,
		"NOPERM this user has no permissions to access one of the keys used as arguments":        refused,
		"NOPERM No permissions to access a key":                                                  refused,
		"ERR unknown command 'evalsha', with args beginning with: 'e0e1f9fa' '1' 'k' 'a1' 'a2' ": refused,

		"ERR The user executing the script can't run this command or subcommand" + sha:                                                                 inScript,
		"ERR The user executing the script can't access at least one of the keys mentioned in the command arguments" + sha:                             inScript,
		"ERR ACL failure in script: User nopsetex has no permissions to run the 'psetex' command" + sha:                                                inScript,
		"ERR ACL failure in script: User nopsetex has no permissions to run the 'psetex' command" + valkey9:                                            inScript,
		"ERR ACL failure in script: No permissions to access a key" + sha:                                                                              inScript,
		"ERR Unknown Redis command called from script" + sha:                                                                                           inScript,
		"ERR Unknown command called from script" + sha:                                                                                                 inScript,
		"ERR Unknown command called from script" + valkey9:                                                                                             inScript,
		"ERR Error running script (call to f_91): @user_script:4: @user_script: 4: The user executing the script can't run this command or subcommand": inScript,

		"WRONGTYPE Operation against a key holding the wrong kind of value" + sha:                  other,
		"CROSSSLOT Keys in request don't hash to the same slot":                                    other,
		"ERR user_script:1: attempt to index local 'x' (a nil value)" + sha:                        other,
		"ERR Script killed by user with SCRIPT KILL..." + sha:                                      other,
		"ERR Error running script (call to f_91): @user_script:4: user_script:4: attempt to index": other,
	} {
		err := fmt.Errorf("algorithms: redis: %w", answer(text))
		if got := (is{transport.ClassOf(err), transport.NotExecuted(err)}); got != want {
			t.Errorf("%s: %+v, want %+v", text, got, want)
		}
	}
}

// A script that is refused a command has charged what it charged before.
func TestARefusalInAScriptIsNotCertainlyNotExecuted(t *testing.T) {
	srv := redistest.Start(t)
	admin := srv.Client(t)
	user := func(rules ...any) *algorithms.Redis {
		rules = append([]any{"ACL", "SETUSER", "limiter", "reset", "on", ">secret", "~*", "+@all"}, rules...)
		if err := admin.Do(t.Context(), rules...).Err(); err != nil {
			t.Fatal(err)
		}
		client := redis.NewClient(algorithms.FailFast(&redis.Options{Addr: srv.Addr, Username: "limiter", Password: "secret", ReadTimeout: roomy, DialTimeout: roomy}))
		t.Cleanup(func() { client.Close() })
		return &algorithms.Redis{Client: client, Namespace: "test", Budget: roomy}
	}
	window := algorithms.Check{Rule: "window", Key: "k", Limit: perDay(10)}
	log := algorithms.Check{Rule: "log", Key: "k", Limit: algorithms.Limit{Rate: 10, Period: perDay(10).Period, Algorithm: algorithms.SlidingLog}}

	_, err := user("-psetex", "-set").Take(t.Context(), log, window)
	if transport.ClassOf(err) != transport.ClassRefused || transport.NotExecuted(err) {
		t.Errorf("PSETEX is not permitted: class %q, certainly not executed %v, %v", transport.ClassOf(err), transport.NotExecuted(err), err)
	}
	d, err := user().Peek(t.Context(), log)
	if err != nil || d.Results[0].Remaining != 9 {
		t.Errorf("the script wrote before it was refused: %+v, %v; want 9 left", d, err)
	}
	if _, err := user("-evalsha").Take(t.Context(), window); !transport.NotExecuted(err) {
		t.Errorf("EVALSHA is not permitted: certainly not executed %v, %v", transport.NotExecuted(err), err)
	}
}

func TestNoConnection(t *testing.T) {
	silenced := redistest.Start(t)
	sentinel := redistest.StartSentinel(t)
	for name, client := range map[string]*redis.Client{
		"nobody listens": redis.NewClient(algorithms.FailFast(&redis.Options{Addr: "127.0.0.1:1"})),
		"no Sentinel":    redis.NewFailoverClient(algorithms.FailFast(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{"127.0.0.1:1"}})),
		"a Redis that is no Sentinel": redis.NewFailoverClient(algorithms.FailFast(&redis.FailoverOptions{
			MasterName: "m", SentinelAddrs: []string{silenced.Addr}, DialTimeout: roomy})),
		"an untrusted certificate": redis.NewClient(algorithms.FailFast(&redis.Options{
			Addr: redistest.StartTLS(t).Addr, TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DialTimeout: roomy})),
		"a wrong master name": redis.NewFailoverClient(algorithms.FailFast(&redis.FailoverOptions{
			MasterName: "nobody", SentinelAddrs: []string{sentinel.Sentinels[0].Addr}, DialTimeout: roomy, ReadTimeout: roomy})),
	} {
		defer client.Close()
		_, err := (&algorithms.Redis{Client: client, Namespace: "test", Budget: roomy}).Take(t.Context(), algorithms.Check{Rule: "r", Limit: perDay(1)})
		if transport.ClassOf(err) != transport.ClassConnection || !transport.NotExecuted(err) {
			t.Errorf("%s: class %q: %v", name, transport.ClassOf(err), err)
		}
	}
}
