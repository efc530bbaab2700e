package redistest

import "testing"

func TestExecuted(t *testing.T) {
	t.Parallel()
	s := Start(t)
	rdb, ctx := s.Client(t), t.Context()
	want := func(n int) {
		t.Helper()
		if got := s.Executed(t); got != n {
			t.Errorf("Executed() = %d, want %d", got, n)
		}
	}
	want(0)
	for range 3 {
		incr.Run(ctx, rdb, []string{"n"}, 1) // NOSCRIPT, EVAL; then EVALSHA twice
	}
	want(3)
	rdb.ScriptFlush(ctx)
	rdb.EvalSha(ctx, incr.Hash(), []string{"n"}, 1) // fails
	rdb.Incr(ctx, "n")
	want(3)
	rdb.ConfigResetStat(ctx)
	want(0)
}
