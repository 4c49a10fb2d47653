/* A wall clock that a test sets. Loaded before the C library (LD_PRELOAD), it adds to what the
 * kernel shows as CLOCK_REALTIME so many nanoseconds as the file has whose path is in
 * SETTABLE_CLOCK. The monotonic clock is as it is. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *ahead_ns;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SETTABLE_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *shared = mmap(NULL, sizeof *ahead_ns, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (shared != MAP_FAILED)
        ahead_ns = shared;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME && ahead_ns) {
        int64_t ahead = *ahead_ns, ns = now->tv_nsec + ahead % 1000000000;
        now->tv_sec += ahead / 1000000000;
        if (ns >= 1000000000) {
            ns -= 1000000000;
            now->tv_sec += 1;
        } else if (ns < 0) {
            ns += 1000000000;
            now->tv_sec -= 1;
        }
        now->tv_nsec = ns;
    }
    return result;
}
