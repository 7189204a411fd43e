/* SPDX-License-Identifier: Apache-2.0 */
/* monitors.h - removes the sockets of added monitors whose VMs are gone.
 *
 * They are crustd's own: whether and how stale metadata is cleaned up does not matter here. It runs
 * when nothing else is to be done, in slices.
 */
#pragma once

#include <stdbool.h>

struct added_monitor;
struct added_monitors;
struct context;

/* The fields are the module's own. */
struct monitors {
    const struct context *context;
    struct added_monitors *pass; /* under way; NULL: none */
    bool wanted;
};

/* A VM has ended, or may have: check soon. */
void monitors_want(struct monitors *monitors);

/* A slice of what there is to do. Whether there is more right now. */
bool monitors_work(struct monitors *monitors);
bool monitors_are_busy(const struct monitors *monitors);

void monitors_done(struct monitors *monitors);

enum monitors_outcome {
    MONITORS_REMOVED,
    MONITORS_NOT_THAT_ONE, /* it is another one now, and stays, or none is there */
};

/* The one that was seen, and no other. An enum monitors_outcome or -errno. For tests. */
int monitors_remove_socket(int directory, const struct added_monitor *monitor);
