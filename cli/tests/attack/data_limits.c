// about: as address_limits, under a limit of data
// limit: -d 30000
// known: 110 shrinks fail; 770 blocks of 10 kB (glibc: 3,050), one of 1 MiB
#define WHAT RLIMIT_DATA
#include "address_limits.c"
