/* SPDX-License-Identifier: Apache-2.0 */
/* path_guard.h - keeps the loop out of file systems that may hang.
 *
 * Looking up a name in FUSE, NFS and their like asks a program or another machine, which may never
 * answer. Paths come from outside, and one that leads there would stop the daemon for good. Between
 * path_guard_start() and path_guard_stop(), every path that path.h resolves inside a root is walked
 * first, name by name, and is refused with PATH_MAY_HANG where it would enter such a file system;
 * nothing is looked up there. The mount table says which they are; it is read again once it has
 * changed.
 *
 * Those that a path of the administrator's lies on are entered, because without them there is no
 * service. The root itself is not judged.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Starts guarding. trusted: paths below `root`; what they lie on by their names is entered. 0 or
 * -errno. */
int path_guard_start(int root, const char *const *trusted, size_t count);
void path_guard_stop(void);

/* 0, also for a path that leads nowhere, or PATH_MAY_HANG. */
int path_guard_check(int root, const char *path);

/* The same for a root that is another process', and its mounts: it may have a mount namespace of
 * its own. Reads them each time. */
int path_guard_check_process(pid_t pid, int root, const char *path);

/* Whether looking up names there may take for ever. */
bool path_guard_may_hang(const char *file_system);
