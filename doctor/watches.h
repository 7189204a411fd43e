/* SPDX-License-Identifier: Apache-2.0 */
/* watches.h - inotify's limits, against what there is to watch. Private to doctor/. */
#pragma once

#include <stdint.h>

#include "config/config.h"
#include "doctor/finding.h"

struct watch_facts {
    int instance;           /* an instance can be had: 0 or -errno */
    int watch;              /* and a watch: 0 or -errno */
    uint64_t max_instances; /* fs.inotify.max_user_instances; 0 unknown */
    uint64_t max_watches;
    unsigned needed; /* directories that crustd watches now */
};

void watches_read(int root, const struct config *config, struct watch_facts *ret_facts);
void watches_judge(const struct watch_facts *facts, struct findings *findings);
