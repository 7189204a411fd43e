/* SPDX-License-Identifier: Apache-2.0 */
/* device_cgroup.c - adds a rule to the cgroup of this process.
 *
 * The hierarchy is mounted nowhere: a container has no place for it.
 */
#include "guest-agent/device_cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/cleanup.h"

enum { RULE_BYTES = 48 };

/* The path in one line of /proc/PID/cgroup, "N:CONTROLLER,…:/PATH". NULL: of other controllers. */
static char *path_of(char *line)
{
    char *controllers = strchr(line, ':'),
         *path = controllers ? strchr(controllers + 1, ':') : NULL;
    char *rest, *name;

    if (!path)
        return NULL;
    *path++ = '\0';
    for (name = strtok_r(controllers + 1, ",", &rest); name; name = strtok_r(NULL, ",", &rest))
        if (strcmp(name, "devices") == 0)
            return path;
    return NULL;
}

/* Relative to the root of the hierarchy. By /proc/self, because /proc may be that of another pid
 * namespace. */
static int find_own(char ret_path[static PATH_MAX])
{
    cleanup(freep) char *line = NULL;
    FILE *file = fopen("/proc/self/cgroup", "re");
    const char *path = NULL;
    size_t size = 0;
    int length = -1;

    if (!file)
        return -errno;
    while (!path && getline(&line, &size, file) > 0) {
        line[strcspn(line, "\n")] = '\0';
        path = path_of(line);
    }
    if (path)
        length = snprintf(ret_path, PATH_MAX, ".%s/devices.allow", path);
    (void)fclose(file);
    return length < 0 ? -ENOENT : length < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int open_hierarchy(int *ret_fd)
{
    cleanup(fd_closep) int context = fsopen("cgroup", FSOPEN_CLOEXEC);
    int fd;

    if (context < 0 || fsconfig(context, FSCONFIG_SET_FLAG, "devices", NULL, 0) < 0 ||
        fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    fd = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

int device_cgroup_allow(dev_t device)
{
    cleanup(fd_closep) int hierarchy = -1;
    cleanup(fd_closep) int rules = -1;
    char path[PATH_MAX], rule[RULE_BYTES];
    int length, r = find_own(path);

    if (r == 0)
        r = open_hierarchy(&hierarchy);
    if (r < 0)
        return r;
    rules = openat(hierarchy, path, O_WRONLY | O_CLOEXEC);
    length = snprintf(rule, sizeof(rule), "b %u:%u r", major(device), minor(device));
    return rules < 0 || write(rules, rule, (size_t)length) < 0 ? -errno : 0;
}
