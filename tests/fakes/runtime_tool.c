/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_tool.c - a runtime's tool as KEP-2857 has it, linked statically: it runs in a root of its
 * own. What it was called with it appends to /run/called. Like a Go program it has threads.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { THREADS = 16 };

static pthread_barrier_t all_there;

static void *wait_for_all(void *argument)
{
    (void)pthread_barrier_wait(&all_there);
    return argument;
}

/* All at the same time. 0 or -1. */
static int start_threads(void)
{
    pthread_t threads[THREADS];

    if (pthread_barrier_init(&all_there, NULL, THREADS + 1) != 0)
        return -1;
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, wait_for_all, NULL) != 0)
            return -1;
    (void)pthread_barrier_wait(&all_there);
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    return 0;
}

int main(int argc, char *argv[])
{
    FILE *called = fopen("/run/called", "a");

    if (!called || start_threads() < 0)
        return 1;
    for (int i = 1; i < argc; i++)
        (void)fprintf(called, "%s%s", argv[i], i + 1 < argc ? " " : "\n");
    if (fclose(called) != 0)
        return 1;
    if (argc == 4 && strcmp(argv[2], "stats") == 0)
        return puts("{\"usage\":[{\"unit\":1,\"total\":4096,\"used\":96,\"available\":4000}]}") < 0;
    return argc == 6 && strcmp(argv[2], "resize") == 0 ? puts("{\"capacity_bytes\":4096}") < 0 : 2;
}
