/* SPDX-License-Identifier: Apache-2.0 */
/* watch_internal.h - what the files of watch/ share. Private to them: the trees, their chains, and
 * the watch descriptors; the kernel's uevents; constructors with parameters that only tests set.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/inotify.h>

#include "lib/collections.h"
#include "watch/watch.h"

/* ---- child watches -------------------------------------------------------------------------- */

/* Which inotify watch belongs to which child directory.
 *
 * There is one allocation per child: a hash handle (56 bytes), two numbers and the name, at most
 * 320 bytes for the longest name. There is no second table by name: arming an inode that is watched
 * already returns the same watch descriptor, so the kernel answers "is it armed?", and correctly
 * even when the name has passed to another directory.
 */

struct child_watch {
    UT_hash_handle hh;
    int descriptor;
    unsigned tree; /* this and name, in this order, are the key of an unarmed child */
    char name[];
};

struct child_watches {
    struct child_watch *armed;   /* by watch descriptor */
    struct child_watch *unarmed; /* those without a watch; by tree and name */
};

/* Renames the entry if the watch descriptor has one already. 0 or -ENOMEM. */
int child_watches_arm(struct child_watches *children, int descriptor, unsigned tree,
                      const char *name);
/* Records that the child has no watch. 0 (also if recorded already) or -ENOMEM. */
int child_watches_miss(struct child_watches *children, unsigned tree, const char *name);

struct child_watch *child_watches_find(const struct child_watches *children, int descriptor);
void child_watches_forget(struct child_watches *children, struct child_watch *child);
void child_watches_forget_missed(struct child_watches *children, unsigned tree, const char *name);

/* Frees everything; does not remove the kernel's watches. */
void child_watches_done(struct child_watches *children);

enum { TREES = 16, CHAIN_LENGTH = 32 };

#define GONE_MASK  (IN_DELETE_SELF | IN_MOVE_SELF)
#define WAIT_MASK  (GONE_MASK | IN_CREATE | IN_MOVED_TO)
#define ROOT_MASK  (GONE_MASK | IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE)
#define CHILD_MASK (ROOT_MASK | IN_CLOSE_WRITE | IN_ATTRIB)
#define LOST_MASK  (GONE_MASK | IN_UNMOUNT | IN_IGNORED)

/* The watched directories that lead to a root, from the top. */
struct chain {
    unsigned steps;
    struct {
        int descriptor;
        uint32_t mask;
    } step[CHAIN_LENGTH];
    int root;         /* watch descriptor, -1 none */
    bool root_exists; /* also if it cannot be watched */
};

struct tree {
    char *path;
    struct chain chain;
    bool retake;     /* an event occurred on the chain */
    bool lost;       /* the root's watch is no longer valid */
    bool incomplete; /* the root could not be watched, or its path not be walked */
    bool due;        /* queue_tree must be called */
};

struct watch_directories {
    struct loop *loop;
    int root; /* borrowed */
    const struct watch_directories_handler *handler;
    void *userdata;
    struct watch_counters counters;
    struct loop_io io;
    struct loop_timer due;
    bool unarmed_due; /* queue_directory must be called for every child without a watch */
    int inotify_fd;
    bool overflowed;
    struct child_watches children;
    unsigned trees;
    struct tree tree[TREES];
};

/* Arms an open directory, in addition to its present mask. Watch descriptor or -errno. */
int directories_add_watch(const struct watch_directories *watch, int directory, uint32_t mask);

/* Unless anybody still needs it. -1: none. */
void directories_release_watch(const struct watch_directories *watch, int descriptor);

/* Walks from the top to the root or to the end of the existing path. -errno if the root cannot be
 * watched (chain->root_exists), or the path cannot be walked. */
int directories_follow(struct watch_directories *watch, const char *path, struct chain *chain);
void directories_release_chain(const struct watch_directories *watch, const struct chain *chain);

/* Whether the result of opening a directory says that there is none. */
bool directories_is_absent(int r);

/* ---- uevents -------------------------------------------------------------------------------- */

struct uevent {
    const char *devpath;   /* borrowed from the datagram */
    const char *subsystem; /* likewise; "" */
    bool has_number;
    uint32_t major, minor;
    bool capacity_changed; /* SDEV_UA=CAPACITY_DATA_HAS_CHANGED */
};

/* data[length] must be readable and NUL (the receiver's buffer is one byte longer than it asks
 * for). 0 or -EBADMSG. */
int uevent_parse(const char *data, size_t length, struct uevent *ret_event);

/* ---- for tests ------------------------------------------------------------------------------ */

/* receive_bytes: the value for SO_RCVBUF (forced if permitted). */
int watch_block_new_sized(struct loop *loop, const struct watch_block_handler *handler,
                          void *userdata, int receive_bytes, struct watch_block **ret_watch);

/* mount_table: the mountinfo file of a process. */
int watch_mounts_new_at(struct loop *loop, const char *mount_table, void (*changed)(void *userdata),
                        void *userdata, struct watch_mounts **ret_watch);
