/* A library that drains the process that it is loaded into a hundred times a second, by every way there is, from a
 * few threads of its own. It does nothing where Allotment is not loaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <time.h>
#include <unistd.h>

static int (*drain)(int cpu, unsigned way, void *drained);
static int (*drain_idle)(void *drained);

/* A gentle drain waits for answers: so they meet. */
enum { DRAINERS = 3 };
static unsigned turns;

static void *work(void *nothing)
{
	long cpus = sysconf(_SC_NPROCESSORS_CONF);

	for (;;) {
		struct timespec pause = { 0, 20 * 1000 * 1000 };
		unsigned turn;
		nanosleep(&pause, NULL);
		turn = __atomic_fetch_add(&turns, 1, __ATOMIC_RELAXED);
		switch (turn % 8) {
		case 0:
			drain_idle(NULL);
			break;
		case 1:
			malloc_trim(0);
			break;
		case 2:
			drain(-1, turn / 8 % 3, NULL);
			break;
		default:
			drain(turn / 8 % cpus, turn % 3, NULL);
		}
	}
	return nothing;
}

__attribute__((constructor)) static void begin(void)
{
	pthread_t thread;
	sigset_t all, before;

	drain = (int (*)(int, unsigned, void *))dlsym(RTLD_DEFAULT, "allotment_drain");
	drain_idle = (int (*)(void *))dlsym(RTLD_DEFAULT, "allotment_drain_idle");
	if (!drain || !drain_idle)
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (int i = 0; i < DRAINERS; i++)
		if (!pthread_create(&thread, NULL, work, NULL))
			pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}
