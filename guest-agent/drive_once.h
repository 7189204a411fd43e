/* SPDX-License-Identifier: Apache-2.0 */
/* drive_once.h - `crust-guest-agent --drive`: what kata-agent does not do about a drive, in a
 * container that crustd has it run. Prints one line of JSON. The contract is docs/guest-helper.md.
 *
 *     check SERIAL SIZE ro|rw [PLACE PARENT DEV AGENT [NAME]]   before it is mounted
 *     look SERIAL [PATH]                                        whether it is mounted on PATH
 *     hold SERIAL PATH                  gives it its group, syncs it, prints, and goes on syncing
 *     prove SERIAL [NODE]                                       nobody has the disk
 *     release SERIAL PATH               unmounts it there, in the agent's own mount namespace, and
 *                                       proves that nobody has the disk
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent-client/drive_call.h"
#include "lib/result.h"

struct drive_once_request {
    const char *act;
    const char *const *arguments;
    size_t count;
    uint64_t timeout_ns; /* check: for the disk to appear; prove, release: for others to release
                            it */
    uint64_t flush_ns;   /* hold: the interval; 0 syncs once */
    bool has_fs_group;   /* hold: set before the line; a read-only mount keeps its groups */
    gid_t fs_group;
    enum drive_group_policy fs_group_policy;
    const char *sysfs; /* "/sys" */
};

enum drive_once_outcome {
    DRIVE_ONCE_DONE,
    DRIVE_ONCE_REFUSED, /* the line has the reason */
    DRIVE_ONCE_USAGE,   /* bad arguments: nothing was printed */
};

/* Writes the line to `output`. hold returns only if it is refused. An outcome, or -errno with a
 * text if no line could be written. */
int drive_once_run(const struct drive_once_request *request, int output, struct error *error);
