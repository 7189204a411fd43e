/* SPDX-License-Identifier: Apache-2.0 */
/* drive_options.h - which mount options a drive may have, and to which call each one belongs.
 *
 * Only listed options are allowed. Other options of a file system can open further devices (ext4's
 * journal_path, xfs's logdev, btrfs's device) or contain what must not be logged. A drive is always
 * mounted nodev and nosuid.
 *
 * Source: fsconfig(2) refuses options such as noatime, which are attributes of the mount:
 * fsmount(2).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent-client/drive_call.h"
#include "lib/result.h"

struct drive_parameter {
    char name[DRIVE_OPTION_BYTES];
    char value[DRIVE_OPTION_BYTES]; /* "": a flag */
};

struct drive_options {
    uint64_t attributes; /* MOUNT_ATTR_*, for fsmount(2) */
    size_t count;
    struct drive_parameter parameters[DRIVE_OPTIONS]; /* for fsconfig(2); "ro" is not among them */
};

enum drive_options_outcome {
    DRIVE_OPTIONS_FINE,
    DRIVE_OPTIONS_REFUSED, /* the error has the option's position, but no part of its text */
};

/* Uses the request's file system type, options and read_only. enforces_labels: the guest enforces
 * SELinux (drive_mount.h), so context= is allowed; elsewhere the kernel refuses to mount with it.
 * The error is filled if REFUSED. */
enum drive_options_outcome drive_options_take(const struct drive_mount_request *request,
                                              bool enforces_labels,
                                              struct drive_options *ret_options,
                                              struct error *error);
