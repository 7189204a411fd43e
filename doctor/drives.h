/* SPDX-License-Identifier: Apache-2.0 */
/* drives.h - whether this process may open the disks of drive mounts. Private to doctor/.
 *
 * Nothing is opened: access(2) asks the device cgroup, too, which is what a unit with
 * DevicePolicy=closed and a pod that is not privileged forbid by.
 */
#pragma once

#include <stdbool.h>

#include "config/config.h"
#include "doctor/finding.h"

struct drive_facts {
    char device[64];   /* the block device that was tried; "": this node shows none */
    int device_access; /* reading and writing it: 0, or why not as an errno */
    struct drive_prefix {
        const char *path; /* borrowed */
        int found;        /* 0 or -errno */
        bool is_directory;
        bool is_read_only; /* image files below it cannot be opened for writing */
    } prefix[CONFIG_LIST_ITEMS];
    unsigned prefixes;
};

void drives_read(int root, const struct config *config, struct drive_facts *ret_facts);
void drives_judge(const struct drive_facts *facts, struct findings *findings);

/* Both, where drives.enabled = on. */
void drives_examine(int root, const struct config *config, struct findings *findings);
