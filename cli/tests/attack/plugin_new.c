// about: a program in C loads a plug-in in C++ that brings its own operators, half of them hidden: ours, seen before them, mixed with its own
// flags: -ldl
#include "../c/check.h"
#include <dlfcn.h>
#include <sys/wait.h>

/* The new that the plug-in calls from elsewhere is public, its delete is bound inside. */
static const char source[] =
    "#include <cstddef>\n#include <cstdlib>\n"
    "static long made, gone, wrong;\n"
    "void *operator new(std::size_t size) { auto *head = (std::size_t *)std::malloc(size + 16); head[0] = 0x5eed; made++; return head + 2; }\n"
    "__attribute__((visibility(\"hidden\"))) void operator delete(void *block) noexcept\n"
    "{ if (!block) return; auto *head = (std::size_t *)block - 2; wrong += head[0] != 0x5eed; gone++; std::free(head); }\n"
    "__attribute__((visibility(\"hidden\"))) void operator delete(void *block, std::size_t) noexcept { operator delete(block); }\n"
    "extern \"C\" long work() { for (int i = 0; i < 1000; i++) { volatile auto *p = new long[3]; auto *q = new long; ::operator delete((void *)q); ::operator delete((void *)p); }\n"
    "return made == 2000 && gone == 2000 && !wrong; }\n";

int main(void)
{
    char directory[] = "/tmp/plugin-new-XXXXXX", path[64], command[200];
    if (!mkdtemp(directory))
        return 1;
    snprintf(path, sizeof path, "%s/p.cpp", directory);
    FILE *file = fopen(path, "w");
    fputs(source, file);
    fclose(file);
    snprintf(command, sizeof command, "env -u LD_PRELOAD g++ -w -O1 -fno-builtin -shared -fPIC -o %s/p.so %s", directory, path);
    int built = system(command);
    snprintf(path, sizeof path, "%s/p.so", directory);
    void *plugin = built ? NULL : dlopen(path, RTLD_NOW);
    long (*work)(void) = plugin ? (long (*)(void))dlsym(plugin, "work") : NULL;
    puts(work && work() ? "its own serve" : "others serve, or none");
    snprintf(command, sizeof command, "rm -r %s", directory);
    return system(command) != 0;
}
