/* SPDX-License-Identifier: Apache-2.0 */
/* watchers.h - what the reconciler asks of the watchers, which it does not know: main.c wires them.
 */
#pragma once

#include <sys/types.h>

#include "reconciler/core/trees.h"

struct reconciler_health;

struct reconciler_watchers {
    void *userdata;
    /* Watch one more tree, whose number is to be this. 0 or -errno. */
    int (*watch)(void *userdata, enum reconciler_tree tree, const char *path);
    /* Watch a directory before it is read; outcomes as watch_directories_arm(). */
    int (*arm)(void *userdata, enum reconciler_tree tree, const char *name);
    /* One that is open already, or that could not be opened: watch_directories_arm_opened(). */
    int (*arm_opened)(void *userdata, enum reconciler_tree tree, const char *name, int opened,
                      int fd);
    /* Tell when the process ends; outcomes as watch_processes_add(). */
    int (*pin)(void *userdata, const char *sandbox_id, pid_t pid);
    /* The pid, if its process has ended and the event has not arrived yet; outcomes as
     * watch_processes_remove(). */
    pid_t (*unpin)(void *userdata, const char *sandbox_id);
    /* The sweep: compare what cannot be watched for. */
    void (*check)(void *userdata);
    /* Fills ret_health's sources. */
    void (*report)(void *userdata, struct reconciler_health *ret_health);
};
