/* SPDX-License-Identifier: Apache-2.0 */
/* records.c - the runtime's record of each mount of each container.
 *
 * When Kata's Go runtime attaches a mount as a block device, it replaces the mount's source by that
 * device (createBlockDevices() in src/runtime/virtcontainers/container.go), so only the destination
 * tells which of a bundle's mounts a record is about. A mount whose source is still its own path is
 * shared with the guest as a directory.
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

static int compare_texts(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) : (a != NULL) - (b != NULL);
}

/* Sorts by the fields that records_find() compares; records with equal ones are sorted by
 * source. */
static int compare(const void *a, const void *b)
{
    const struct observed_record *left = a, *right = b;
    int order = compare_texts(left->destination, right->destination);

    if (order == 0)
        order = strcmp(left->container, right->container);
    return order ? order : strcmp(left->source, right->source);
}

void records_sort(struct observed_sandbox *sandbox)
{
    if (sandbox->records)
        qsort(sandbox->record, sandbox->records, sizeof(*sandbox->record), compare);
}

const struct observed_record *records_find(const struct observed_sandbox *sandbox,
                                           const char *container, const char *destination)
{
    unsigned low = 0, high = sandbox->records;

    while (destination && low < high) {
        unsigned middle = low + (high - low) / 2;
        const struct observed_record *record = &sandbox->record[middle];
        int order = compare_texts(record->destination, destination);

        if (order == 0)
            order = strcmp(record->container, container);
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (!destination || low == sandbox->records ||
        compare_texts(sandbox->record[low].destination, destination) != 0 ||
        strcmp(sandbox->record[low].container, container) != 0)
        return NULL;
    return &sandbox->record[low];
}

void records_done(struct observed_sandbox *sandbox)
{
    for (unsigned i = 0; i < sandbox->records; i++)
        record_done(&sandbox->record[i]);
    free(sandbox->record);
    sandbox->record = NULL;
    sandbox->records = 0;
}
