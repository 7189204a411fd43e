/* SPDX-License-Identifier: Apache-2.0 */
/* path.h - opening files that others control.
 *
 * Kinds of opening, all by openat2(2):
 *
 *   below(dir, name)   for watched directories. No symlink, no magic link, no "..", no other mount:
 *                      RESOLVE_BENEATH | NO_SYMLINKS | NO_MAGICLINKS | NO_XDEV. A file must then be
 *                      regular, have one link, belong to root and be writable by nobody else.
 *   within(dir, name)  for a directory that the operator named: links may lead anywhere below it.
 *   in_root(root, p)   for the host's own trusted prefixes below --root: links, absolute ones too,
 *                      resolve inside the root (RESOLVE_IN_ROOT).
 *
 * O_NONBLOCK always, so that a FIFO in the way cannot hold the daemon.
 */
#pragma once

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "lib/result.h"

/* Outcomes of path_read_below(). */
enum {
    PATH_OK,
    PATH_ABSENT,   /* no such file or directory */
    PATH_UNSAFE,   /* a link, not regular, several links, foreign owner, writable by others */
    PATH_TOO_BIG,  /* more than the limit */
    PATH_CHANGING, /* was written while it was read: read it again */
};

/* Why a path leads to nothing: the failures of the functions here that callers distinguish. Each
 * has the value of the errno that describes it; any other failure is another -errno. */
enum path_failure {
    PATH_MISSING = -ENOENT,
    PATH_BELOW_A_FILE = -ENOTDIR,
    PATH_BEHIND_A_LINK = -ELOOP,
    PATH_LEADS_OUT = -EXDEV, /* of its directory, its mount or the root */
    PATH_NAME_TOO_LONG = -ENAMETOOLONG,
    PATH_FORBIDDEN = -EACCES,
    PATH_NOT_PERMITTED = -EPERM,
    PATH_IS_A_DIRECTORY = -EISDIR,
    PATH_IS_TAKEN = -EEXIST,
    PATH_IS_RACING = -EAGAIN, /* with renames elsewhere */
    PATH_UNREADABLE = -EIO,
    PATH_MAY_HANG = -EREMOTE, /* it leads into a file system that may hang, or too far to tell
                                 (path guard, below) */
};

/* Every function …_in_root() can fail with PATH_MAY_HANG: that says nothing about whether there is
 * such a file. */

/* Nothing has this name: MISSING or BELOW_A_FILE. */
bool path_is_missing(int r);

/* The name leads out of the directory that it was searched in, or through something that is no
 * directory: BELOW_A_FILE, BEHIND_A_LINK or LEADS_OUT. */
bool path_is_no_directory(int r);

/* No directory entry can be reached by this name: it is missing, behind a link or too long. */
bool path_leads_nowhere(int r);

/* Whether an absolute path has no empty, "." and ".." components. */
bool path_is_clean(const char *path);

/* Identity and times of what was read, to tell "unchanged" from "same name"; and whose it is. */
struct path_identity {
    dev_t device;
    ino_t inode;
    uid_t owner;
    mode_t mode;
    nlink_t links;
    off_t size;
    struct timespec modified;
    struct timespec changed;
    struct timespec born; /* zero where the file system has no birth time */
};

/* An O_PATH descriptor of "/" or of --root's directory. -errno. */
int path_open_root(const char *root, int *ret_fd);

/* Directory for reading, opened below/in root. 0, an enum path_failure or another -errno. */
int path_open_directory_below(int directory, const char *name, int *ret_fd);
int path_open_directory_in_root(int root, const char *path, int *ret_fd);

/* Any existing thing below, as O_PATH; of a link the link itself. */
int path_open_below(int directory, const char *name, int *ret_fd);

/* The same, also on a mount below; a link is PATH_BEHIND_A_LINK. */
int path_open_unlinked(int directory, const char *name, int *ret_fd);

/* Any existing thing below as O_PATH, links followed as long as they stay below. */
int path_open_within(int directory, const char *name, int *ret_fd);

/* The same; what is on a mount below is PATH_LEADS_OUT. */
int path_open_on_mount(int directory, const char *name, int *ret_fd);

/* Opens what an O_PATH descriptor is of, whatever its path leads to by now. */
int path_reopen(int handle, int flags, int *ret_fd);

/* An existing file to be read, at once: only where there are no device nodes, as in sysfs. */
int path_open_file_in_root(int root, const char *path, int *ret_fd);

/* Any existing file as O_PATH inside the root, following links. */
int path_open_in_root(int root, const char *path, int *ret_fd);

/* stat(2) of a host path inside the root, following links; never opens the file itself for I/O. */
int path_stat_in_root(int root, const char *path, struct stat *ret_stat);

/* Whether a directory can only have been made by root: every one on the way to it from the root is
 * root's and writable by nobody else, and none is a link. PATH_OK, PATH_ABSENT, PATH_UNSAFE or
 * -errno; `error` says which one is not. */
int path_require_roots(int root, const char *path, struct error *error);

/* The whole of a small file below a directory, checked as above. The buffer's limit is the bound on
 * its bytes. ret_identity may be NULL. PATH_* or -errno; `error` says what was wrong. */
int path_read_below(int directory, const char *name, struct buffer *ret_text,
                    struct path_identity *ret_identity, struct error *error);

/* The same, but the file may be writable by others if the directory lets nobody but its owner in.
 */
int path_read_in_private(int directory, const char *name, struct buffer *ret_text,
                         struct error *error);

/* The same for a trusted path inside the root (links followed, owner not checked, must be regular).
 */
int path_read_in_root(int root, const char *path, struct buffer *ret_text, struct error *error);

/* All of it to an open file. 0 or -errno. */
int path_write(int fd, const char *text, size_t length);

/* A file below a directory as a whole, synced. flags: O_EXCL for one that must be new, O_TRUNC for
 * one that may be there. 0 or -errno. */
int path_write_below(int directory, const char *name, int flags, mode_t mode, const char *text,
                     size_t length);

/* statx identity of an open descriptor. */
int path_identify(int fd, struct path_identity *ret_identity);
bool path_identity_equal(const struct path_identity *a, const struct path_identity *b);

/* The path by which this process reaches a host path, links followed inside the root: for libraries
 * that want a path and follow links by themselves. The last name may be missing. Below the root of
 * another mount namespace (/proc/1/root) no path of ours leads there; then it is root_name and the
 * path as they stand. */
int path_resolve(int root, const char *root_name, const char *path, char ret_path[static PATH_MAX]);

/* The path without links by which an existing file stands inside the root. 0; -EXDEV where that
 * can't be told; other -errno. */
int path_real_in_root(int root, const char *path, char ret_path[static PATH_MAX]);

/* mkdir -p inside the root: the last one made with `mode`, those above it 0755. */
int path_make_directories(int root, const char *path, mode_t mode);

/* ---- path guard ----------------------------------------------------------------------------- */

/* Keeps the loop out of file systems that may hang.
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
