/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_sets.h - several drives over fd sets, on a monitor that does not report which descriptors a
 * set has. Private to hypervisor/.
 *
 * HMP shows such a drive as /dev/fdset/N, with its driver and the size that QEMU last read. The
 * descriptors that QEMU has open are visible from outside, but not the sets that they are in. So
 * only sizes can show which drive a device is: the listed sizes, if they match those of the
 * devices, or else the sizes after all of these drives have re-read theirs, by
 * `qemu-io NODE "truncate N"`.
 *
 * A re-read can hit the drive of any of these devices, so it has to be safe for each of them. Over
 * a regular file the same command truncates. Therefore:
 *
 *   - Every node over a set must have the driver host_device, which opens no regular file.
 *   - QEMU must not have a regular file open that could be in a set. Only files that its nodes
 *     name, its memory, and files open for writing only are allowed. This is checked before each
 *     command.
 *   - N is the size that the drive was listed with. If a drive is replaced between the list and the
 *     command, N is the size of its predecessor, and not a small number.
 *   - Read-only drives are left alone, and nothing is re-read while a job works on any of them.
 *   - The caller says whether other volumes of the sandbox forbid it.
 */
#pragma once

#include "hypervisor/qemu_report.h"
#include "hypervisor/vmm_resolver.h"

struct qemu_set_drive {
    char name[QEMU_NAME_BYTES];
    uint64_t bytes; /* as last listed; 0: no longer listed */
    bool writable;
    bool refreshed; /* re-read in this call */
};

struct qemu_sets {
    struct qemu_set_drive *drives; /* owned */
    size_t count;
    size_t next; /* the first that still has to be re-read */
};

enum qemu_match_result {
    QEMU_MATCH_UNIQUE,  /* one drive is the device */
    QEMU_MATCH_TIED,    /* the device is one of several drives, which all have its size */
    QEMU_MATCH_UNCLEAR, /* the sizes are not conclusive */
};

struct qemu_match {
    const struct qemu_set_drive *drive; /* UNIQUE */
    uint64_t bytes;                     /* UNIQUE, TIED: the size that the device's drive has */
    struct error doubt;                 /* TIED, UNCLEAR: what is unknown, as readable text */
};

void qemu_sets_done(struct qemu_sets *sets);

/* Lists the raw drives over host_device and a set, if the device may be one of them: the process
 * has it open, and no reported path leads to it. Otherwise count is 0. 0, -ENOMEM, or -ETIME: the
 * resolver is exhausted. */
int qemu_sets_read(struct qemu_sets *sets, const struct qemu_report *report,
                   const struct vmm_wanted *wanted, struct vmm_resolver *resolver);

/* Compares the drives' sizes with those of the devices on the host. If the resolver is exhausted,
 * the result tells nothing. */
enum qemu_match_result qemu_sets_match(const struct qemu_sets *sets,
                                       const struct qemu_report *report,
                                       const struct vmm_wanted *wanted,
                                       struct vmm_resolver *resolver, struct qemu_match *ret_match);

/* Whether any of the drives may safely re-read its size now: DONE, or BUSY (a block job works on a
 * drive), or DRIVE_NOT_FOUND, or UNREACHABLE (the resolver is exhausted); `error` has the reason.
 */
enum hypervisor_outcome qemu_sets_may_refresh(const struct qemu_report *report,
                                              struct vmm_resolver *resolver, struct error *error);

/* The drive to re-read next; NULL: all have been. */
struct qemu_set_drive *qemu_sets_next(struct qemu_sets *sets);

/* Updates the drives' sizes from the roots as listed after all have been re-read. */
void qemu_sets_update(struct qemu_sets *sets, const struct qemu_nodes *roots);
