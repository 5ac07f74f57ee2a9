// A schedule and nothing else: wakes for each due instant, is busy for as long as a send and an answer take, and counts
// the instants that it comes to too late. The machine causes its lateness. Has exact timers, as the fleet's
// threads have.
// wake RATE_PER_S SECONDS BUSY_NS LATE_NS
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "wake RATE_PER_S SECONDS BUSY_NS LATE_NS\n");
        return 2;
    }
    const int64_t gap_ns = 1000000000 / atoll(argv[1]), busy_ns = atoll(argv[3]), limit_ns = atoll(argv[4]);
    const int64_t count = atoll(argv[1]) * atoll(argv[2]);
    prctl(PR_SET_TIMERSLACK, 1UL);
    const int64_t begin_ns = now_ns() + 1000000;
    int64_t late = 0;
    for (int64_t number = 0; number < count; number++) {
        const int64_t due_ns = begin_ns + number * gap_ns;
        struct timespec due = {due_ns / 1000000000, due_ns % 1000000000};
        while (now_ns() < due_ns)
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
        const int64_t woken_ns = now_ns();
        late += woken_ns - due_ns > limit_ns;
        while (now_ns() < woken_ns + busy_ns) {
        }
    }
    printf("%.9f\n", (double)late / (double)count);
    return 0;
}
