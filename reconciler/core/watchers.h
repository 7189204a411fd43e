/* SPDX-License-Identifier: Apache-2.0 */
/* watchers.h - what the reconciler needs of the watchers. It does not depend on watch/: events.c
 * wires the two. */
#pragma once

#include <sys/types.h>

#include "reconciler/core/trees.h"

struct reconciler_health;

struct reconciler_watchers {
    void *userdata;
    /* Watches one more tree, under this number. 0 or -errno. */
    int (*watch)(void *userdata, enum reconciler_tree tree, const char *path);
    /* Stops watching a tree, whose number is free then. */
    void (*unwatch)(void *userdata, enum reconciler_tree tree);
    /* Watches a directory before it is read; outcomes as watch_directories_arm(). */
    int (*arm)(void *userdata, enum reconciler_tree tree, const char *name);
    /* The same for a directory that is open already, or could not be opened:
     * watch_directories_arm_opened(). */
    int (*arm_opened)(void *userdata, enum reconciler_tree tree, const char *name, int opened,
                      int fd);
    /* Watches for the end of the process; outcomes as watch_processes_add(). */
    int (*pin)(void *userdata, const char *sandbox_id, pid_t pid);
    /* Returns the pid if its process has ended and the event has not arrived yet; outcomes as
     * watch_processes_remove(). */
    pid_t (*unpin)(void *userdata, const char *sandbox_id);
    /* For the sweep: compares what causes no events. */
    void (*check)(void *userdata);
    /* Fills ret_health's sources. */
    void (*report)(void *userdata, struct reconciler_health *ret_health);
};
