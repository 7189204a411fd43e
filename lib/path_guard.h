/* SPDX-License-Identifier: Apache-2.0 */
/* path_guard.h - keeps the loop out of file systems that may hang.
 *
 * Looking up a name in FUSE, NFS and their like asks a program or another machine, which may never
 * answer. Paths come from outside, and one that leads there would stop the daemon for good. Between
 * path_guard_start() and path_guard_stop(), every path that path.h resolves inside a root is walked
 * first, name by name, and is refused with PATH_MAY_HANG where it would enter such a file system;
 * nothing is looked up there. The mount table says which they are; it is read again once it has
 * changed and a path needs it. A path that takes too many steps to walk is refused as well: nobody
 * knows where it leads.
 *
 * File systems that a path of the administrator's lies on are entered, because crustd cannot work
 * without them, but not in the mount namespace of another process. The root itself is not checked.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Starts guarding. trusted: paths below `root` whose file systems may be entered. 0 or -errno. */
int path_guard_start(int root, const char *const *trusted, size_t count);
void path_guard_stop(void);

/* 0, also for a path that does not exist, or PATH_MAY_HANG. */
int path_guard_check(int root, const char *path);

/* The same for the root of another process, which may have a mount namespace of its own, whose
 * mounts are read each time. If its table has more than MOUNT_TABLE_BYTES, every mount of its may
 * hang. */
int path_guard_check_process(pid_t pid, int root, const char *path);

/* Whether a lookup in such a file system may take for ever. */
bool path_guard_may_hang(const char *file_system);
