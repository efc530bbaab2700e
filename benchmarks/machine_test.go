package benchmarks

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
)

// announce says where and with what is measured, and how busy the machine is
// already, in lines that the report reads.
func announce(w io.Writer) {
	cpu := field("/proc/cpuinfo", `model name\s*: (.*)`)
	kernel := field("/proc/sys/kernel/osrelease", `(\S+)`)
	_, _ = fmt.Fprintf(w, "machine: %d cores of %s, %s %s\n", runtime.NumCPU(), cmp.Or(cpu, runtime.GOARCH), runtime.GOOS, kernel)
	versions := []string{runtime.Version(), redisVersion()}
	// A test binary does not know the modules that it is built of.
	out, _ := exec.Command("go", append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}"}, compared...)...).Output() //nolint:gosec,noctx // the names are below
	for line := range strings.Lines(string(out)) {
		name, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		versions = append(versions, major.ReplaceAllString(strings.TrimPrefix(name, "github.com/"), "")+" "+version)
	}
	_, _ = fmt.Fprintf(w, "versions: %s\n", strings.Join(versions, ", "))
	_, _ = fmt.Fprintf(w, "load: %s\n", cmp.Or(field("/proc/loadavg", `(\S+)`), "unknown"))
}

// compared are the modules that a figure depends on.
var compared = []string{
	"github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/throttled/throttled/v2",
	"github.com/ulule/limiter/v3", "github.com/redis/rueidis", "github.com/go-chi/httprate",
}

var major = regexp.MustCompile(`/v\d+$`)

// field is what a pattern finds in a file; "" where there is no such file.
func field(file, pattern string) string {
	text, _ := os.ReadFile(file) //nolint:gosec // the names are above
	if match := regexp.MustCompile(pattern).FindSubmatch(text); match != nil {
		return string(match[1])
	}
	return ""
}

// redisVersion is that of the server that redistest starts.
func redisVersion() string {
	server := cmp.Or(os.Getenv("REDIS_SERVER"), "redis-server")
	out, _ := exec.Command(server, "--version").Output() //nolint:gosec,noctx // the server that is measured
	if match := regexp.MustCompile(`^(\S+).* v=(\S+)`).FindSubmatch(out); match != nil {
		return string(match[1]) + " " + string(match[2])
	}
	return "no " + server
}
