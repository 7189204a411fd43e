/* SPDX-License-Identifier: Apache-2.0 */
/* monitors.h - removes the sockets of added monitors whose VMs are gone.
 *
 * They are crustd's own, so the configuration of cleanup does not apply to them. It runs in slices
 * when no other work is left.
 */
#pragma once

#include <stdbool.h>

struct added_monitor;
struct added_monitors;
struct context;

/* The fields are private to the module. */
struct monitors {
    const struct context *context;
    struct added_monitors *pass; /* in progress; NULL: none */
    bool wanted;
};

/* A VM has ended, or may have: check soon. */
void monitors_want(struct monitors *monitors);

/* Does one slice of the work. Returns whether there is more to do now. */
bool monitors_work(struct monitors *monitors);
bool monitors_are_busy(const struct monitors *monitors);

void monitors_done(struct monitors *monitors);

enum monitors_outcome {
    MONITORS_REMOVED,
    MONITORS_NOT_THAT_ONE, /* a different socket is there now and stays, or none */
};

/* Removes the socket only if it is the one that was read. An enum monitors_outcome or -errno. For
 * tests. */
int monitors_remove_socket(int directory, const struct added_monitor *monitor);
