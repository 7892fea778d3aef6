/* The first program: a counter that every CPU keeps for itself.
 *
 *   cc first.c $(pkg-config --cflags --libs allotment) && ./a.out
 */
#include <allotment.h>
#include <inttypes.h>
#include <stdio.h>

int main(void) {
    allotment_counter_event *requests = allotment_counter_event_new();
    if (requests == NULL) {
        perror("no counter");
        return 1;
    }
    for (int i = 0; i < 1000; i++) allotment_counter_event_add(requests, 1);
    printf("%" PRIu64 "\n", allotment_counter_event_sum(requests));
    allotment_counter_event_free(requests);
    return 0;
}
