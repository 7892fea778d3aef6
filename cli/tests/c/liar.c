// Shows a board that is a copy of another's, and cuts it when somebody asks for something there.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LENGTH = 8 << 20, BOARD = 16 << 10 };
static char copy[LENGTH], now[BOARD];

int main(int argc, char **argv) {
  char link[64] = {0}, name[128];
  int from = open(argv[1], O_RDONLY);
  // (Behind what is copied there are only holes.)
  long length = read(from, copy, LENGTH), whole = lseek(from, 0, SEEK_END);
  if (length < BOARD || readlink("/proc/self/ns/pid", link, sizeof link - 1) < 0) return 77;
  *(int *)(copy + 12) = getpid();
  snprintf(name, sizeof name, "/dev/shm/allotment-%ld-%d", atol(strchr(link, '[') + 1), getpid());
  int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
  if (write(file, copy, length) != length || ftruncate(file, whole)) return 77;
  char *mapped = mmap(0, BOARD, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  printf("ready %d\n", getpid());
  fflush(stdout);
  for (;;) {
    pread(file, now, BOARD, 0);
    if (memcmp(now, copy, BOARD)) {
      ftruncate(file, 0);
      usleep(1000000);
      ftruncate(file, whole);
      pwrite(file, copy, length, 0);
    }
  }
}
