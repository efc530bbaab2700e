package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var fileBefore = regexp.MustCompile("`([a-z_]+\\.(?:go|yaml))`[^`]*$") // the last name before a block

// A reader who puts the blocks of docs/getting-started.md into the files that are named
// before them has a program after each step, and its tests pass.
func TestEachStepCompiles(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds and tests five programs")
	}
	text, err := os.ReadFile(filepath.Join(root, started))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, "testdata/programs", name))
		if err != nil {
			t.Fatal(err)
		}
		top, err := filepath.Abs(root)
		if err != nil {
			t.Fatal(err)
		}
		write(name, strings.Replace(string(content), "=> ../..", "=> "+top, 1))
	}
	steps, files := 0, 0
	for i, step := range strings.Split(string(text), "\n## ") {
		parts := strings.Split(step, "\n```")
		here := 0
		for j := 1; j < len(parts); j += 2 {
			language, content, _ := strings.Cut(parts[j], "\n")
			if language != "go" && language != "yaml" {
				continue
			}
			name := fileBefore.FindStringSubmatch(strings.TrimSpace(parts[j-1]))
			if name == nil {
				t.Fatalf("step %d: no file is named before a block", i)
			}
			write(name[1], content+"\n")
			here++
		}
		if here == 0 {
			continue
		}
		steps, files = steps+1, files+here
		command := exec.CommandContext(t.Context(), "go", "test", "-vet=all", ".")
		command.Dir = dir
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("step %d: %s: %v\n%s", i, command, err, out)
		}
	}
	if steps != 5 || files != 8 {
		t.Errorf("%d steps with %d files", steps, files)
	}
}
