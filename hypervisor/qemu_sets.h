/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_sets.h - several drives over fd sets, on a monitor that does not tell which descriptors a
 * set has. Private to hypervisor/.
 *
 * HMP shows such a drive as /dev/fdset/N, with its driver and the size that QEMU last read. What
 * descriptors QEMU has open is seen from outside, but not which set they are in. So only sizes can
 * tell which drive a device is: those that are listed, if they are the devices' own, or else those
 * that are listed after all of these drives have read theirs again (`qemu-io NODE "truncate N"`).
 *
 * What is read again may be the drive of any device, so every one of them has to be safe from it.
 * Over a regular file the same command truncates. Therefore:
 *
 *   - Every node over a set must have the driver host_device, which opens no regular file.
 *   - QEMU must not have a regular file open that could be in a set: none but those that its nodes
 *     name, its memory, and what it only writes. This is looked at before each command.
 *   - N is the size that the drive was listed with. Should a drive be replaced between the list and
 *     the command, this is what its predecessor had, and not a small number.
 *   - Read-only drives are left alone, and nothing is read again while a job works on any of them.
 *   - The caller says whether other volumes of the sandbox forbid it.
 */
#pragma once

#include "hypervisor/qemu_report.h"
#include "hypervisor/vmm_resolver.h"

struct qemu_set_drive {
    char name[QEMU_NAME_BYTES];
    uint64_t bytes; /* as listed last; 0: it is there no more */
    bool writable;
    bool refreshed; /* read again in this call */
};

struct qemu_sets {
    struct qemu_set_drive *drives; /* owned */
    size_t count;
    size_t next; /* the first that is still to be read again */
};

enum qemu_told {
    QEMU_TOLD,   /* one drive is the device */
    QEMU_TIED,   /* the device is one of several drives, which all have its size */
    QEMU_UNTOLD, /* the sizes do not tell */
};

struct qemu_told_drive {
    const struct qemu_set_drive *drive; /* TOLD */
    uint64_t bytes;                     /* TOLD, TIED: the size that the device's drive has */
    struct error doubt;                 /* TIED, UNTOLD: what is not known, for a person */
};

void qemu_sets_done(struct qemu_sets *sets);

/* Lists the raw drives over host_device and a set, if the device may be one of them: the process
 * holds it, and no reported path leads to it. count is 0 otherwise. 0 or -ENOMEM. */
int qemu_sets_read(struct qemu_sets *sets, const struct qemu_report *report,
                   const struct vmm_wanted *wanted, struct vmm_resolver *resolver);

/* Compares the drives' sizes with those that the devices have on the host. */
enum qemu_told qemu_sets_tell(const struct qemu_sets *sets, const struct qemu_report *report,
                              const struct vmm_wanted *wanted, struct vmm_resolver *resolver,
                              struct qemu_told_drive *ret_told);

/* Whether it is safe, at this moment, to have any of the drives read its size again: DONE, or BUSY
 * (a block job works on a drive), or DRIVE_NOT_FOUND; `error` says why not. */
enum hypervisor_outcome qemu_sets_may_refresh(const struct qemu_report *report,
                                              struct vmm_resolver *resolver, struct error *error);

/* The drive that is to be read again next; NULL: all have been. */
struct qemu_set_drive *qemu_sets_next(struct qemu_sets *sets);

/* All have been read again, and these are the roots with their sizes now. */
void qemu_sets_update(struct qemu_sets *sets, const struct qemu_nodes *roots);
