package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The README's program is one that make test compiles.
func TestTheProgramOfTheReadmeCompiles(t *testing.T) {
	program, err := os.ReadFile(filepath.Join(root, "testdata/programs/p01/main.go"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(program)+"```") {
		t.Error("README.md does not show testdata/programs/p01/main.go as it is")
	}
}
