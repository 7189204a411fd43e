/* SPDX-License-Identifier: Apache-2.0 */
/* directories.h - what directories.c and directories_chain.c share: the trees, their chains, and
 * the watch descriptors. Private to them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/inotify.h>

#include "watch/child_watches.h"
#include "watch/watch.h"

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
    bool due;        /* observe_all must be called */
};

struct watch_directories {
    struct loop *loop;
    int root; /* borrowed */
    const struct watch_directories_handler *handler;
    void *userdata;
    struct watch_counters counters;
    struct loop_io io;
    struct loop_timer due;
    bool unarmed_due; /* observe_again must be called for every child without a watch */
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
