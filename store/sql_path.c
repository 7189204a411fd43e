/* SPDX-License-Identifier: Apache-2.0 */
/* sql_path.c - has SQLite leave the links of /proc to the kernel.
 *
 * SQLite takes a path apart and follows the text of each link in it. The links of /proc are magic:
 * the text of /proc/1/root is "/", but it leads to the root of another mount namespace, and a
 * database at /proc/1/root/var/lib/crustd would be looked for in the daemon's own /var/lib. Such a
 * path is taken as it stands. Every other path stays SQLite's, so that a link to a database and the
 * database itself have the same WAL.
 */
#include "store/sql_path.h"

#include <sqlite3.h>
#include <string.h>

static sqlite3_vfs *own;

static int full_path(sqlite3_vfs *vfs, const char *path, int size, char *ret_path)
{
    static const char proc[] = "/proc/";
    size_t length = strlen(path);

    (void)vfs;
    if (strncmp(path, proc, sizeof(proc) - 1) != 0)
        return own->xFullPathname(own, path, size, ret_path);
    if (length >= (size_t)size)
        return SQLITE_CANTOPEN;
    memcpy(ret_path, path, length + 1);
    return SQLITE_OK;
}

const char *sql_path_vfs(void)
{
    static sqlite3_vfs vfs;

    if (own)
        return vfs.zName;
    own = sqlite3_vfs_find(NULL);
    if (!own)
        return NULL;
    vfs = *own;
    vfs.pNext = NULL;
    vfs.zName = "crust";
    vfs.xFullPathname = full_path;
    (void)sqlite3_vfs_register(&vfs,
                               0); /* its only error is want of memory, found by the opening */
    return vfs.zName;
}
