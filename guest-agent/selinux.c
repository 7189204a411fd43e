/* SPDX-License-Identifier: Apache-2.0 */
/* selinux.c - reads one character of selinuxfs. A file by that name in another file system says
 * nothing. */
#include "guest-agent/selinux.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "lib/cleanup.h"

bool selinux_is_enforced_at(const char *directory, unsigned long type)
{
    cleanup(fd_closep) int at = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    cleanup(fd_closep) int fd = -1;
    struct statfs status;
    char enforcing = '0';

    if (at < 0 || fstatfs(at, &status) < 0 || (unsigned long)status.f_type != type)
        return false;
    fd = openat(at, "enforce", O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 && read(fd, &enforcing, 1) == 1 && enforcing == '1';
}

bool selinux_is_enforced(void)
{
    return selinux_is_enforced_at("/sys/fs/selinux", SELINUX_MAGIC);
}
