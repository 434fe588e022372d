// Loaded before libc: the wall clock jumps while the process runs. CLOCK_STEPS has pairs of `when:by`, both in
// seconds, counted from the start of the process.

#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct timespec begun;

__attribute__((constructor)) static void begin(void) {
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &begun);
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    long done = syscall(SYS_clock_gettime, clock, time);
    const char *steps = getenv("CLOCK_STEPS");
    if (done || !steps || (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE)) return done;
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    double elapsed = (now.tv_sec - begun.tv_sec) + (now.tv_nsec - begun.tv_nsec) / 1e9;
    long by = 0;
    for (const char *step = steps; step && *step; step = strchr(step, ' ')) {
        if (*step == ' ') step++;
        char *rest;
        double when = strtod(step, &rest);
        if (*rest != ':' || elapsed < when) break;
        by = strtol(rest + 1, NULL, 10);
    }
    time->tv_sec += by;
    return 0;
}
