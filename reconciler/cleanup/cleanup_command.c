/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup_command.c - the commands about stale metadata. */
#include <inttypes.h>
#include <string.h>

#include "config/config.h"
#include "lib/log.h"
#include "reconciler/cleanup/cleanup.h"
#include "reconciler/cleanup/cleanup_pass.h"
#include "reconciler/cleanup/trash.h"
#include "reconciler/command/promise.h"
#include "reconciler/core/context.h"
#include "store/store.h"

enum status_code cleanup_gc(struct cleanup *cleanup, bool dry_run, int64_t volume_id,
                            struct buffer *ret_json, struct error *error)
{
    const struct cleanup_question question = {.dry = dry_run, .volume_id = volume_id};
    int r;

    if (cleanup->context->config->cleanup.mode == CLEANUP_OFF)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "cleanup.mode = off: nothing is looked for or removed");
    if (!cleanup->context->synced)
        return error_set(error, STATUS_UNAVAILABLE, "the first scan is not done yet");
    if (volume_id && !dry_run)
        return error_set(error, STATUS_INVALID_ARGUMENT, "volume: only with dry_run");
    r = cleanup_run(cleanup, &question, ret_json);
    if (r < 0)
        return error_set(error, STATUS_UNAVAILABLE, "nothing was removed: %s (%s)",
                         store_error_text(cleanup->context->store), strerror(-r));
    if (!dry_run)
        log_info(NULL, "looked for stale metadata on request (gc)");
    return STATUS_OK;
}

enum status_code cleanup_restore(struct cleanup *cleanup, int64_t cleanup_id, struct error *error)
{
    static const enum status_code codes[] = {[TRASH_RESTORED] = STATUS_OK,
                                             [TRASH_UNKNOWN] = STATUS_NOT_FOUND,
                                             [TRASH_REFUSED] = STATUS_FAILED_PRECONDITION,
                                             [TRASH_TAKEN] = STATUS_ALREADY_EXISTS,
                                             [TRASH_BUSY] = STATUS_UNAVAILABLE};
    int r;

    /* Ids in memory differ from those of the file, and only the file records what is in the
     * trash. */
    if (promise_check(cleanup->context->store, error) != STATUS_OK)
        return STATUS_UNAVAILABLE;
    r = trash_restore(cleanup, cleanup_id, error);
    if (r < 0)
        return error_set(error, STATUS_UNAVAILABLE, "nothing was restored: %s (%s)",
                         store_error_text(cleanup->context->store), strerror(-r));
    return codes[r];
}
