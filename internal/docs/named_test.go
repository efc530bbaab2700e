package docs

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	testName  = regexp.MustCompile(`\b(?:Test|Fuzz|Benchmark|Example)[A-Z_][A-Za-z0-9_]*\b`)
	testRun   = regexp.MustCompile(`go test (\./\S+)(?: -\S+| '\^\$')*? -(run|bench) '?([A-Za-z|]+)\b`)
	runFlag   = regexp.MustCompile(`-(?:run|bench) '?[A-Za-z|]+`)
	goRun     = regexp.MustCompile(`go run (\./[a-z/]+)`)
	makeName  = regexp.MustCompile("`make ([a-z-]+)|(?m)^make ([a-z-]+)")
	codeFile  = regexp.MustCompile("`([A-Za-z0-9_./-]+\\.(?:go|lua|yml|yaml|json|css|md))`")
	notOurs   = map[string]bool{"go.mod": true, "rules.yaml": true, "dashboard.json": true, "routes.go": true}
	makeRules = regexp.MustCompile(`(?m)^([a-z][a-z -]*):`)
)

// A claim names what shows it. Every test, benchmark, make target and file that a
// page or a doc.go names is there. CHANGELOG.md tells of the past, so it is left out.
func TestWhatPagesNameIsThere(t *testing.T) {
	tests, files := tests(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := make(map[string]bool)
	for _, m := range makeRules.FindAllStringSubmatch(string(makefile), -1) {
		for target := range strings.FieldsSeq(m[1]) {
			targets[target] = true
		}
	}
	seen := 0
	for _, p := range append(pages(t), docs(t)...) {
		if p.path == "CHANGELOG.md" {
			continue
		}
		text := strings.Join(p.lines, "\n")
		flat := strings.Join(strings.Fields(text), " ") // commands break at the end of a line
		for _, name := range testName.FindAllString(runFlag.ReplaceAllString(withoutGo(p), ""), -1) {
			seen++
			if !tests.named(name) {
				t.Errorf("%s names %s, and no test is called so", p.path, name)
			}
		}
		for _, m := range testRun.FindAllStringSubmatch(flat, -1) {
			seen++
			if !tests.run(m[1], m[2] == "bench", m[3]) {
				t.Errorf("%s: %q runs nothing", p.path, m[0])
			}
		}
		for _, m := range goRun.FindAllStringSubmatch(flat, -1) {
			seen++
			if !files.named(strings.TrimPrefix(m[1], "./") + "/main.go") {
				t.Errorf("%s: %q runs no program", p.path, m[0])
			}
		}
		for _, m := range makeName.FindAllStringSubmatch(text, -1) {
			seen++
			if target := m[1] + m[2]; !targets[target] {
				t.Errorf("%s: there is no make %s", p.path, target)
			}
		}
		for _, m := range codeFile.FindAllStringSubmatch(text, -1) {
			seen++
			if !notOurs[m[1]] && !strings.Contains(m[1], "NAME") && !files.named(m[1]) {
				t.Errorf("%s names the file %s", p.path, m[1])
			}
		}
	}
	if seen < 80 {
		t.Errorf("%d names seen", seen)
	}
}

// withoutGo is the page's text but for its Go blocks, whose tests are a
// reader's own.
func withoutGo(p page) string {
	text := strings.Join(p.lines, "\n")
	for _, b := range p.blocks() {
		if b.language == "go" {
			text = strings.ReplaceAll(text, b.text, "")
		}
	}
	return text
}

type (
	testsByFolder map[string][]string
	paths         []string
)

// tests returns the tests by folder, and the paths of all files.
func tests(t *testing.T) (testsByFolder, paths) {
	t.Helper()
	tests := make(testsByFolder)
	var all paths
	for _, f := range files(t) {
		all = append(all, f.path)
		if !strings.HasSuffix(f.path, "_test.go") {
			continue
		}
		for _, name := range declaredIn(t, f) {
			if folder := path.Dir(f.path); testName.MatchString(name) {
				tests[folder] = append(tests[folder], name)
			}
		}
	}
	return tests, all
}

// docs returns the doc.go files, whose comments are pages in all but name.
func docs(t *testing.T) (found []page) {
	t.Helper()
	for _, f := range files(t) {
		if path.Base(f.path) == "doc.go" {
			found = append(found, newPage(f.path, strings.ReplaceAll(strings.ReplaceAll(f.text, "// ", ""), "//\n", "\n")))
		}
	}
	return found
}

func (tests testsByFolder) named(name string) bool {
	for _, names := range tests {
		if slices.Contains(names, name) {
			return true
		}
	}
	return false
}

// run reports whether -run or -bench with the pattern runs something there.
func (tests testsByFolder) run(folder string, bench bool, pattern string) bool {
	compiled := regexp.MustCompile(pattern)
	runs := func(name string) bool {
		return strings.HasPrefix(name, "Benchmark") == bench && compiled.MatchString(name)
	}
	folder, below := strings.CutSuffix(strings.TrimPrefix(folder, "./"), "/...")
	for at, names := range tests {
		if at != folder && (!below || !strings.HasPrefix(at, folder)) {
			continue
		}
		if slices.ContainsFunc(names, runs) {
			return true
		}
	}
	return false
}

// named reports whether a file is there under its path or the end of it.
func (files paths) named(name string) bool {
	for _, file := range files {
		if file == name || strings.HasSuffix(file, "/"+name) {
			return true
		}
	}
	return false
}
