/* Sets a process's clock off by the seconds in the file that CLOCK_OFFSET names, while it runs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static time_t offset(void)
{
    static const volatile long *seconds;
    static long none;

    if (!seconds) {
        const char *name = getenv("CLOCK_OFFSET");
        int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
        void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
        seconds = page == MAP_FAILED ? &none : page;
        if (file >= 0)
            close(file);
    }
    return *seconds;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = syscall(SYS_clock_gettime, clock, now);

    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += offset();
    return result;
}

time_t time(time_t *to)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (to)
        *to = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    to->tv_sec = now.tv_sec;
    to->tv_usec = now.tv_nsec / 1000;
    return 0;
}
