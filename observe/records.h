/* SPDX-License-Identifier: Apache-2.0 */
/* records.h - the runtime's record of its containers' mounts: attached as a device, or shared as a
 * directory. Private to observe/. */
#pragma once

#include "observe/observe.h"

enum { RECORDS = 2048 };

/* Takes over the record's strings, also on failure. Records beyond RECORDS are dropped. 0 or
 * -ENOMEM. */
int records_add(struct observed_sandbox *sandbox, const struct observed_record *record);

/* Must be called after the last addition and before the first search. */
void records_sort(struct observed_sandbox *sandbox);

/* The record of this container's mount at this destination. NULL: there is none. */
const struct observed_record *records_find(const struct observed_sandbox *sandbox,
                                           const char *container, const char *destination);

void records_done(struct observed_sandbox *sandbox);
