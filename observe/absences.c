/* SPDX-License-Identifier: Apache-2.0 */
/* absences.c - see process_index.h. */
#include "observe/process_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/clock.h"
#include "observe/observe.h"

enum { QUESTIONS = 64 };

/* The kubelet pauses at most two minutes between its attempts. */
static const uint64_t FORGOTTEN_NS = 300 * NSEC_PER_SEC;

struct question {
    char sandbox_id[OBSERVE_SANDBOX_ID_BYTES];
    uint64_t first_ns, last_ns; /* 0: free */
};

struct absences {
    struct question question[QUESTIONS];
};

int absences_new(struct absences **ret_absences)
{
    *ret_absences = calloc(1, sizeof(**ret_absences));
    return *ret_absences ? 0 : -ENOMEM;
}

struct absences *absences_free(struct absences *absences)
{
    free(absences);
    return NULL;
}

/* The question about this sandbox; a new one replaces the least recently asked. */
static struct question *remember(struct absences *absences, const char *sandbox_id)
{
    const uint64_t now = clock_boottime();
    struct question *question = NULL, *oldest = &absences->question[0];

    for (unsigned i = 0; i < QUESTIONS && !question; i++) {
        if (strcmp(absences->question[i].sandbox_id, sandbox_id) == 0)
            question = &absences->question[i];
        else if (absences->question[i].last_ns < oldest->last_ns)
            oldest = &absences->question[i];
    }
    if (!question || now - question->last_ns > FORGOTTEN_NS) {
        question = question ? question : oldest;
        *question = (struct question){.first_ns = now};
        memcpy(question->sandbox_id, sandbox_id, strlen(sandbox_id) + 1);
    }
    question->last_ns = now;
    return question;
}

void absences_ask(struct absences *absences, const char *sandbox_id)
{
    if (observe_is_sandbox_id(sandbox_id))
        (void)remember(absences, sandbox_id);
}

int absences_find(struct absences *absences, struct process_index *processes,
                  const char *sandbox_id)
{
    struct process_search shim;
    struct question *question;
    int r;

    if (!observe_is_sandbox_id(sandbox_id))
        return OBSERVED_ABSENT;
    question = remember(absences, sandbox_id);
    r = process_index_find(processes, PROCESS_SHIM, sandbox_id, &shim);
    if (r < 0)
        return r;
    if (r != PROCESS_INDEX_NONE || shim.sure_since_ns < question->first_ns)
        return OBSERVED_UNFINISHED;
    *question = (struct question){0};
    return OBSERVED_ABSENT;
}
