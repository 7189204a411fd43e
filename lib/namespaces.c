/* SPDX-License-Identifier: Apache-2.0 */
/* namespaces.c - reads nsfs, and this process's own entries in /proc. */
#include "lib/process_trust.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"

#define FIRST_USER_NAMESPACE 0xEFFFFFFDU
#define FIRST_PID_NAMESPACE  0xEFFFFFFCU

static bool has_inode(const char *path, ino_t inode)
{
    struct stat status;

    return stat(path, &status) == 0 && status.st_ino == inode;
}

/* The /proc of another namespace has no entry for this process, or one with another number. A /proc
 * that hides processes of others hides process 1. */
static bool proc_is_ours(void)
{
    char self[32];
    ssize_t length = readlink("/proc/self", self, sizeof(self) - 1);

    if (length <= 0)
        return false;
    self[length] = '\0';
    return strtol(self, NULL, 10) == getpid() && access("/proc/1/stat", R_OK) == 0;
}

bool namespaces_show_all_processes(void)
{
    return proc_is_ours() && has_inode("/proc/self/ns/pid", FIRST_PID_NAMESPACE);
}

bool namespaces_user_is_first(void)
{
    return has_inode("/proc/self/ns/user", FIRST_USER_NAMESPACE);
}

bool namespaces_first_has(const char *path, const struct stat *file)
{
    cleanup(fd_closep) int root = -1;
    struct stat there;

    return proc_is_ours() && path_open_root("/proc/1/root", &root) == 0 &&
           path_stat_in_root(root, path, &there) == 0 && there.st_dev == file->st_dev &&
           there.st_ino == file->st_ino;
}
