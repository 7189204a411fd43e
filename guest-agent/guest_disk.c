/* SPDX-License-Identifier: Apache-2.0 */
/* guest_disk.c - finds disks in /sys/block. */
#include "guest-agent/guest_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/quantity.h"

enum {
    DISKS_LOOKED_AT = 16384, /* of any serial; no Kata guest has more */
    PAGE_BYTES = 256,        /* of VPD page 0x80: header and text */
    PAGE_HEADER_BYTES = 4,
    SECTOR_BYTES = 512,
};

/* At most size - 1 bytes, then a NUL. The number of bytes or -errno. */
static ssize_t read_attribute(int disk, const char *name, char *ret_bytes, size_t size)
{
    cleanup(fd_closep) int fd = openat(disk, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t count;

    if (fd < 0)
        return -errno;
    count = read(fd, ret_bytes, size - 1);
    if (count < 0)
        return -errno;
    ret_bytes[count] = '\0';
    return count;
}

/* The disk has no such attribute or page (drivers/scsi/scsi_sysfs.c), or was removed. */
static bool is_missing(int failure)
{
    return failure == ENOENT || failure == EINVAL || failure == ENODEV || failure == ENXIO;
}

static bool read_number(int disk, const char *name, uint64_t *ret_number)
{
    char text[32], *end;

    if (read_attribute(disk, name, text, sizeof(text)) <= 0 || text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    *ret_number = strtoull(text, &end, 10);
    return errno == 0 && (*end == '\n' || *end == '\0');
}

/* Strips the blanks and the newline: SCSI serials may be padded. */
static bool take_serial(const char *text, char ret_serial[static DRIVE_SERIAL_BYTES])
{
    const char *start = text + strspn(text, " ");
    size_t length = strcspn(start, " \n");

    if (length >= DRIVE_SERIAL_BYTES || start[length + strspn(start + length, " \n")])
        return false;
    memcpy(ret_serial, start, length);
    ret_serial[length] = '\0';
    return drive_serial_is_valid(ret_serial);
}

enum reading {
    READ,
    NO_DRIVE, /* or it was removed */
    UNREADABLE,
};

static enum reading explain(ssize_t count)
{
    return count >= 0 || is_missing((int)-count) ? NO_DRIVE : UNREADABLE;
}

/* Reads the serial of a SCSI disk. */
static enum reading read_page_serial(int disk, char ret_serial[static DRIVE_SERIAL_BYTES])
{
    char page[PAGE_BYTES];
    ssize_t count = read_attribute(disk, "device/vpd_pg80", page, sizeof(page));
    size_t length;

    if (count < PAGE_HEADER_BYTES || (unsigned char)page[1] != 0x80)
        return explain(count);
    length = (size_t)(unsigned char)page[2] << 8 | (unsigned char)page[3];
    if (length > (size_t)count - PAGE_HEADER_BYTES)
        return NO_DRIVE;
    page[PAGE_HEADER_BYTES + length] = '\0';
    return strlen(page + PAGE_HEADER_BYTES) == length &&
                   take_serial(page + PAGE_HEADER_BYTES, ret_serial)
               ? READ
               : NO_DRIVE;
}

static enum reading read_serial(int disk, char ret_serial[static DRIVE_SERIAL_BYTES])
{
    char text[64];
    ssize_t count = read_attribute(disk, "serial", text, sizeof(text));
    enum reading reading;

    if (count > 0 && take_serial(text, ret_serial))
        return READ;
    reading = read_page_serial(disk, ret_serial);
    return reading == NO_DRIVE ? explain(count) : reading;
}

static bool read_device(int disk, dev_t *ret_device)
{
    char text[32];
    uint32_t numbers[2];

    if (read_attribute(disk, "dev", text, sizeof(text)) <= 0 ||
        !numbers_read(text, ":", 10, numbers))
        return false;
    *ret_device = makedev(numbers[0], numbers[1]);
    return true;
}

static bool read_numbers(int disk, struct drive_disk *ret_disk)
{
    uint64_t sectors, read_only;

    if (!read_device(disk, &ret_disk->device) || !read_number(disk, "size", &sectors) ||
        sectors > UINT64_MAX / SECTOR_BYTES || !read_number(disk, "ro", &read_only))
        return false;
    ret_disk->bytes = sectors * SECTOR_BYTES;
    ret_disk->read_only = read_only != 0;
    return true;
}

static enum reading read_disk(const char *sysfs, const char *name, struct drive_disk *ret_disk)
{
    cleanup(fd_closep) int disk = -1;
    enum reading reading;
    char path[PATH_MAX];

    if (strlen(name) >= sizeof(ret_disk->name) ||
        snprintf(path, sizeof(path), "%s/block/%s", sysfs, name) >= (int)sizeof(path))
        return NO_DRIVE;
    strcpy(ret_disk->name, name);
    disk = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (disk < 0)
        return explain(-errno);
    reading = read_serial(disk, ret_disk->serial);
    if (reading == READ && !read_numbers(disk, ret_disk)) /* was it removed? */
        return faccessat(disk, "dev", F_OK, 0) == 0 ? UNREADABLE : NO_DRIVE;
    return reading;
}

int drive_disks_read(const char *sysfs, struct drive_disks *ret_disks)
{
    cleanup(directory_names_done) struct directory_names names = {0};
    cleanup(freep) struct drive_disk *disks = calloc(DRIVE_LIST, sizeof(*disks));
    cleanup(dir_closep) DIR *listing = NULL;
    struct drive_disks read = {0};
    struct drive_disk disk;
    char path[PATH_MAX];
    int r;

    if (!disks)
        return -ENOMEM;
    if (snprintf(path, sizeof(path), "%s/block", sysfs) >= (int)sizeof(path))
        return -ENAMETOOLONG;
    listing = opendir(path);
    if (!listing)
        return -errno;
    r = directory_read_names(listing, DISKS_LOOKED_AT, NULL, &names);
    if (r < 0)
        return r;
    read.incomplete = r == DIRECTORY_TOO_MANY;
    for (unsigned i = 0; i < names.count; i++) {
        enum reading reading = read_disk(sysfs, names.name[i], &disk);

        if (reading == UNREADABLE)
            strcpy(read.unreadable, disk.name);
        if (reading != READ)
            continue;
        if (read.count < DRIVE_LIST)
            disks[read.count++] = disk;
        else
            read.incomplete = true;
    }
    read.disks = take_pointer(&disks);
    *ret_disks = read;
    return 0;
}

void drive_disks_done(struct drive_disks *disks)
{
    free(disks->disks);
    *disks = (struct drive_disks){0};
}

enum status_code drive_disks_find(const struct drive_disks *disks, const char *serial,
                                  struct drive_disk *ret_disk, struct error *error)
{
    const struct drive_disk *found = NULL;
    unsigned count = 0;

    for (size_t i = 0; i < disks->count; i++) {
        if (strcmp(disks->disks[i].serial, serial) != 0)
            continue;
        found = &disks->disks[i];
        count++;
    }
    if (count > 1 || disks->incomplete) /* another disk may have the same serial */
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "several disks have the serial %s, or there are too many disks",
                            serial);
    if (!found && disks->unreadable[0])
        return drive_refuse(
            error, STATUS_INTERNAL,
            "whether a disk with the serial %s is there cannot be told: %s cannot be read in sysfs",
            serial, disks->unreadable);
    if (!found)
        return drive_refuse(error, STATUS_UNAVAILABLE, "no disk with the serial %s is there",
                            serial);
    *ret_disk = *found;
    return STATUS_OK;
}

/* ---- drive fsck ----------------------------------------------------------------------------- */

/* E2fsck -p repairs what is safe to repair; -n only checks, for a read-only disk. */

/* Exit codes of e2fsck(8), which may be added up. */
enum { E2FSCK_REPAIRED = 1, E2FSCK_RESTART = 2, NOT_STARTED = 127 };

static const char *find_program(void)
{
    static const char *const paths[] = {"/sbin/e2fsck", "/usr/sbin/e2fsck", "/usr/bin/e2fsck"};

    for (size_t i = 0; i < array_length(paths); i++) {
        if (access(paths[i], X_OK) == 0)
            return paths[i];
    }
    return NULL;
}

/* In the child, whose input and output are /dev/null. */
static _Noreturn void become(const char *program, const char *device, bool read_only)
{
    char name[] = "e2fsck", repair[] = "-p", check[] = "-n", *path = strdup(device);
    char *arguments[] = {name, read_only ? check : repair, path, NULL};
    char *environment[] = {NULL};
    int nothing = open("/dev/null", O_RDWR);

    if (path && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        dup2(nothing, STDOUT_FILENO) >= 0 && dup2(nothing, STDERR_FILENO) >= 0)
        (void)execve(program, arguments, environment);
    _exit(NOT_STARTED);
}

/* The exit code, or -errno. */
static int run(const char *program, const char *device, bool read_only)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        become(program, device, read_only);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return -errno;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EINTR;
}

enum status_code drive_fsck_run(const char *device, const char *filesystem_type, bool read_only,
                                enum drive_fsck_result *ret_result, struct error *error)
{
    const char *program = find_program();
    int code;

    if (strcmp(filesystem_type, "ext4") != 0) {
        *ret_result = DRIVE_FSCK_NOT_RUN;
        return STATUS_OK;
    }
    if (!program)
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "the guest has no e2fsck: attach the drive without `fsck`");
    code = run(program, device, read_only);
    if (code < 0 || code == NOT_STARTED)
        return drive_refuse_errno(error, STATUS_INTERNAL, code < 0 ? code : -ENOEXEC,
                                  "cannot run %s", program);
    if (code & ~(E2FSCK_REPAIRED | E2FSCK_RESTART))
        return drive_refuse(error, STATUS_FAILED_PRECONDITION,
                            "e2fsck %s found what it does not repair without asking (exit code %d)",
                            read_only ? "-n" : "-p", code);
    *ret_result = code ? DRIVE_FSCK_REPAIRED : DRIVE_FSCK_CLEAN;
    return STATUS_OK;
}

/* ---- device cgroup -------------------------------------------------------------------------- */

/* Adds a rule to the cgroup of this process.
 *
 * The hierarchy may be mounted anywhere or nowhere.
 */

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
    length = snprintf(rule, sizeof(rule), "b %u:%u rw", major(device), minor(device));
    return rules < 0 || write(rules, rule, (size_t)length) < 0 ? -errno : 0;
}
