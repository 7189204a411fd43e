/* SPDX-License-Identifier: Apache-2.0 */
/* drives.c - the rights that drive mounts need beyond what crustd has otherwise: opening block
 * devices, and writing to image files where those are used.
 *
 * The shipped unit and pod leave these out on purpose. A block device that cannot be opened is the
 * same for all of them, so one is tried in place of all.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor/checks.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/path.h"
#include "lib/process.h"

#define REMEDY                                                                                     \
    "systemd: put share/crustd/crustd-drives.conf into /etc/systemd/system/crustd.service.d; "     \
    "pod: "                                                                                        \
    "the component config/deploy/drives, or the chart's drives.enabled"

enum { MOST_DEVICES = 4096 };

/* ---- reading ------------------------------------------------------------------------------- */

/* Whether it is a block device; then *ret_access is 0, or why it may not be read and written as an
 * errno. */
static bool try_device(int root, const char *path, int *ret_access)
{
    cleanup(fd_closep) int fd = -1;
    char own[64];
    struct stat status;

    if (path_open_in_root(root, path, &fd) < 0 || fstat(fd, &status) < 0 ||
        !S_ISBLK(status.st_mode))
        return false;
    (void)snprintf(own, sizeof(own), "/proc/self/fd/%d", fd);
    *ret_access = faccessat(AT_FDCWD, own, R_OK | W_OK, AT_EACCESS) < 0 ? errno : 0;
    return true;
}

/* The first one of the kernel's that has a node in /dev. */
static void find_device(int root, struct drive_facts *facts)
{
    cleanup(dir_closep) DIR *names = opendir("/sys/class/block");
    const char *name;

    for (unsigned i = 0; names && i < MOST_DEVICES && (name = directory_next(names)); i++) {
        char path[sizeof(facts->device)];

        if ((size_t)snprintf(path, sizeof(path), "/dev/%s", name) >= sizeof(path) ||
            !try_device(root, path, &facts->device_access))
            continue;
        memcpy(facts->device, path, sizeof(path));
        return;
    }
}

static struct drive_prefix read_prefix(int root, const char *path)
{
    struct drive_prefix prefix = {.path = path};
    cleanup(fd_closep) int fd = -1;
    struct stat status;
    struct statvfs mount;

    prefix.found = path_open_in_root(root, path, &fd);
    if (prefix.found < 0)
        return prefix;
    prefix.is_directory = fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
    prefix.is_read_only = fstatvfs(fd, &mount) == 0 && (mount.f_flag & ST_RDONLY);
    return prefix;
}

void drives_read(int root, const struct config *config, struct drive_facts *ret_facts)
{
    const struct config_list *prefixes = &config->drives.host_prefixes;

    *ret_facts = (struct drive_facts){.prefixes = prefixes->count};
    find_device(root, ret_facts);
    for (unsigned i = 0; i < prefixes->count; i++)
        ret_facts->prefix[i] = read_prefix(root, config_list_item(prefixes, i));
}

/* ---- judging ------------------------------------------------------------------------------- */

static void judge_device(const struct drive_facts *facts, struct findings *findings)
{
    if (!facts->device[0])
        findings_add(findings, FINDING_NOTE, "drives", "/dev", NULL,
                     "no block device has a node in /dev, so whether drives may be opened was not "
                     "tried");
    else if (facts->device_access == EPERM)
        findings_add(findings, FINDING_ERROR, "drives", facts->device, REMEDY,
                     "the device cgroup forbids opening block devices, so no drive can be attached "
                     "(systemd: DeviceAllow=block-* rw is missing; pod: it is not privileged)");
    else if (facts->device_access != 0)
        findings_add(findings, FINDING_ERROR, "drives", facts->device, REMEDY,
                     "block devices can't be opened, so no drive can be attached: %s",
                     strerror(facts->device_access));
    else
        findings_add(findings, FINDING_OK, "drives", facts->device, NULL,
                     "block devices may be opened for drives");
}

static void judge_prefix(const struct drive_prefix *prefix, struct findings *findings)
{
    if (prefix->found < 0)
        findings_add(findings, FINDING_WARNING, "drives", prefix->path,
                     "Make it, or correct drives.host_prefixes; a pod also has to mount it",
                     "no drive is found below it: %s", strerror(-prefix->found));
    else if (!prefix->is_directory)
        findings_add(findings, FINDING_WARNING, "drives", prefix->path,
                     "Name a directory in drives.host_prefixes",
                     "it is no directory, and no drive can be below it");
    else if (prefix->is_read_only)
        findings_add(findings, FINDING_NOTE, "drives", prefix->path,
                     "For writable image files, systemd: ReadWritePaths= with this path in a "
                     "drop-in; pod: mount it writable",
                     "it is read-only for this process: block devices and read-only drives work, "
                     "image files can't be opened for writing");
    else
        findings_add(findings, FINDING_OK, "drives", prefix->path, NULL,
                     "disks below it may be attached");
}

void drives_judge(const struct drive_facts *facts, struct findings *findings)
{
    judge_device(facts, findings);
    if (facts->prefixes == 0)
        findings_add(findings, FINDING_WARNING, "drives", "drives.host_prefixes",
                     "Name the directories below which disks may be attached",
                     "drives.enabled is on, but no path of this node may be attached");
    for (unsigned i = 0; i < facts->prefixes; i++)
        judge_prefix(&facts->prefix[i], findings);
}

void drives_examine(int root, const struct config *config, struct findings *findings)
{
    struct drive_facts facts;

    if (!config->drives.enabled)
        return;
    drives_read(root, config, &facts);
    drives_judge(&facts, findings);
}

/* ---- monitor -------------------------------------------------------------------------------- */

/* Kata's runtimes name a monitor's socket behind -qmp, -qmp-pretty or -monitor. */

enum { ARGUMENTS_BYTES = 256 * 1024 };

/* crust-qemu/monitor_option.h; both of Kata's runtimes name QEMU's main monitor so. */
static const char crust_qemu[] = "/run/crustd/qemu/", main_monitor[] = "qmp.sock";

static bool mentions(const char *argument, const char *socket)
{
    const char *at = strstr(argument, socket);
    const char end = at ? at[strlen(socket)] : 'x';

    return end == '\0' || end == ',';
}

/* The option that the socket stands behind; "" none does. */
static void find_option(pid_t pid, const char *socket, char *ret_option, size_t size)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(ARGUMENTS_BYTES);
    const char *argument, *end, *previous = "";

    (void)snprintf(ret_option, size, "%s", "");
    if (process_read_arguments(pid, &arguments) < 0)
        return;
    argument = buffer_text(&arguments);
    end = argument + arguments.length;
    for (; argument < end; previous = argument, argument += strlen(argument) + 1)
        if (mentions(argument, socket))
            (void)snprintf(ret_option, size, "%s", previous);
}

const char *monitor_describe(pid_t pid, const char *socket)
{
    const char *slash = strrchr(socket, '/');
    char option[16];

    if (strncmp(socket, crust_qemu, strlen(crust_qemu)) == 0)
        return "crust-qemu's, QMP";
    if (slash && strcmp(slash + 1, main_monitor) == 0)
        return "the main one, QMP";
    find_option(pid, socket, option, sizeof(option));
    if (strcmp(option, "-qmp") == 0 || strcmp(option, "-qmp-pretty") == 0)
        return "an extra monitor, QMP";
    if (strcmp(option, "-monitor") == 0)
        return NULL;
    return "an extra monitor";
}
