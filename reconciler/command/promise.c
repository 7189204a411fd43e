/* SPDX-License-Identifier: Apache-2.0 */
/* promise.c - see answers.h. */
#include "reconciler/command/answers.h"

#include "store/store.h"

enum status_code promise_check(const struct store *store, struct error *error)
{
    if (!store_is_degraded(store))
        return STATUS_OK;
    return answer_refuse(error, ANSWER_DATABASE,
                         "the database is not on disk, so that nothing can be promised: crustctl "
                         "health says why");
}
