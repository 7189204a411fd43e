/* SPDX-License-Identifier: Apache-2.0 */
/* device_cgroup.c - see device_cgroup.h. The hierarchy is mounted nowhere. */
#include "device_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* null, zero, full, random, urandom, tty, console, ptmx, terminals. */
static const char *const allowed[] = {
    "c *:* m",   "b *:* m",   "c 1:3 rwm", "c 1:5 rwm", "c 1:7 rwm",   "c 1:8 rwm",
    "c 1:9 rwm", "c 5:0 rwm", "c 5:1 rwm", "c 5:2 rwm", "c 136:* rwm",
};

int device_cgroup_open(void)
{
    int context = fsopen("cgroup", FSOPEN_CLOEXEC), fd = -1;

    if (context >= 0 && fsconfig(context, FSCONFIG_SET_FLAG, "devices", NULL, 0) == 0 &&
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) == 0)
        fd = fsmount(context, FSMOUNT_CLOEXEC, 0);
    if (context >= 0)
        close(context);
    return fd;
}

static int write_to(int hierarchy, const char *id, const char *file, const char *text)
{
    char path[512];
    int fd, r;

    (void)snprintf(path, sizeof(path), "%s/%s", id, file);
    fd = openat(hierarchy, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    close(fd);
    return r;
}

int device_cgroup_make(int hierarchy, const char *id)
{
    int r;

    if (mkdirat(hierarchy, id, 0755) < 0 && errno != EEXIST)
        return -errno;
    r = write_to(hierarchy, id, "devices.deny", "a");
    for (size_t i = 0; r == 0 && i < sizeof(allowed) / sizeof(allowed[0]); i++)
        r = write_to(hierarchy, id, "devices.allow", allowed[i]);
    return r;
}

int device_cgroup_move(int hierarchy, const char *id, pid_t process)
{
    char number[16];

    (void)snprintf(number, sizeof(number), "%d", (int)process);
    return write_to(hierarchy, id, "cgroup.procs", number);
}

void device_cgroup_remove(int hierarchy, const char *id)
{
    (void)unlinkat(hierarchy, id, AT_REMOVEDIR);
}
