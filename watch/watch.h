/* SPDX-License-Identifier: Apache-2.0 */
/* watch.h - the watchers, sources of events. They only ever say "observe X again"; nothing is
 * concluded from an event.
 *
 * Each watcher is one opaque object with a descriptor on the loop. It tells its listener which key
 * to observe again. When it cannot know (queue overflow, lost netlink messages, a directory
 * replaced or mounted over), it says that everything must be observed again. It calls its listener
 * from the loop only, never from within a function of this header. The listener may then call any
 * function of its watcher except _free.
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

/* Trees whose roots are watched, each two levels deep: the root itself, and each directory directly
 * below it. A root that is absent is waited for at its nearest existing parent; one that is
 * replaced, removed or mounted over is taken up anew. IN_CREATE | CLOSE_WRITE | MOVED_* | DELETE |
 * …, no IN_MODIFY. */
struct watch_directories;

struct watch_directories_handler {
    /* Something happened to, or below, the child directory `name` of tree number `tree`: read it
     * again. */
    void (*observe_again)(void *userdata, unsigned tree, const char *name);
    /* Everything of a tree must be scanned again: it appeared, vanished, was replaced, or events
     * were lost. */
    void (*observe_all)(void *userdata, unsigned tree);
};

int watch_directories_new(struct loop *loop, int root,
                          const struct watch_directories_handler *handler, void *userdata,
                          struct watch_directories **ret_watch);
struct watch_directories *watch_directories_free(struct watch_directories *watch);

/* Adds a tree; its number is 0, 1, … in the order of adding. path lies below root. observe_all
 * follows. -E2BIG past 16 trees. */
int watch_directories_add_tree(struct watch_directories *watch, const char *path,
                               unsigned *ret_tree);

/* Arms the watch of one child directory: before it is read (watch first, then scan). Idempotent.
 * Outcomes: 0 armed, 1 there is no such directory, 2 no more watches to be had (the sweep must look
 * at it). */
int watch_directories_arm(struct watch_directories *watch, unsigned tree, const char *name);
/* The same of a directory that was opened below the root: what path_open_directory_below()
 * returned, and the descriptor, which stays the caller's. */
int watch_directories_arm_opened(struct watch_directories *watch, unsigned tree, const char *name,
                                 int opened, int child);

/* Compares each root's descriptor with what its path leads to now, and says observe_all (from
 * the loop) where they differ. Called when mounts changed and by the sweep. Tries again to get an
 * inotify instance, if there was none. */
void watch_directories_check_roots(struct watch_directories *watch);

/* Asks (from the loop) for every directory without a watch to be observed again, because no event
 * reports what happens there. Called by the sweep. */
void watch_directories_observe_unarmed(struct watch_directories *watch);
unsigned watch_directories_unarmed(const struct watch_directories *watch); /* how many */

const struct watch_counters *watch_directories_counters(const struct watch_directories *watch);

/* ---- block devices (kernel uevents) ------------------------------------------------------ */

/* The kernel's own multicast group, needing neither udev nor the host's network namespace (but the
 * initial user namespace). Accepts only messages of the kernel (nl_pid 0, credentials pid 0 uid 0,
 * group 1). Receive buffer forced to 16 MiB where CAP_NET_ADMIN allows. */
struct watch_block;

struct watch_block_handler {
    void (*observe_again)(void *userdata, uint32_t major, uint32_t minor);
    /* A SCSI device says that its capacity changed; its block device keeps the old size until a
     * rescan. devpath is below /sys, borrowed. */
    void (*capacity_changed)(void *userdata, const char *devpath);
    void (*observe_all)(void *userdata);
};

int watch_block_new(struct loop *loop, const struct watch_block_handler *handler, void *userdata,
                    struct watch_block **ret_watch);
struct watch_block *watch_block_free(struct watch_block *watch);

/* Tries again to listen, if that failed. Called by the sweep before it observes anything, because
 * no event reports what happened meanwhile. */
void watch_block_check(struct watch_block *watch);

const struct watch_counters *watch_block_counters(const struct watch_block *watch);

/* ---- mounts ------------------------------------------------------------------------------ */

/* /proc/1/mountinfo (where it may not be read: /proc/self/mountinfo) signals each change of the
 * mount table by POLLPRI. `changed` is called in the loop's first turn as well, since a change
 * before that may go unreported. */
struct watch_mounts;
int watch_mounts_new(struct loop *loop, void (*changed)(void *userdata), void *userdata,
                     struct watch_mounts **ret_watch);
struct watch_mounts *watch_mounts_free(struct watch_mounts *watch);
const struct watch_counters *watch_mounts_counters(const struct watch_mounts *watch);

/* ---- processes --------------------------------------------------------------------------- */

/* Pins VMMs by pidfd: their exit is an event, and a reused pid is not them. */
struct watch_processes;
int watch_processes_new(struct loop *loop,
                        void (*exited)(void *userdata, const char *sandbox_id, pid_t pid),
                        void *userdata, struct watch_processes **ret_watch);
struct watch_processes *watch_processes_free(struct watch_processes *watch);

enum watch_processes_outcome {
    WATCH_PROCESS_WATCHED, /* since now or before */
    WATCH_PROCESS_GONE,    /* there is no such process */
};

/* Watches pid on behalf of a sandbox, replacing an earlier pid of it. An enum
 * watch_processes_outcome; -EMFILE and the like: the sweep must look. */
int watch_processes_add(struct watch_processes *watch, const char *sandbox_id, pid_t pid);
/* The pid, if its process has ended and exited() has not been called for it; else 0. */
pid_t watch_processes_remove(struct watch_processes *watch, const char *sandbox_id);
const struct watch_counters *watch_processes_counters(const struct watch_processes *watch);
