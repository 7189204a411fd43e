/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_protocols.c - an array that is kept sorted. */
#include "hypervisor/qemu_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool qemu_driver_passes_size(const char *driver)
{
    return strcmp(driver, "raw") == 0 || strcmp(driver, "throttle") == 0 ||
           strcmp(driver, "copy-on-read") == 0;
}

/* Where the file is, or belongs. */
static size_t position_of(const struct qemu_protocols *protocols, const char *file, bool *ret_found)
{
    size_t low = 0, high = protocols->count;

    *ret_found = false;
    while (low < high && !*ret_found) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(file, protocols->entries[middle].file);

        *ret_found = order == 0;
        if (order > 0)
            low = middle + 1;
        else
            high = middle;
    }
    return *ret_found ? high : low;
}

static int insert(struct qemu_protocols *protocols, size_t position, const char *file)
{
    struct qemu_protocol *entries =
        reallocarray(protocols->entries, protocols->count + 1, sizeof(*entries));

    if (!entries)
        return -ENOMEM;
    memmove(&entries[position + 1], &entries[position],
            (protocols->count - position) * sizeof(*entries));
    entries[position] = (struct qemu_protocol){.file = file};
    protocols->entries = entries;
    protocols->count++;
    return 0;
}

int qemu_protocols_add(struct qemu_protocols *protocols, const char *driver, const char *file)
{
    bool found;
    size_t position;
    int r = 0;

    if (qemu_driver_passes_size(driver))
        return 0;
    position = position_of(protocols, file, &found);
    if (!found)
        r = insert(protocols, position, file);
    if (r < 0)
        return r;
    if (strcmp(driver, "host_device") == 0)
        protocols->entries[position].host_device = true;
    else
        protocols->entries[position].other = true;
    return 0;
}

const struct qemu_protocol *qemu_protocols_find(const struct qemu_protocols *protocols,
                                                const char *file)
{
    bool found;
    size_t position = position_of(protocols, file, &found);

    return found ? &protocols->entries[position] : NULL;
}

void qemu_protocols_done(struct qemu_protocols *protocols)
{
    free(protocols->entries);
    *protocols = (struct qemu_protocols){.count = 0};
}
