/* Loads a plug-in with RTLD_DEEPBIND, by a name that only this program's own
 * RUNPATH ($ORIGIN) resolves, and lets memory cross. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(void)
{
    void *plugin = dlopen("libplugin.so", RTLD_NOW | RTLD_DEEPBIND);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void (*take)(char *) = (void (*)(char *))dlsym(plugin, "plugin_take");
    char *(*give)(void) = (char *(*)(void))dlsym(plugin, "plugin_give");
    for (int i = 0; i < 1000; i++) {
        take(strdup("from the program"));
        take(malloc(100000));
        free(give());
        free(realloc(give(), 5000));
    }
    if (dlopen("no-such-plugin.so", RTLD_NOW | RTLD_DEEPBIND) || !strstr(dlerror(), "no-such-plugin.so"))
        return 2;
    if (!dlsym(dlopen(NULL, RTLD_NOW), "malloc") || dlclose(plugin))
        return 3;
    puts("passed");
    return 0;
}
