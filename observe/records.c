/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - the runtime's word about each mount of each container.
 *
 * Kata's Go runtime replaces the source of a mount that it attaches as a block device by that
 * device (createBlockDevices() in src/runtime/virtcontainers/container.go), so only the destination
 * tells which of a bundle's mounts a record is about. What is left with its own path as the source
 * is shared with the guest as a directory.
 */
#include "observe/records.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void record_done(struct observed_record *record)
{
    free(record->container);
    free(record->source);
    free(record->destination);
}

int records_add(struct observed_sandbox *sandbox, const struct observed_record *record)
{
    struct observed_record copy = *record;
    struct observed_record *all = NULL;
    bool has_room = sandbox->records < RECORDS;

    if (has_room && copy.container && copy.source)
        all = reallocarray(sandbox->record, sandbox->records + 1, sizeof(*all));
    if (!all) {
        record_done(&copy);
        return has_room ? -ENOMEM : 0;
    }
    sandbox->record = all;
    all[sandbox->records++] = copy;
    return 0;
}

const struct observed_record *records_find(const struct observed_sandbox *sandbox,
                                           const char *container, const char *destination)
{
    for (unsigned i = 0; destination && i < sandbox->records; i++) {
        const struct observed_record *record = &sandbox->record[i];

        if (record->destination && strcmp(record->destination, destination) == 0 &&
            strcmp(record->container, container) == 0)
            return record;
    }
    return NULL;
}

void records_done(struct observed_sandbox *sandbox)
{
    for (unsigned i = 0; i < sandbox->records; i++)
        record_done(&sandbox->record[i]);
    free(sandbox->record);
    sandbox->record = NULL;
    sandbox->records = 0;
}
