// about: coroutines on small stacks that were allocated themselves, handed from thread to thread in the middle of their work
#include "../c/check.h"
#include <malloc.h>
#include <pthread.h>
#include <ucontext.h>

enum { COROUTINES = 24, STACK = 16384 };
typedef struct { ucontext_t here, back; Held *held; int left; pthread_mutex_t lock; } Coroutine;
static Coroutine all[COROUTINES];
static atomic_int ended;

static void works(int which)
{
    Coroutine *self = &all[which];
    while (self->left-- > 0) {
        churn(self->held, 30);
        if (self->left % 16 == 0)
            malloc_trim(0);
        swapcontext(&self->here, &self->back);
    }
    churn_end(self->held);
    ended++;
    swapcontext(&self->here, &self->back);
}

static void *schedules(void *seed)
{
    Random random = {(uintptr_t)seed};
    while (ended < COROUTINES) {
        Coroutine *one = &all[next(&random) % COROUTINES];
        if (pthread_mutex_trylock(&one->lock))
            continue;
        if (one->left >= 0)
            swapcontext(&one->back, &one->here);
        pthread_mutex_unlock(&one->lock);
    }
    return NULL;
}

int main(void)
{
    for (int i = 0; i < COROUTINES; i++) {
        all[i].left = 40;
        all[i].held = calloc(1, sizeof(Held));
        pthread_mutex_init(&all[i].lock, NULL);
        getcontext(&all[i].here);
        all[i].here.uc_stack.ss_sp = malloc(STACK);
        all[i].here.uc_stack.ss_size = STACK;
        makecontext(&all[i].here, (void (*)(void))works, 1, i);
    }
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, schedules, (void *)i));
    for (int i = 0; i < 3; i++)
        pthread_join(thread[i], NULL);
    puts("ok");
}
