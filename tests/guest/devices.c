/* SPDX-License-Identifier: Apache-2.0 */
/* devices.c - see devices.h. Everything comes from sysfs, which needs no daemon to be kept right.
 */
#include "devices.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WAIT_ROUNDS 2000 /* of 5 ms, for a device that was promised */

size_t split(char *text, const char *separators, char *words[WORDS_MAX])
{
    size_t count = 0;

    for (char *word = strtok(text, separators); word; word = strtok(NULL, separators)) {
        if (count < WORDS_MAX)
            words[count++] = word;
    }
    return count;
}

bool read_line(const char *path, char *line, int line_bytes)
{
    FILE *file = fopen(path, "re");

    if (!file)
        return false;
    char *got = fgets(line, line_bytes, file);
    fclose(file);
    if (got)
        line[strcspn(line, "\n")] = '\0';
    return got != NULL;
}

static int load_module_file(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int result = 0;

    if (fd < 0)
        return -errno;
    if (syscall(SYS_finit_module, fd, "", 0) < 0 && errno != EEXIST)
        result = -errno;
    close(fd);
    return result;
}

int load_module(const char *name)
{
    char path[PATH_MAX];
    int result = 0;

    snprintf(path, sizeof(path), "/modules/%s.load", name);
    FILE *list = fopen(path, "re");
    if (!list)
        return 0;
    while (result == 0 && fgets(path, sizeof(path), list)) {
        path[strcspn(path, "\n")] = '\0';
        result = load_module_file(path);
    }
    fclose(list);
    return result;
}

/* A pattern for the directory that /sys/class/block/NAME points into: how the disk is attached. */
static void address_pattern(const char *device, char pattern[PATH_MAX])
{
    char path[PATH_MAX];
    char *slots[WORDS_MAX];
    int target, unit;

    if (sscanf(device, "scsi:%d:%d", &target, &unit) == 2) {
        snprintf(pattern, PATH_MAX, "*:0:%d:%d/block", target, unit);
        return;
    }
    snprintf(path, sizeof(path), "%s", device + strlen("pci:"));
    size_t count = split(path, "/", slots);
    int used = snprintf(pattern, PATH_MAX, "../../devices/pci0000:00");
    for (size_t i = 0; i < count && used < PATH_MAX; i++)
        used += snprintf(pattern + used, PATH_MAX - used, "/????:??:%s.0", slots[i]);
    if (used < PATH_MAX)
        snprintf(pattern + used, PATH_MAX - used, "/virtio*/block");
}

/* Is this how /sys/class/block/NAME is attached? A partition is not: it lies deeper. */
static bool is_attached_at(int class_fd, const char *name, const char *pattern)
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(class_fd, name, target, sizeof(target) - 1);

    target[length > 0 ? length : 0] = '\0';
    char *last = strrchr(target, '/');
    if (!last)
        return false;
    *last = '\0';
    return fnmatch(pattern, target, 0) == 0;
}

bool find_device(const char *device, char name[NAME_MAX + 1])
{
    char pattern[PATH_MAX] = "";
    bool found = false;
    struct dirent *entry;
    DIR *directory = opendir("/sys/class/block");

    if (strncmp(device, "pci:", 4) == 0 || strncmp(device, "scsi:", 5) == 0)
        address_pattern(device, pattern);
    while (!found && directory && (entry = readdir(directory))) {
        found = pattern[0] ? is_attached_at(dirfd(directory), entry->d_name, pattern)
                           : strcmp(entry->d_name, device) == 0;
        if (found)
            strcpy(name, entry->d_name);
    }
    if (directory)
        closedir(directory);
    return found;
}

/* Its module may still be probing, and a disk that was just plugged in has its names for a moment
 * before it has its driver (ENXIO). */
int wait_device(const char *device, char node[PATH_MAX])
{
    char name[NAME_MAX + 1];

    for (int i = 0; i < WAIT_ROUNDS; i++) {
        if (find_device(device, name)) {
            snprintf(node, PATH_MAX, "/dev/%s", name);
            int fd = open(node, O_RDONLY | O_CLOEXEC);
            if (fd >= 0) {
                close(fd);
                return 0;
            }
        }
        usleep(5000);
    }
    return -ENODEV;
}

/* What udev does elsewhere: /dev/virtio-ports/NAME for each named virtio-serial port. */
static void link_ports(void)
{
    struct dirent *entry;
    DIR *directory = opendir("/sys/class/virtio-ports");

    mkdir("/dev/virtio-ports", 0755);
    while (directory && (entry = readdir(directory))) {
        char path[PATH_MAX], name[NAME_MAX + 1], link[PATH_MAX], node[PATH_MAX];
        snprintf(path, sizeof(path), "/sys/class/virtio-ports/%s/name", entry->d_name);
        if (!read_line(path, name, sizeof(name)))
            continue;
        snprintf(link, sizeof(link), "/dev/virtio-ports/%s", name);
        snprintf(node, sizeof(node), "../%s", entry->d_name);
        (void)!symlink(node, link);
    }
    if (directory)
        closedir(directory);
}

void wait_port(const char *address)
{
    const char *path = address + strlen("serial://");

    for (int i = 0; i < WAIT_ROUNDS && access(path, F_OK) < 0; i++) {
        link_ports();
        usleep(5000);
    }
}
