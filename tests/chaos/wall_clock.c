/* Preloaded into a server: its wall clock is off by as many seconds as the file CHAOS_CLOCK says, at any moment.
 * Only what tells the time of day is moved; monotonic clocks, sleeps and timed waits are left alone. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const long long *shared;

__attribute__((constructor)) static void open_clock(void) {
  const char *path = getenv("CHAOS_CLOCK");
  int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *seen = mmap(0, sizeof *shared, PROT_READ, MAP_SHARED, file, 0);
  if (seen != MAP_FAILED) shared = seen;
  close(file);
}

int clock_gettime(clockid_t which, struct timespec *now) {
  int failed = (int)syscall(SYS_clock_gettime, which, now);
  if (!failed && shared && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += *shared;
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  int failed = (int)syscall(SYS_gettimeofday, now, zone);
  if (!failed && shared) now->tv_sec += *shared;
  return failed;
}

time_t time(time_t *into) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (into) *into = now.tv_sec;
  return now.tv_sec;
}
