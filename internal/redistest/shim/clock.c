/*
 * A wall clock that somebody else sets, for LD_PRELOAD into a Redis or Valkey.
 *
 * REDISTEST_CLOCK names a file that holds one int64_t: microseconds since 1970.
 * It is mapped shared, so what the test stores there is the time from the next
 * reading on. Between two stores time stands still.
 *
 * The server reads the wall clock with gettimeofday(), for TIME and every
 * expiry, and with time(), for replication timeouts and LASTSAVE, and compares
 * the two: both have to follow. It uses clock_gettime() for monotonic time
 * only, which stays real: the event loop's timers have to go on.
 *
 * Valkey 9.1 and newer call gettimeofday() only once a millisecond where they
 * can read monotonic time from the processor (x86's TSC), and add what passed
 * since. That moves TIME by itself, and delays what a test sets. Whether the
 * TSC is fit they look up in /proc/cpuinfo; where that cannot be opened they
 * fall back to clock_gettime() and ask gettimeofday() each time, as Redis does.
 * So the file is hidden. A program with 64-bit offsets calls fopen64().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const int64_t *test_clock;

/* A server on the real clock would make tests fail at random: rather none. */
__attribute__((constructor)) static void map_clock(void)
{
    const char *path = getenv("REDISTEST_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *test_clock, PROT_READ, MAP_SHARED, fd, 0);

    if (page == MAP_FAILED) {
        perror("clock shim: REDISTEST_CLOCK");
        _exit(1);
    }
    close(fd);
    test_clock = page;
}

static int64_t micros(void)
{
    struct timespec ts;

    if (test_clock)
        return __atomic_load_n(test_clock, __ATOMIC_RELAXED);
    /* Another library's constructor, run before ours. */
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &ts);
    return ts.tv_sec * INT64_C(1000000) + ts.tv_nsec / 1000;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
    int64_t us = micros();

    (void)tz;
    tv->tv_sec = us / 1000000;
    tv->tv_usec = us % 1000000;
    return 0;
}

time_t time(time_t *out)
{
    time_t s = micros() / 1000000;

    if (out)
        *out = s;
    return s;
}

typedef FILE *open_file(const char *, const char *);

static FILE *open_unless_cpuinfo(const char *path, const char *mode, const char *name)
{
    open_file *next = (open_file *)dlsym(RTLD_NEXT, name);

    if (!next || !strcmp(path, "/proc/cpuinfo")) {
        errno = ENOENT;
        return NULL;
    }
    return next(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    return open_unless_cpuinfo(path, mode, "fopen");
}

FILE *fopen64(const char *restrict path, const char *restrict mode)
{
    return open_unless_cpuinfo(path, mode, "fopen64");
}
