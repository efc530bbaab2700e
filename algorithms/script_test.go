package algorithms

import "os"

// LUA_DIR replaces the folder of the scripts' folder, so that internal/mutate can
// try changes to them without building the tests for each.
func init() {
	if dir := os.Getenv("LUA_DIR"); dir != "" {
		files := os.DirFS(dir)
		*takeScript, *settleScript = *newScript(takeText(files)), *newScript(settleText(files))
		*takeBansScript, *bansScript = *newScript(takeBansText(files)), *newScript(bansText(files))
		*settleKeptScript = *newScript(settleKeptText(files))
	}
}
