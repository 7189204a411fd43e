/* SPDX-License-Identifier: Apache-2.0 */
/* cleaner.h - finds stale metadata, a slice at a time, and moves it away.
 *
 * A pass examines every known directory, counts the node's processes for those that look stale, and
 * then decides all of them at once. It runs in slices when no other work is left, and may be
 * abandoned at any time before it decides.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/core/context.h"

/* ---- watch health --------------------------------------------------------------------------- */

/* Whether observations of the node can be relied upon, and since when.
 *
 * A directory that never existed counts as empty. If one existed and is gone, nothing is known
 * about what it would contain. The time starts over with the daemon, whenever something becomes
 * visible again, and whenever a watcher reports that a tree was replaced or lost events.
 */

struct watch_health {
    const struct context *context;
    struct {
        bool seen;
        dev_t device;
        ino_t inode;
    } root[TREE_BUNDLES];
    dev_t kubelet[CONFIG_LIST_ITEMS]; /* file system of its pods when first seen; 0: not yet */
    bool kubelet_seen[CONFIG_LIST_ITEMS];
    uint64_t well_since_ns; /* CLOCK_BOOTTIME; 0: something is not visible */
    char problem[400];      /* what cannot be seen; several are separated by "; " */
};

/* A root exists: from now on it is known to have existed. */
void watch_health_note_root(struct watch_health *watch_health, enum reconciler_tree tree,
                            const struct stat *st);

/* Observes the watched roots, the watchers and the kubelet's directories. */
void watch_health_check(struct watch_health *watch_health);

/* Something was wrong since the last check: the time starts over. */
void watch_health_disturb(struct watch_health *watch_health);

/* ---- monitors ------------------------------------------------------------------------------- */

/* Removes the sockets of added monitors whose VMs are gone.
 *
 * They are crustd's own, so the configuration of cleanup does not apply to them. It runs in slices
 * when no other work is left.
 */

struct added_monitor;
struct added_monitors;

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

/* ---- cleaner -------------------------------------------------------------------------------- */

struct cleanup_pass;

struct cleanup {
    const struct context *context;
    struct watch_health watch_health;
    struct monitors monitors;
    struct cleanup_pass *pass; /* in progress; NULL: none */
    bool pass_wanted;
    bool trash_wanted;      /* rows of the trash may have a next step */
    struct loop_timer look; /* starts the next pass before the sweep does */
    struct loop_timer step; /* starts the next step in the trash */
    uint64_t settles_ns;    /* when the next step in the trash is due; UINT64_MAX: none */

    /* For the rate: the last removal, and the number of removals since the last minute without any.
     */
    uint64_t removed_ns;
    unsigned long removed;
};

void cleanup_done(struct cleanup *cleanup);

/* Requests a pass as soon as there is time, and a check of what is in the trash. */
void cleanup_want(struct cleanup *cleanup);

/* Does one slice of the work. Returns whether there is more to do now. */
bool cleanup_work(struct cleanup *cleanup);
bool cleanup_is_busy(const struct cleanup *cleanup);
