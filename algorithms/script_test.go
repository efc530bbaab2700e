package algorithms

import (
	"os"
	"path/filepath"
)

// LUA_DIR replaces the scripts, so that internal/mutate can try changes to them
// without building the tests for each.
func init() {
	dir := os.Getenv("LUA_DIR")
	if dir == "" {
		return
	}
	for name, text := range map[string]*string{
		"fixed_window":   &fixedWindowLua,
		"sliding_window": &slidingWindowLua,
		"sliding_log":    &slidingLogLua,
		"bucket":         &bucketLua,
		"take":           &takeLua,
		"settle":         &settleLua,
	} {
		source, err := os.ReadFile(filepath.Join(dir, name+".lua"))
		if err != nil {
			panic(err)
		}
		*text = string(source)
	}
	*takeScript, *settleScript = *newScript(withSteps(takeLua)), *newScript(withSteps(settleLua))
}
