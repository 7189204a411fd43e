/* SPDX-License-Identifier: Apache-2.0 */
/* drive_report.c - checks a drive's identity twice.
 *
 * The path was given to the VMM once. Since then it may have become a link to something else, or
 * the name of another device. So the path must lead to the device as the VMM sees it, and the VMM
 * must have that device open. Neither check alone is enough: Cloud Hypervisor resizes the file that
 * it has open, Firecracker opens the path anew.
 *
 * Two drives on one device cannot be distinguished by identity. The recorded one is taken; without
 * a record neither is.
 */
#include "hypervisor/vmm_http.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/text.h"

enum { SHOWN_BYTES = 100 };

void drive_report_done(struct drive_report *report)
{
    for (size_t i = 0; i < report->count; i++)
        free(report->entries[i].path);
    free(report->entries);
    *report = (struct drive_report){.count = 0};
}

const struct drive *drive_report_get(const struct drive_report *report, const char *id)
{
    for (size_t i = 0; id && i < report->count; i++)
        if (strcmp(report->entries[i].id, id) == 0)
            return &report->entries[i];
    return NULL;
}

enum hypervisor_outcome drive_report_add(struct drive_report *report, const struct drive *drive,
                                         const char *path, struct error *error)
{
    struct drive *entries;

    if (!drive->id[0] || !path[0] || strlen(path) >= DRIVE_PATH_BYTES)
        return error_set(error, HYPERVISOR_UNREACHABLE,
                         "a drive's id or path is empty or too long");
    if (drive_report_get(report, drive->id))
        return error_set(error, HYPERVISOR_UNREACHABLE, "two drives have the same id");
    if (report->count == DRIVE_REPORT_ENTRIES)
        return error_set(error, HYPERVISOR_UNREACHABLE, "more than %d drives",
                         DRIVE_REPORT_ENTRIES);
    entries = reallocarray(report->entries, report->count + 1, sizeof(*entries));
    if (entries) {
        report->entries = entries;
        entries[report->count] = *drive;
        entries[report->count].path = strdup(path);
    }
    if (!entries || !entries[report->count].path) {
        (void)error_set_errno(error, -ENOMEM, "cannot keep the drives");
        return HYPERVISOR_UNREACHABLE;
    }
    report->count++;
    return HYPERVISOR_DONE;
}

static bool leads_to(const struct drive *drive, const struct hypervisor_disk *disk,
                     struct vmm_process *process)
{
    struct hypervisor_disk found;

    return vmm_process_path(process, drive->path, &found) == 0 && vmm_disk_equal(&found, disk);
}

enum hypervisor_outcome drive_report_judge(const struct drive *drive,
                                           const struct hypervisor_request *wanted,
                                           enum hypervisor_act act, struct error *error)
{
    const char *obstacle = drive->obstacle;
    bool resize = act == HYPERVISOR_RESIZE;
    char id[SHOWN_BYTES];

    text_clean(drive->id, strlen(drive->id), id, sizeof(id));
    if (!obstacle && resize && wanted->disk.regular_file)
        obstacle = "a regular file is cut or grown by what re-reads a device";
    if (obstacle)
        return error_set(error, HYPERVISOR_UNSUPPORTED, "%s: %s", id, obstacle);
    if (resize && drive->read_only)
        return error_set(error, HYPERVISOR_READ_ONLY, "%s: attached read-only, cannot be refreshed",
                         id);
    return HYPERVISOR_DONE;
}

static enum hypervisor_outcome explain_absence(const struct drive_report *report,
                                               const struct hypervisor_request *wanted,
                                               struct vmm_process *process, struct error *error)
{
    const struct drive *recorded = drive_report_get(report, wanted->recorded_drive);
    struct hypervisor_disk identity;
    char path[SHOWN_BYTES];

    if (recorded && vmm_process_path(process, recorded->path, &identity) == 0) {
        text_clean(recorded->path, strlen(recorded->path), path, sizeof(path));
        return error_set(error, HYPERVISOR_MISMATCH, "the recorded drive is %s, another device",
                         path);
    }
    return error_set(error, HYPERVISOR_DRIVE_NOT_FOUND,
                     "none of the VMM's %zu drives is the device", report->count);
}

/* The recorded drive if it leads to the device, or else the first that does; *ret_count: how many
 * do. The recorded one is examined first, because a VMM may have more drives than can be examined.
 */
static const struct drive *find_leading(const struct drive_report *report,
                                        const struct hypervisor_request *wanted,
                                        struct vmm_process *process, size_t *ret_count)
{
    const struct drive *recorded = drive_report_get(report, wanted->recorded_drive), *found = NULL;

    *ret_count = 1;
    if (recorded && leads_to(recorded, &wanted->disk, process))
        return recorded;
    *ret_count = 0;
    for (size_t i = 0; i < report->count; i++) {
        const struct drive *drive = &report->entries[i];

        if (drive == recorded || !leads_to(drive, &wanted->disk, process))
            continue;
        ++*ret_count;
        if (!found)
            found = drive;
    }
    return found;
}

enum hypervisor_outcome drive_report_find(const struct drive_report *report,
                                          const struct hypervisor_request *wanted,
                                          struct vmm_process *process,
                                          const struct drive **ret_drive, struct error *error)
{
    size_t count;
    const struct drive *found = find_leading(report, wanted, process, &count);

    if (!found)
        return explain_absence(report, wanted, process, error);
    if (count > 1)
        return error_set(error, HYPERVISOR_DRIVE_NOT_FOUND,
                         "%zu of the VMM's drives lead to the device", count);
    if (vmm_process_holds(process, &wanted->disk) != VMM_HOLDS)
        return error_set(error, HYPERVISOR_DRIVE_NOT_FOUND,
                         "a drive's path leads to the device, but the VMM does not have it open");
    *ret_drive = found;
    return drive_report_judge(found, wanted, wanted->act, error);
}
