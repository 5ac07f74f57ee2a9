// What the bench's programs in C share: the clock that they go by, and how they fail.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static inline double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static inline void fail(const char *what) {
    perror(what);
    exit(1);
}
