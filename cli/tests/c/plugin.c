/* A plug-in: memory crosses between it and the program in both directions. */
#include <stdlib.h>
#include <string.h>

void plugin_take(char *text) { free(text); }
char *plugin_give(void) { return strdup("from the plug-in, long enough to be an object of its own"); }
