/* SPDX-License-Identifier: Apache-2.0 */
/* doubts.c - see doubts.h.
 *
 * In memory only: a doubt is found again whenever its sandbox is observed. Beyond DOUBTS sandboxes
 * nothing is remembered, and so nothing is logged.
 */
#include "reconciler/core/doubts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/hash.h"
#include "lib/log.h"

enum { DOUBTS = 256 };

struct doubt {
    UT_hash_handle hh;
    char *text;
    char sandbox_id[];
};

struct doubts {
    struct doubt *doubt;
};

int doubts_new(struct doubts **ret_doubts)
{
    *ret_doubts = calloc(1, sizeof(**ret_doubts));
    return *ret_doubts ? 0 : -ENOMEM;
}

static void forget(struct doubts *doubts, struct doubt *doubt)
{
    HASH_DEL(doubts->doubt, doubt);
    free(doubt->text);
    free(doubt);
}

struct doubts *doubts_free(struct doubts *doubts)
{
    struct doubt *doubt, *next;

    if (!doubts)
        return NULL;
    HASH_ITER (hh, doubts->doubt, doubt, next) {
        forget(doubts, doubt);
    }
    free(doubts);
    return NULL;
}

static struct doubt *add(struct doubts *doubts, const char *sandbox_id)
{
    size_t length = strlen(sandbox_id);
    struct doubt *doubt = NULL;

    if (HASH_COUNT(doubts->doubt) < DOUBTS)
        doubt = calloc(1, sizeof(*doubt) + length + 1);
    if (!doubt)
        return NULL;
    memcpy(doubt->sandbox_id, sandbox_id, length + 1);
    HASH_ADD_KEYPTR(hh, doubts->doubt, doubt->sandbox_id, length, doubt);
    if (doubt->hh.tbl)
        return doubt;
    free(doubt);
    return NULL;
}

void doubts_note(struct doubts *doubts, const char *sandbox_id, const char *text)
{
    struct doubt *doubt;
    char *copy;

    HASH_FIND(hh, doubts->doubt, sandbox_id, strlen(sandbox_id), doubt);
    if (!text && doubt)
        forget(doubts, doubt);
    if (!text || (doubt && doubt->text && strcmp(doubt->text, text) == 0))
        return;
    copy = strdup(text);
    if (copy && !doubt)
        doubt = add(doubts, sandbox_id);
    if (!copy || !doubt) {
        free(copy);
        return;
    }
    free(doubt->text);
    doubt->text = copy;
    log_warning(&(struct log_ids){.sandbox = sandbox_id}, "not believed: %s", text);
}

void doubts_each(const struct doubts *doubts,
                 void (*callback)(void *userdata, const char *sandbox_id, const char *text),
                 void *userdata)
{
    for (const struct doubt *doubt = doubts->doubt; doubt; doubt = doubt->hh.next)
        callback(userdata, doubt->sandbox_id, doubt->text);
}
