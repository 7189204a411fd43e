/* SPDX-License-Identifier: Apache-2.0 */
/* retry.c - writers here are not atomic, so what did not read well is read again after 20 ms, 200
 * ms and 2 s before it is believed to be bad.
 *
 * A retry lives from the first bad reading to the next good one, or to the last bad one. While its
 * timer runs, bad readings that events cause do not count: a writer may be slow. There may be as
 * many as there are directories, so each tree's are found by their names.
 */
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/hash.h"
#include "reconciler/core/internal.h"

struct retry {
    UT_hash_handle hh;
    struct reconciler *reconciler;
    struct loop_timer timer;
    enum reconciler_tree tree;
    unsigned tries;
    char name[];
};

static const uint64_t delays[] = {20 * NSEC_PER_MSEC, 200 * NSEC_PER_MSEC, 2 * NSEC_PER_SEC};

static struct retry *retry_find(struct reconciler *reconciler, enum reconciler_tree tree,
                                const char *name)
{
    struct retry *retry;

    HASH_FIND_STR(reconciler->retries[tree], name, retry);
    return retry;
}

static struct retry *retry_new(struct reconciler *reconciler, enum reconciler_tree tree,
                               const char *name)
{
    struct retry *retry = calloc(1, sizeof(*retry) + strlen(name) + 1);

    if (!retry)
        return NULL;
    retry->reconciler = reconciler;
    retry->tree = tree;
    strcpy(retry->name, name);
    HASH_ADD_STR(reconciler->retries[tree], name, retry);
    if (retry->hh.tbl)
        return retry;
    free(retry);
    return NULL;
}

static void retry_free(struct retry *retry)
{
    loop_timer_stop(&retry->timer);
    HASH_DEL(retry->reconciler->retries[retry->tree], retry);
    free(retry);
}

static void on_due(struct loop_timer *timer)
{
    struct retry *retry = container_of(timer, struct retry, timer);

    reconciler_look_at_directory(retry->reconciler, retry->tree, retry->name);
}

bool retry_later(struct reconciler *reconciler, enum reconciler_tree tree, const char *name)
{
    struct retry *retry = retry_find(reconciler, tree, name);

    if (retry && loop_timer_is_active(&retry->timer))
        return true;
    if (!retry)
        retry = retry_new(reconciler, tree, name);
    if (!retry)
        return false;
    if (retry->tries == array_length(delays)) {
        retry_free(retry);
        return false;
    }
    loop_timer_start(reconciler->loop, &retry->timer, delays[retry->tries++], on_due);
    return true;
}

void retry_forget(struct reconciler *reconciler, enum reconciler_tree tree, const char *name)
{
    struct retry *retry = retry_find(reconciler, tree, name);

    if (retry)
        retry_free(retry);
}

bool retries_are_done(const struct reconciler *reconciler)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        if (reconciler->retries[tree])
            return false;
    return true;
}

void retries_done(struct reconciler *reconciler)
{
    for (enum reconciler_tree tree = 0; tree < TREES; tree++)
        while (reconciler->retries[tree])
            retry_free(reconciler->retries[tree]);
}
