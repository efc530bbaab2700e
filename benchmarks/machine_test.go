package benchmarks

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
)

// announce says where and with what is measured, and how busy the machine is
// already, in lines that the report reads.
func announce(w io.Writer) {
	cpu := field("/proc/cpuinfo", `model name\s*: (.*)`)
	kernel := field("/proc/sys/kernel/osrelease", `(\S+)`)
	_, _ = fmt.Fprintf(w, "machine: %d cores of %s, %s %s\n", runtime.NumCPU(), cmp.Or(cpu, runtime.GOARCH), runtime.GOOS, kernel)
	versions := []string{runtime.Version(), redisVersion()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			switch m.Path {
			case "github.com/redis/go-redis/v9", "github.com/go-redis/redis_rate/v10", "github.com/throttled/throttled/v2",
				"github.com/ulule/limiter/v3", "github.com/go-chi/httprate":
				name := path.Base(m.Path)
				if strings.HasPrefix(name, "v") {
					name = path.Base(path.Dir(m.Path))
				}
				versions = append(versions, name+" "+strings.TrimPrefix(m.Version, "v"))
			}
		}
	}
	_, _ = fmt.Fprintf(w, "versions: %s\n", strings.Join(versions, ", "))
	_, _ = fmt.Fprintf(w, "load: %s\n", cmp.Or(field("/proc/loadavg", `(\S+)`), "unknown"))
}

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
