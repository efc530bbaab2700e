/*
 * A wall clock that somebody else sets, for LD_PRELOAD into redis-server.
 *
 * REDISTEST_CLOCK names a file that holds one int64_t: microseconds since 1970.
 * It is mapped shared, so what the test stores there is the time from the next
 * reading on. Between two stores time stands still.
 *
 * Redis reads the wall clock with gettimeofday(), for TIME and every expiry,
 * and with time(), for replication timeouts and LASTSAVE, and compares the two:
 * both have to follow. It uses clock_gettime() for monotonic time only, which
 * stays real: the event loop's timers have to go on.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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
