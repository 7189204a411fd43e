/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - what the runtime recorded of its containers' mounts: by a device, or as a directory.
 * Private to observe/.
 */
#pragma once

#include "observe/observe.h"

enum { RECORDS = 2048 };

/* Takes the record's strings, also on failure. More than RECORDS are passed over. 0 or -ENOMEM. */
int records_add(struct observed_sandbox *sandbox, const struct observed_record *record);

/* To be called when all are added, before any is looked for. */
void records_sort(struct observed_sandbox *sandbox);

/* Of this container's mount at this destination. NULL: there is none. */
const struct observed_record *records_find(const struct observed_sandbox *sandbox,
                                           const char *container, const char *destination);

void records_done(struct observed_sandbox *sandbox);
