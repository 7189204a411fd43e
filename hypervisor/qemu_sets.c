/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_sets.c - identifies drives by size alone.
 *
 * Before anything is re-read, a drive's listed size may be outdated. The sizes are then conclusive
 * only if all drives' sizes together are exactly those of the devices: if any were outdated, its
 * device would have grown since, and the totals would differ. Afterwards each drive that was
 * re-read has its device's size, so that one device of a size and one drive of that size belong
 * together.
 */
#include "hypervisor/qemu_sets.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/qemu_held.h"
#include "hypervisor/qemu_source.h"
#include "lib/cleanup.h"

/* Block devices that may be in a set: the process has them open, and no reported path leads to
 * them. */
struct devices {
    struct vmm_identity *entries; /* without duplicates; owned */
    size_t count;
    bool whole; /* the process has no more open than could be listed */
};

static void devices_done(struct devices *devices)
{
    free(devices->entries);
}

static bool has_device(const struct devices *devices, const struct vmm_identity *identity)
{
    for (size_t i = 0; i < devices->count; i++)
        if (vmm_identity_equal(&devices->entries[i], identity))
            return true;
    return false;
}

static int list_devices(struct devices *devices, const struct qemu_report *report,
                        struct vmm_resolver *resolver)
{
    size_t held;

    *devices = (struct devices){.entries = calloc(QEMU_HELD_ENTRIES, sizeof(*devices->entries))};
    if (!devices->entries)
        return -ENOMEM;
    held = resolver->held(resolver, devices->entries, QEMU_HELD_ENTRIES);
    devices->whole = held < QEMU_HELD_ENTRIES;
    held = qemu_held_unnamed(report, resolver, devices->entries, held);
    if (resolver->exhausted)
        return -ETIME;
    for (size_t i = 0; i < held; i++) {
        const struct vmm_identity identity = devices->entries[i];

        if (identity.block_device && !has_device(devices, &identity))
            devices->entries[devices->count++] = identity;
    }
    return 0;
}

void qemu_sets_done(struct qemu_sets *sets)
{
    free(sets->drives);
    *sets = (struct qemu_sets){.count = 0};
}

/* Whether the node is a raw layer over host_device and a set, without an offset or size of its
 * own. */
static bool is_of_set(const struct qemu_node *root, const struct qemu_nodes *nodes)
{
    struct qemu_source source;

    return qemu_name_is_plain(root->name) && qemu_source_read(&source, root, nodes) &&
           source.is_set && source.host_device && !source.layered && !source.fixed;
}

static int list_drives(struct qemu_sets *sets, const struct qemu_report *report)
{
    sets->drives = calloc(report->roots.count + 1, sizeof(*sets->drives));
    if (!sets->drives)
        return -ENOMEM;
    for (size_t i = 0; i < report->roots.count; i++) {
        const struct qemu_node *root = &report->roots.entries[i];
        struct qemu_set_drive *drive = &sets->drives[sets->count];

        if (!is_of_set(root, &report->nodes))
            continue;
        memcpy(drive->name, root->name, sizeof(drive->name));
        drive->bytes = root->bytes;
        drive->writable = !root->read_only;
        sets->count++;
    }
    return 0;
}

int qemu_sets_read(struct qemu_sets *sets, const struct qemu_report *report,
                   const struct vmm_wanted *wanted, struct vmm_resolver *resolver)
{
    cleanup(devices_done) struct devices devices = {0};
    int r = list_devices(&devices, report, resolver);

    *sets = (struct qemu_sets){.count = 0};
    if (r < 0 || report->sets_known || !has_device(&devices, &wanted->identity))
        return r;
    return list_drives(sets, report);
}

/* ---- comparing sizes ---- */

static int compare_sizes(const void *left, const void *right)
{
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

    return (a > b) - (a < b);
}

/* Reads the sizes of all devices; -errno if one cannot be read, or the time is over. */
static int read_sizes(const struct devices *devices, struct vmm_resolver *resolver, uint64_t *sizes)
{
    for (size_t i = 0; i < devices->count; i++) {
        int r = vmm_resolver_is_exhausted(resolver)
                    ? -ETIME
                    : resolver->bytes(resolver, &devices->entries[i], &sizes[i]);

        if (r < 0)
            return r;
    }
    return 0;
}

/* Whether the drives' listed sizes together are those of the devices. */
static bool are_equal(const struct qemu_sets *sets, const uint64_t *sizes, size_t count)
{
    cleanup(freep) uint64_t *sorted = calloc(2 * count + 1, sizeof(*sorted));

    if (!sorted || sets->count != count)
        return false;
    for (size_t i = 0; i < count; i++) {
        sorted[i] = sizes[i];
        sorted[count + i] = sets->drives[i].bytes;
    }
    qsort(sorted, count, sizeof(*sorted), compare_sizes);
    qsort(sorted + count, count, sizeof(*sorted), compare_sizes);
    return memcmp(sorted, sorted + count, count * sizeof(*sorted)) == 0;
}

static bool was_refreshed(const struct qemu_sets *sets)
{
    for (size_t i = 0; i < sets->count; i++)
        if (sets->drives[i].refreshed)
            return true;
    return false;
}

static void describe_tie(const struct qemu_sets *sets, struct qemu_match *match)
{
    const char *names[2] = {"", ""};
    size_t tied = 0;

    for (size_t i = 0; i < sets->count; i++) {
        if (sets->drives[i].bytes != match->bytes)
            continue;
        if (tied < array_length(names))
            names[tied] = sets->drives[i].name;
        tied++;
    }
    (void)error_set(&match->doubt, 0,
                    "%zu drives (%s, %s%s) have %" PRIu64 " bytes, as this device has, and HMP "
                    "does not show which of them it is",
                    tied, names[0], names[1], tied > array_length(names) ? ", …" : "",
                    match->bytes);
}

static enum qemu_match_result match_sizes(const struct qemu_sets *sets, const uint64_t *sizes,
                                          size_t count, struct qemu_match *match)
{
    bool only_refreshed = was_refreshed(sets);
    size_t drives = 0, devices = 0;

    for (size_t i = 0; i < count; i++)
        devices += sizes[i] == match->bytes;
    for (size_t i = sets->count; i-- > 0;) {
        const struct qemu_set_drive *drive = &sets->drives[i];

        if (drive->bytes != match->bytes || (only_refreshed && !drive->refreshed))
            continue;
        match->drive = drive;
        drives++;
    }
    if (devices == 1 && drives)
        return QEMU_MATCH_UNIQUE;
    match->drive = NULL;
    return devices > 1 && drives >= devices ? QEMU_MATCH_TIED : QEMU_MATCH_UNCLEAR;
}

enum qemu_match_result qemu_sets_match(const struct qemu_sets *sets,
                                       const struct qemu_report *report,
                                       const struct vmm_wanted *wanted,
                                       struct vmm_resolver *resolver, struct qemu_match *ret_match)
{
    cleanup(freep) uint64_t *sizes = calloc(QEMU_HELD_ENTRIES, sizeof(*sizes));
    cleanup(devices_done) struct devices devices = {0};
    enum qemu_match_result result = QEMU_MATCH_UNCLEAR;

    *ret_match = (struct qemu_match){.drive = NULL};
    if (sizes && list_devices(&devices, report, resolver) == 0 && devices.whole &&
        read_sizes(&devices, resolver, sizes) == 0 &&
        resolver->bytes(resolver, &wanted->identity, &ret_match->bytes) == 0 &&
        (was_refreshed(sets) || are_equal(sets, sizes, devices.count)))
        result = match_sizes(sets, sizes, devices.count, ret_match);
    if (result == QEMU_MATCH_TIED)
        describe_tie(sets, ret_match);
    if (result != QEMU_MATCH_UNCLEAR)
        return result;
    ret_match->bytes = 0;
    (void)error_set(&ret_match->doubt, 0,
                    "%zu drives came as descriptors, HMP does not show which of them is the "
                    "device, and their sizes do not either",
                    sets->count);
    return result;
}

/* ---- re-reading ---- */

/* A job puts a filter of its own over the node that it works on. */
static bool is_of_job(const struct qemu_node *node)
{
    static const char *const filters[] = {"mirror_top", "commit_top", "copy-before-write",
                                          "backup-top"};

    for (size_t i = 0; i < array_length(filters); i++)
        if (strcmp(node->driver, filters[i]) == 0)
            return true;
    return false;
}

static bool has_job(const struct qemu_nodes *nodes, struct error *error)
{
    for (size_t i = 0; i < nodes->count; i++)
        if (is_of_job(&nodes->entries[i])) {
            (void)error_set(error, 0, "a block job works on QEMU's drives (node %s, %s)",
                            nodes->entries[i].name, nodes->entries[i].driver);
            return true;
        }
    return false;
}

/* Whether every node over a set is reported to be host_device, or to lie over it and nothing
 * else. */
static bool all_are_devices(const struct qemu_report *report, struct vmm_resolver *resolver,
                            struct error *error)
{
    const struct qemu_nodes *nodes = &report->nodes;
    struct qemu_source source;

    for (size_t i = 0; i < nodes->count; i++) {
        const struct qemu_node *node = &nodes->entries[i];
        bool is_read =
            !vmm_resolver_is_exhausted(resolver) && qemu_source_read(&source, node, nodes);

        if (is_read && (!source.is_set || source.host_device))
            continue;
        (void)error_set(error, 0,
                        "QEMU's drives cannot be read again together: node %s (%s) may be a "
                        "regular file or an image, which that would cut",
                        node->name, node->driver);
        return false;
    }
    return true;
}

/* The first file that no node names, or NULL. All files are compared in one go, because that reads
 * and resolves the file of every node. room: for as many identities. */
static const struct vmm_file *find_unnamed(const struct qemu_report *report,
                                           struct vmm_resolver *resolver,
                                           const struct vmm_file *files, size_t count,
                                           struct vmm_identity *room)
{
    const struct vmm_file *file = files;

    for (size_t i = 0; i < count; i++)
        room[i] = files[i].identity;
    if (!count || !qemu_held_unnamed(report, resolver, room, count))
        return NULL;
    while (!vmm_identity_equal(&file->identity, &room[0]))
        file++;
    return file;
}

static enum hypervisor_outcome judge_files(const struct qemu_report *report,
                                           struct vmm_resolver *resolver, struct error *error)
{
    cleanup(freep) struct vmm_file *files = calloc(QEMU_HELD_ENTRIES, sizeof(*files));
    cleanup(freep) struct vmm_identity *room = calloc(QEMU_HELD_ENTRIES, sizeof(*room));
    const struct vmm_file *file;
    size_t count = 0;
    int r = files && room ? resolver->files(resolver, files, QEMU_HELD_ENTRIES, &count) : -ENOMEM;

    if (r < 0) {
        (void)error_set_errno(error, r,
                              "QEMU's drives cannot be read again together: what it has "
                              "open cannot be listed");
        return HYPERVISOR_DRIVE_NOT_FOUND;
    }
    file = find_unnamed(report, resolver, files, count, room);
    if (!file)
        return HYPERVISOR_DONE;
    (void)error_set(error, 0,
                    "QEMU's drives cannot be read again together: its descriptor %d is a regular "
                    "file, which that would cut if it is a drive's",
                    file->fd);
    return HYPERVISOR_DRIVE_NOT_FOUND;
}

enum hypervisor_outcome qemu_sets_may_refresh(const struct qemu_report *report,
                                              struct vmm_resolver *resolver, struct error *error)
{
    enum hypervisor_outcome outcome = HYPERVISOR_DRIVE_NOT_FOUND;

    if (has_job(&report->nodes, error))
        return HYPERVISOR_BUSY;
    if (all_are_devices(report, resolver, error))
        outcome = judge_files(report, resolver, error);
    /* What was not examined in time is not known to be in the way either. */
    return vmm_resolver_doubt(resolver, true, error) < 0 ? HYPERVISOR_UNREACHABLE : outcome;
}

struct qemu_set_drive *qemu_sets_next(struct qemu_sets *sets)
{
    while (sets->next < sets->count && !sets->drives[sets->next].writable)
        sets->next++;
    return sets->next < sets->count ? &sets->drives[sets->next++] : NULL;
}

void qemu_sets_update(struct qemu_sets *sets, const struct qemu_nodes *roots)
{
    for (size_t i = 0; i < sets->count; i++) {
        struct qemu_set_drive *drive = &sets->drives[i];
        const struct qemu_node *root = qemu_nodes_find(roots, drive->name);

        drive->bytes = root ? root->bytes : 0;
    }
}
