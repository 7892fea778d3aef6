// Threads that allocate on all CPUs, also of a busy machine; with an argument it waits for the end of its input then.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *work(void *seed) {
  unsigned random = (unsigned)(size_t)seed;
  char *kept[64] = {0};
  cpu_set_t all, one;
  sched_getaffinity(0, sizeof all, &all);
  for (int cpu = 0, at = 0; cpu < CPU_SETSIZE; cpu++) {
    if (!CPU_ISSET(cpu, &all) || at++ != (int)(random % CPU_COUNT(&all))) continue;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  for (int step = 0; step < 100000; step++) {
    random = random * 1103515245 + 12345;
    unsigned at = random >> 8 & 63, size = 16 + (random >> 16) % 3000;
    if (kept[at] && kept[at][0] != (char)at) abort();
    free(kept[at]);
    kept[at] = malloc(size);
    memset(kept[at], at, size);
  }
  for (int at = 0; at < 64; at++) free(kept[at]);
  return NULL;
}

int main(int argc, char **argv) {
  for (size_t round = 0; round < 3; round++) {
    pthread_t threads[8];
    for (size_t i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, (void *)(round * 8 + i));
    for (size_t i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  }
  printf("ok %d\n", getpid());
  fflush(stdout);
  char end;
  if (argc > 1 && read(0, &end, 1) != 0) return 1;
  return 0;
}
