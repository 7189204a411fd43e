/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - the watchers, sources of events. They only report "observe X again"; nothing is
 * concluded from an event itself.
 *
 * Each watcher is one opaque object with a descriptor on the loop. It reports to its listener which
 * key to observe again. When it cannot know (queue overflow, lost netlink messages, a directory
 * replaced or mounted over), it reports that everything must be observed again. It calls its
 * listener from the loop only, never from within a function of this header. The listener may then
 * call any function of its watcher except _free.
 *
 * If the kernel does not grant what a watcher needs (no sockets, no inotify instances), the watcher
 * exists but is not up, and the sweep tries to start it again.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/loop.h"
#include "lib/result.h"

enum watch_source {
    WATCH_INOTIFY,
    WATCH_UEVENT,
    WATCH_MOUNTS,
    WATCH_PROCESS,
    WATCH_SOURCES,
};

const char *watch_source_name(enum watch_source source); /* inotify, uevent, mounts, process */

/* For metrics and /readyz. */
struct watch_counters {
    bool up;
    uint64_t events;
    uint64_t overflows;
};

/* ---- directories (inotify) --------------------------------------------------------------- */

/* Watches the roots of trees, each two levels deep: the root itself, and each directory directly
 * below it. If a root does not exist, its nearest existing parent is watched until it does. A root
 * that is replaced, removed or mounted over is looked up again. IN_CREATE | CLOSE_WRITE | MOVED_* |
 * DELETE | …, not IN_MODIFY. */
struct watch_directories;

struct watch_directories_handler {
    /* The child directory `name` of tree number `tree`, or something in it, changed: read it
     * again. */
    void (*queue_directory)(void *userdata, unsigned tree, const char *name);
    /* The whole tree must be scanned again: it appeared, vanished, was replaced, or events were
     * lost. */
    void (*queue_tree)(void *userdata, unsigned tree);
};

int watch_directories_new(struct loop *loop, int root,
                          const struct watch_directories_handler *handler, void *userdata,
                          struct watch_directories **ret_watch);
struct watch_directories *watch_directories_free(struct watch_directories *watch);

/* Adds a tree; trees are numbered 0, 1, … in this order, and the lowest number that became free is
 * used first. path lies below root. queue_tree follows. -E2BIG beyond 16 trees. */
int watch_directories_add_tree(struct watch_directories *watch, const char *path,
                               unsigned *ret_tree);

/* Ends a tree and all its watches; its number becomes free. */
void watch_directories_remove_tree(struct watch_directories *watch, unsigned tree);

/* Arms the watch of one child directory, before it is read (watch first, then scan). Idempotent.
 * Outcomes: 0 armed, 1 there is no such directory, 2 no watch is available (the sweep must observe
 * it). */
int watch_directories_arm(struct watch_directories *watch, unsigned tree, const char *name);
/* The same for a directory that was opened below the root: `opened` is the result of
 * path_open_directory_below(), and the descriptor stays the caller's. */
int watch_directories_arm_opened(struct watch_directories *watch, unsigned tree, const char *name,
                                 int opened, int child);

/* Compares each root's watch with what its path leads to now, and reports queue_tree (from the
 * loop) where they differ. Called when mounts changed, and by the sweep. Also retries to get an
 * inotify instance, if there is none. */
void watch_directories_check_roots(struct watch_directories *watch);

/* Reports (from the loop) every directory without a watch as to be observed again, because no event
 * reports its changes. Called by the sweep. */
void watch_directories_observe_unarmed(struct watch_directories *watch);
unsigned watch_directories_unarmed(const struct watch_directories *watch); /* their number */

const struct watch_counters *watch_directories_counters(const struct watch_directories *watch);

/* ---- block devices (kernel uevents) ------------------------------------------------------ */

/* Listens to the kernel's own multicast group, which needs neither udev nor the host's network
 * namespace (but the initial user namespace). Accepts only messages of the kernel (nl_pid 0,
 * credentials pid 0 uid 0, group 1). The receive buffer is forced to 16 MiB if CAP_NET_ADMIN
 * permits. */
struct watch_block;

struct watch_block_handler {
    void (*queue_device)(void *userdata, uint32_t major, uint32_t minor);
    /* A SCSI device reported that its capacity changed; its block device keeps the old size until a
     * rescan. devpath is below /sys, borrowed. */
    void (*capacity_changed)(void *userdata, const char *devpath);
    void (*queue_all_devices)(void *userdata);
};

int watch_block_new(struct loop *loop, const struct watch_block_handler *handler, void *userdata,
                    struct watch_block **ret_watch);
struct watch_block *watch_block_free(struct watch_block *watch);

/* Retries to listen, if that failed. Called by the sweep before it observes anything, because no
 * event reports what happened meanwhile. */
void watch_block_check(struct watch_block *watch);

const struct watch_counters *watch_block_counters(const struct watch_block *watch);

/* ---- mounts ------------------------------------------------------------------------------ */

/* /proc/1/mountinfo (or /proc/self/mountinfo, if it may not be read) signals each change of the
 * mount table by POLLPRI. `changed` is also called in the loop's first iteration, because a change
 * before that may go unreported. */
struct watch_mounts;
int watch_mounts_new(struct loop *loop, void (*changed)(void *userdata), void *userdata,
                     struct watch_mounts **ret_watch);
struct watch_mounts *watch_mounts_free(struct watch_mounts *watch);
const struct watch_counters *watch_mounts_counters(const struct watch_mounts *watch);

/* ---- processes --------------------------------------------------------------------------- */

/* Pins VMMs by pidfd: their exit is an event, and a process that reuses a pid is not mistaken for
 * them. */
struct watch_processes;
int watch_processes_new(struct loop *loop,
                        void (*exited)(void *userdata, const char *sandbox_id, pid_t pid),
                        void *userdata, struct watch_processes **ret_watch);
struct watch_processes *watch_processes_free(struct watch_processes *watch);

enum watch_processes_outcome {
    WATCH_PROCESS_WATCHED, /* now or already before */
    WATCH_PROCESS_GONE,    /* there is no such process */
};

/* Watches pid on behalf of a sandbox, replacing its earlier pid. An enum watch_processes_outcome;
 * -EMFILE and the like: the sweep must check the process. */
int watch_processes_add(struct watch_processes *watch, const char *sandbox_id, pid_t pid);
/* Stops watching. Returns the pid if its process has ended and exited() has not been called for it;
 * otherwise 0. */
pid_t watch_processes_remove(struct watch_processes *watch, const char *sandbox_id);
const struct watch_counters *watch_processes_counters(const struct watch_processes *watch);
