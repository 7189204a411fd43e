/* SPDX-License-Identifier: Apache-2.0 */
/* leftovers.c - see leftovers.h. */
#include "reconciler/helper/leftovers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"

static const uint64_t FIRST_PAUSE_NS = 2 * NSEC_PER_SEC;
enum { PAUSE_DOUBLINGS = 7 };

static struct helper_leftover *find(const struct helper_leftovers *leftovers, const char *name)
{
    struct helper_leftover *one = leftovers->first;

    while (one && strcmp(one->name, name) != 0)
        one = one->next;
    return one;
}

static struct helper_leftover *add(struct helper_leftovers *leftovers, const char *name)
{
    struct helper_leftover *one = calloc(1, sizeof(*one));

    if (!one)
        return NULL; /* the record stays, and the next start finds it */
    (void)snprintf(one->name, sizeof(one->name), "%s", name);
    one->next = leftovers->first;
    leftovers->first = one;
    return one;
}

void helper_leftovers_put(struct helper_leftovers *leftovers, const char *name,
                          const struct error *error)
{
    struct helper_leftover *one = find(leftovers, name);

    if (!one)
        one = add(leftovers, name);
    if (!one || !error)
        return;
    one->next_ns = clock_boottime() + (FIRST_PAUSE_NS << one->failures);
    one->failures += one->failures < PAUSE_DOUBLINGS;
    (void)error_set(&leftovers->error, 0, "an earlier helper is still in the guest: %s",
                    error->text[0] ? error->text : "it could not be removed");
}

void helper_leftovers_remove(struct helper_leftovers *leftovers, const char *name)
{
    for (struct helper_leftover **link = &leftovers->first; *link; link = &(*link)->next) {
        struct helper_leftover *one = *link;

        if (strcmp(one->name, name) != 0)
            continue;
        *link = one->next;
        free(one);
        return;
    }
}

void helper_leftovers_done(struct helper_leftovers *leftovers)
{
    while (leftovers->first)
        helper_leftovers_remove(leftovers, leftovers->first->name);
}

bool helper_leftovers_are_none(const struct helper_leftovers *leftovers)
{
    return !leftovers->first;
}

const char *helper_leftovers_due(const struct helper_leftovers *leftovers)
{
    uint64_t now = leftovers->first ? clock_boottime() : 0;

    for (const struct helper_leftover *one = leftovers->first; one; one = one->next)
        if (one->next_ns <= now)
            return one->name;
    return NULL;
}

bool helper_leftovers_are_stuck(const struct helper_leftovers *leftovers)
{
    return leftovers->first && !helper_leftovers_due(leftovers);
}

uint64_t helper_leftovers_wait(const struct helper_leftovers *leftovers)
{
    uint64_t least = UINT64_MAX, now = clock_boottime();

    for (const struct helper_leftover *one = leftovers->first; one; one = one->next)
        if (one->next_ns < least)
            least = one->next_ns;
    if (least == UINT64_MAX)
        return least;
    return least > now ? least - now : 0;
}

int helper_leftovers_search(int root, const struct store_helper_run *sandbox,
                            int (*callback)(void *userdata, const char *name), void *userdata)
{
    cleanup(fd_closep) int share = -1;

    int r = helper_share_open(root, sandbox->runtime, sandbox->sandbox_id, &share, NULL);

    return r == HELPER_SHARE_OK ? helper_share_each(share, callback, userdata) : r < 0 ? r : 0;
}
