package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is committed is what the sources say.
func TestScriptsAreGenerated(t *testing.T) {
	scripts, err := generate(os.DirFS("../src"))
	if err != nil {
		t.Fatal(err)
	}
	committed, err := filepath.Glob("../*.lua")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range committed {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if scripts[filepath.Base(path)] != string(text) {
			t.Errorf("%s is not what its sources say: run go generate ./internal/script", path)
		}
		delete(scripts, filepath.Base(path))
	}
	for name := range scripts {
		t.Errorf("%s is missing: run go generate ./internal/script", name)
	}
}

func TestSourcesThatMakeNoScript(t *testing.T) {
	for want, file := range map[string]struct{ name, text string }{
		"steps/queue.lua: no line --@ step":              {"steps/queue.lua", "-- queue\n"},
		"steps/queue.lua: --@ step hose wants":           {"steps/queue.lua", "--@ step hose\n--@ correct\n"},
		"steps/queue.lua: --@ step bucket wants":         {"steps/queue.lua", "--@ step bucket\nfits = true\n--@ correct\n"},
		"src/take.lua: --@ includes is not known":        {"take.lua", "--@ includes begin\n"},
		"src/take.lua: open parts/begins.lua":            {"take.lua", "--@ include begins\n"},
		"src/take.lua: parts/begin.lua: not one line lo": {"take.lua", "--@ inline begin\n"},
	} {
		src := t.TempDir()
		if err := os.CopyFS(src, os.DirFS("../src")); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(src, file.name), []byte(file.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if scripts, err := generate(os.DirFS(src)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d scripts, %v; want %s", len(scripts), err, want)
		}
	}
}
