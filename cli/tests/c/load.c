/* Loads and unloads a library that allocates when it comes and when it goes. */
#include "check.h"
#include <dlfcn.h>

int main(int argc, char **argv)
{
    Held held = {.random.state = 1};
    CHECK(argc == 2);
    for (int at = 0; at < 200; at++) {
        void *library = dlopen(argv[1], at % 2 ? RTLD_NOW : RTLD_LAZY | RTLD_GLOBAL);
        CHECK(library, "%s", dlerror());
        void **block = dlsym(library, "early_block");
        CHECK(block && verify(*block) == 1000);
        drop(*block);
        churn(&held, 50);
        CHECK(!dlclose(library));
    }
    churn_end(&held);
    return 0;
}
