// about: as address_limits, under a limit of data
// args: from the start
// args: later
// limit: -d 30000
#define WHAT RLIMIT_DATA
#include "address_limits.c"
