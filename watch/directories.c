/* SPDX-License-Identifier: Apache-2.0 */
/* directories.c - inotify on the volume roots, their children, and the chains that lead to them
 * (directories_chain.c).
 *
 * There is one inotify instance. Each tree has watch descriptors for every directory of its path.
 * Those above the root only report that they themselves were moved or removed, which is rare. If a
 * path is incomplete, the last existing directory also reports new names. After any event on the
 * chain the whole path is walked again from the top, so there are no cases to distinguish. Mounting
 * over a directory causes no inotify event at all; walking the path again
 * (watch_directories_check_roots) detects it.
 *
 * A watch descriptor identifies an inode for as long as it is watched: a root is the same if and
 * only if arming what its path leads to now returns the same descriptor. No descriptor of the
 * directory itself is kept, because that would prevent its file system from being unmounted.
 *
 * A directory is always watched before it is read: a name is only taken to be absent after its
 * parent was armed.
 *
 * One directory may be part of several paths, a root and a child. Its events go to all of them.
 *
 * After IN_Q_OVERFLOW even the reports of vanished watches may be missing. So a new instance
 * replaces the old one and all its watches, and all trees are observed again, which arms the
 * children.
 *
 * The listener is called from the loop: when events are read, or by the timer `due`.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "watch/watch_internal.h"

enum { READ_BYTES = 4096, READS = 16 };

enum { ARMED, NO_DIRECTORY, NO_WATCH }; /* outcomes of watch_directories_arm() */

/* ---- children and roots ------------------------------------------------------------------ */

static void forget_child(struct watch_directories *watch, struct child_watch *child)
{
    int descriptor = child->descriptor;

    child_watches_forget(&watch->children, child);
    directories_release_watch(watch, descriptor);
}

static void forget_children(struct watch_directories *watch, unsigned tree)
{
    struct child_watch *child, *next;

    HASH_ITER (hh, watch->children.armed, child, next) {
        if (child->tree == tree)
            forget_child(watch, child);
    }
    HASH_ITER (hh, watch->children.unarmed, child, next) {
        if (child->tree == tree)
            child_watches_forget_missed(&watch->children, tree, child->name);
    }
}

static void set_due(struct watch_directories *watch, struct tree *tree);

/* Finds the root again and, if it is a different one, starts the tree over. */
static void take_up(struct watch_directories *watch, unsigned number)
{
    struct tree *tree = &watch->tree[number];
    struct chain now = {.root = -1}, before = tree->chain;
    bool is_same;
    int r;

    if (!tree->path) /* removed */
        return;
    tree->chain = now;
    r = directories_follow(watch, tree->path, &now);
    tree->retake = false;
    tree->incomplete = r < 0;
    if (r < 0 && !now.root_exists) {
        tree->chain = before;
        directories_release_chain(watch, &now);
        return;
    }
    is_same = !tree->lost && before.root_exists == now.root_exists && before.root == now.root;
    tree->lost = false;
    tree->chain = now;
    if (!is_same) {
        forget_children(watch, number);
        set_due(watch, tree);
    }
    directories_release_chain(watch, &before);
}

static void update_up(struct watch_directories *watch)
{
    bool up = watch->inotify_fd >= 0;

    for (unsigned i = 0; i < watch->trees; i++)
        up = up && !watch->tree[i].incomplete;
    watch->counters.up = up;
}

/* ---- events ------------------------------------------------------------------------------ */

static void on_due(struct loop_timer *timer)
{
    struct watch_directories *watch = container_of(timer, struct watch_directories, due);
    struct child_watch *child, *next;
    char name[NAME_MAX + 1];

    for (unsigned i = 0; i < watch->trees; i++) {
        if (!watch->tree[i].due)
            continue;
        watch->tree[i].due = false;
        watch->handler->queue_tree(watch->userdata, i);
    }
    if (!watch->unarmed_due)
        return;
    watch->unarmed_due = false;
    HASH_ITER (hh, watch->children.unarmed, child, next) {
        (void)snprintf(name, sizeof(name), "%s", child->name); /* the listener may arm it now */
        watch->handler->queue_directory(watch->userdata, child->tree, name);
    }
}

static void start_due(struct watch_directories *watch)
{
    if (!loop_timer_is_active(&watch->due))
        loop_timer_start(watch->loop, &watch->due, 0, on_due);
}

static void set_due(struct watch_directories *watch, struct tree *tree)
{
    tree->due = true;
    start_due(watch);
}

static void on_child_event(struct watch_directories *watch, struct child_watch *child,
                           uint32_t mask)
{
    const unsigned tree = child->tree;
    const int root = watch->tree[tree].chain.root;
    char name[NAME_MAX + 1];

    (void)snprintf(name, sizeof(name), "%s", child->name);
    if (mask & LOST_MASK)
        forget_child(watch, child);
    /* Two trees may lead to the same directory; its children are known only under the tree that
     * armed them last. */
    for (unsigned i = 0; i < watch->trees; i++)
        if (i == tree || (root >= 0 && watch->tree[i].chain.root == root))
            watch->handler->queue_directory(watch->userdata, i, name);
}

static void on_root_event(struct watch_directories *watch, unsigned number,
                          const struct inotify_event *event)
{
    struct tree *tree = &watch->tree[number];

    if (event->mask & LOST_MASK)
        tree->lost = tree->retake = true;
    if (!event->len)
        return;
    if (event->mask & (IN_DELETE | IN_MOVED_FROM))
        child_watches_forget_missed(&watch->children, number, event->name);
    watch->handler->queue_directory(watch->userdata, number, event->name);
}

static void on_event(struct watch_directories *watch, const struct inotify_event *event)
{
    struct child_watch *child;

    watch->counters.events++;
    if (event->mask & IN_Q_OVERFLOW) {
        watch->overflowed = true;
        return;
    }
    child = child_watches_find(&watch->children, event->wd);
    if (child)
        on_child_event(watch, child, event->mask);
    for (unsigned i = 0; i < watch->trees; i++) {
        if (watch->tree[i].chain.root == event->wd)
            on_root_event(watch, i, event);
        for (unsigned j = 0; j < watch->tree[i].chain.steps; j++)
            if ((event->mask & (WAIT_MASK | LOST_MASK)) &&
                watch->tree[i].chain.step[j].descriptor == event->wd)
                watch->tree[i].retake = true;
    }
}

static void on_readable(struct loop_io *io, int events);

/* Opens a new instance in place of the present one, if any. */
static bool begin(struct watch_directories *watch)
{
    int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);

    if (fd < 0)
        return false;
    loop_io_stop(&watch->io);
    fd_close(watch->inotify_fd);
    watch->inotify_fd = fd;
    loop_io_start(watch->loop, &watch->io, fd, LOOP_READ, on_readable);
    return true;
}

/* If no new instance is available, the old one continues, with entries that may be stale. */
static void start_over(struct watch_directories *watch)
{
    watch->overflowed = false;
    watch->counters.overflows++;
    if (begin(watch)) {
        child_watches_done(&watch->children);
        for (unsigned i = 0; i < watch->trees; i++) {
            watch->tree[i].chain.steps = 0;
            watch->tree[i].chain.root = -1;
        }
    }
    for (unsigned i = 0; i < watch->trees; i++) {
        if (!watch->tree[i].path)
            continue;
        watch->tree[i].lost = watch->tree[i].retake = true;
        set_due(watch, &watch->tree[i]);
    }
}

static void on_readable(struct loop_io *io, int events)
{
    static _Alignas(struct inotify_event) char bytes[READ_BYTES];
    struct watch_directories *watch = container_of(io, struct watch_directories, io);
    ssize_t length = 1;

    (void)events;
    for (int i = 0; i < READS && length > 0 && !watch->overflowed; i++) {
        length = read(watch->inotify_fd, bytes, sizeof(bytes));
        for (ssize_t at = 0; at < length && !watch->overflowed;) {
            const struct inotify_event *event = (const void *)(bytes + at);

            at += (ssize_t)(sizeof(*event) + event->len);
            on_event(watch, event);
        }
    }
    if (watch->overflowed)
        start_over(watch);
    for (unsigned i = 0; i < watch->trees; i++)
        if (watch->tree[i].retake)
            take_up(watch, i);
    update_up(watch);
}

/* ---- the listener's side ----------------------------------------------------------------- */

int watch_directories_new(struct loop *loop, int root,
                          const struct watch_directories_handler *handler, void *userdata,
                          struct watch_directories **ret_watch)
{
    struct watch_directories *watch = calloc(1, sizeof(*watch));

    if (!watch)
        return -ENOMEM;
    watch->loop = loop;
    watch->root = root;
    watch->handler = handler;
    watch->userdata = userdata;
    watch->inotify_fd = -1;
    watch->counters.up = begin(watch);
    *ret_watch = watch;
    return 0;
}

struct watch_directories *watch_directories_free(struct watch_directories *watch)
{
    if (!watch)
        return NULL;
    loop_io_stop(&watch->io);
    loop_timer_stop(&watch->due);
    fd_close(watch->inotify_fd);
    child_watches_done(&watch->children);
    for (unsigned i = 0; i < watch->trees; i++)
        free(watch->tree[i].path);
    free(watch);
    return NULL;
}

int watch_directories_add_tree(struct watch_directories *watch, const char *path,
                               unsigned *ret_tree)
{
    unsigned number = 0;
    struct tree *tree;

    while (number < watch->trees && watch->tree[number].path)
        number++;
    if (number == TREES)
        return -E2BIG;
    tree = &watch->tree[number];
    if (path[0] != '/' || strlen(path) >= PATH_MAX)
        return -EINVAL;
    *tree = (struct tree){.path = strdup(path), .chain.root = -1};
    if (!tree->path)
        return -ENOMEM;
    if (number == watch->trees)
        watch->trees++;
    *ret_tree = number;
    take_up(watch, number);
    set_due(watch, tree);
    update_up(watch);
    return 0;
}

void watch_directories_remove_tree(struct watch_directories *watch, unsigned number)
{
    struct chain chain;

    if (number >= watch->trees || !watch->tree[number].path)
        return;
    chain = watch->tree[number].chain;
    free(watch->tree[number].path);
    watch->tree[number] = (struct tree){.chain.root = -1};
    forget_children(watch, number);
    directories_release_chain(watch, &chain);
    update_up(watch);
}

static bool is_child_name(const char *name)
{
    return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static int miss(struct watch_directories *watch, unsigned tree, const char *name)
{
    (void)child_watches_miss(&watch->children, tree, name);
    return NO_WATCH;
}

int watch_directories_arm(struct watch_directories *watch, unsigned tree, const char *name)
{
    cleanup(fd_closep) int root = -1, child = -1;
    int r = -ENOENT;

    if (is_child_name(name))
        r = path_open_directory_in_root(watch->root, watch->tree[tree].path, &root);
    if (root >= 0)
        r = path_open_directory_below(root, name, &child);
    return watch_directories_arm_opened(watch, tree, name, r, child);
}

int watch_directories_arm_opened(struct watch_directories *watch, unsigned tree, const char *name,
                                 int opened, int child)
{
    int descriptor;

    if (directories_is_absent(opened) || !is_child_name(name)) {
        child_watches_forget_missed(&watch->children, tree, name);
        return NO_DIRECTORY;
    }
    if (opened < 0)
        return miss(watch, tree, name);
    descriptor = directories_add_watch(watch, child, CHILD_MASK | IN_MASK_ADD);
    if (descriptor < 0)
        return miss(watch, tree, name);
    if (child_watches_arm(&watch->children, descriptor, tree, name) < 0) {
        directories_release_watch(watch, descriptor);
        return miss(watch, tree, name);
    }
    return ARMED;
}

void watch_directories_check_roots(struct watch_directories *watch)
{
    if (watch->inotify_fd < 0)
        (void)begin(watch);
    for (unsigned i = 0; i < watch->trees; i++)
        take_up(watch, i);
    update_up(watch);
}

static bool is_unwatched(const struct tree *tree)
{
    return tree->chain.root_exists && tree->chain.root < 0;
}

void watch_directories_observe_unarmed(struct watch_directories *watch)
{
    watch->unarmed_due = watch->children.unarmed != NULL;
    if (watch->unarmed_due)
        start_due(watch);
    for (unsigned i = 0; i < watch->trees; i++)
        if (is_unwatched(&watch->tree[i]))
            set_due(watch, &watch->tree[i]);
}

const struct watch_counters *watch_directories_counters(const struct watch_directories *watch)
{
    return &watch->counters;
}

unsigned watch_directories_unarmed(const struct watch_directories *watch)
{
    unsigned unarmed = HASH_COUNT(watch->children.unarmed);

    for (unsigned i = 0; i < watch->trees; i++)
        unarmed += is_unwatched(&watch->tree[i]);
    return unarmed;
}
