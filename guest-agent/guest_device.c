/* SPDX-License-Identifier: Apache-2.0 */
/* guest_device.c - reads /sys/dev/block, /sys/class/block and /sys/bus/pci.
 *
 * A disk's attachment follows from the path of its sysfs directory: below the directory of the PCI
 * function that carries it, and, on a SCSI bus, in one named HOST:CHANNEL:TARGET:LUN. This holds
 * for virtio-blk, virtio-scsi and NVMe alike, so no driver needs to be known by name.
 */
#include "guest-agent/guest_volume.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "lib/cleanup.h"
#include "lib/quantity.h"

enum { ATTRIBUTE_BYTES = 128, SECTOR_BYTES = 512, PCI_LEVELS = 4 };

ssize_t device_read_attribute(int directory, const char *name, char *ret_bytes, size_t size)
{
    cleanup(fd_closep) int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t count;

    if (fd < 0)
        return -errno;
    count = read(fd, ret_bytes, size - 1);
    if (count < 0)
        return -errno;
    ret_bytes[count] = '\0';
    return count;
}

int device_write_attribute(const char *path, const char *text)
{
    cleanup(fd_closep) int fd = open(path, O_WRONLY | O_CLOEXEC);

    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

int device_read_number(int directory, const char *name, uint64_t *ret_number)
{
    char text[ATTRIBUTE_BYTES], *end;
    ssize_t count = device_read_attribute(directory, name, text, sizeof(text));
    uint64_t number;

    if (count < 0)
        return (int)count;
    errno = 0;
    number = strtoull(text, &end, 10);
    if (errno || text[0] < '0' || text[0] > '9' || (*end && *end != '\n'))
        return -EBADMSG;
    *ret_number = number;
    return 0;
}

int device_read_size(int directory, const char *name, uint64_t *ret_bytes)
{
    uint64_t sectors;
    int r = device_read_number(directory, name, &sectors);

    if (r < 0)
        return r;
    if (sectors > UINT64_MAX / SECTOR_BYTES)
        return -EBADMSG;
    *ret_bytes = sectors * SECTOR_BYTES;
    return 0;
}

int device_read_device(int directory, const char *name, dev_t *ret_device)
{
    char text[ATTRIBUTE_BYTES];
    ssize_t count = device_read_attribute(directory, name, text, sizeof(text));
    uint32_t numbers[2];

    if (count < 0)
        return (int)count;
    if (!numbers_read(text, ":", 10, numbers))
        return -EBADMSG;
    *ret_device = makedev(numbers[0], numbers[1]);
    return 0;
}

static const char *path_of(dev_t device, const char *name, char ret_path[static ATTRIBUTE_BYTES])
{
    (void)snprintf(ret_path, ATTRIBUTE_BYTES, "/sys/dev/block/%u:%u/%s", major(device),
                   minor(device), name);
    return ret_path;
}

static bool has_file(dev_t device, const char *name)
{
    char path[ATTRIBUTE_BYTES];

    return access(path_of(device, name, path), F_OK) == 0;
}

int device_size(dev_t device, uint64_t *ret_bytes)
{
    char path[ATTRIBUTE_BYTES];

    return device_read_size(AT_FDCWD, path_of(device, "size", path), ret_bytes);
}

void device_name(dev_t device, char ret_name[static DEVICE_NAME_BYTES])
{
    char path[64], target[PATH_MAX];
    ssize_t length;
    const char *slash;

    (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(device), minor(device));
    length = readlink(path, target, sizeof(target) - 1);
    target[length > 0 ? length : 0] = '\0';
    slash = strrchr(target, '/');
    if (slash)
        (void)snprintf(ret_name, DEVICE_NAME_BYTES, "%.*s", DEVICE_NAME_BYTES - 1, slash + 1);
    else
        (void)snprintf(ret_name, DEVICE_NAME_BYTES, "%u:%u", major(device), minor(device));
}

int device_by_name(const char *name, dev_t *ret_device)
{
    char path[ATTRIBUTE_BYTES];

    if (!*name || *name == '.' || strchr(name, '/') || strlen(name) >= DEVICE_NAME_BYTES)
        return DEVICE_IMPOSSIBLE;
    (void)snprintf(path, sizeof(path), "/sys/class/block/%s/dev", name);
    return device_read_device(AT_FDCWD, path, ret_device);
}

bool device_layer(dev_t device, char *ret_text, size_t size)
{
    static const struct {
        const char *prefix, *kind;
    } mappers[] = {
        {"CRYPT-", "an encrypted (dm-crypt) device; it needs cryptsetup resize"},
        {"LVM-", "an LVM logical volume; it needs pvresize and lvextend"},
        {"mpath-", "a multipath device; it needs multipathd resize map"},
    };
    char name[DEVICE_NAME_BYTES], path[ATTRIBUTE_BYTES], uuid[ATTRIBUTE_BYTES];
    const char *kind = NULL;

    if (device_read_attribute(AT_FDCWD, path_of(device, "dm/uuid", path), uuid, sizeof(uuid)) >=
        0) {
        kind = "a device-mapper device";
        for (size_t i = 0; i < array_length(mappers); i++) {
            if (strncmp(uuid, mappers[i].prefix, strlen(mappers[i].prefix)) == 0)
                kind = mappers[i].kind;
        }
    } else if (has_file(device, "partition")) {
        kind = "a partition; its table has to be changed first";
    } else if (has_file(device, "md")) {
        kind = "a software RAID (md); it needs mdadm --grow";
    } else if (has_file(device, "bcache")) {
        kind = "a bcache device";
    }
    if (!kind)
        return false;
    device_name(device, name);
    (void)snprintf(ret_text, size, "%s does not grow with its disk: it is %s", name, kind);
    return true;
}

/* Reads "02" or "02.0". Returns what follows; NULL: it is malformed. */
static const char *parse_function(const char *text, uint32_t ret_function[static 2])
{
    const char *end = numbers_read(text, "", 16, ret_function);

    ret_function[1] = 0;
    if (!end || end - text > 2 || ret_function[0] > 0x1f)
        return NULL;
    if (*end == '.') {
        if (end[1] < '0' || end[1] > '7')
            return NULL;
        ret_function[1] = (uint32_t)(end[1] - '0');
        end += 2;
    }
    return end;
}

/* The function at slot.function on the bus behind a bridge, whatever number that bus has. */
static int descend(char path[static PATH_MAX], uint32_t slot, uint32_t function)
{
    cleanup(dir_closep) DIR *directory = opendir(path);
    const struct dirent *entry;

    if (!directory)
        return -errno;
    while ((entry = readdir(directory))) {
        uint32_t address[4]; /* domain, bus, slot, function */
        size_t length = strlen(path);
        const char *end = numbers_read(entry->d_name, "::.", 16, address);

        if (!end || *end || address[2] != slot || address[3] != function)
            continue;
        if (length + strlen(entry->d_name) + 2 > PATH_MAX)
            return -ENAMETOOLONG;
        (void)snprintf(path + length, PATH_MAX - length, "/%s", entry->d_name);
        return DEVICE_FOUND;
    }
    return DEVICE_ABSENT;
}

/* The sysfs directory of the last function of the path, without links. */
static int resolve_pci_path(const char *path, char ret_directory[static PATH_MAX])
{
    uint32_t functions[PCI_LEVELS][2]; /* slot and number */
    unsigned levels = 0;
    char link[64];
    int r;

    while (levels == 0 || *path) {
        path = levels < PCI_LEVELS ? parse_function(path, functions[levels++]) : NULL;
        if (!path || (*path && *path != '/') || (*path && !path[1]))
            return DEVICE_IMPOSSIBLE;
        path += *path == '/';
    }
    (void)snprintf(link, sizeof(link), "/sys/bus/pci/devices/0000:00:%02x.%x", functions[0][0],
                   functions[0][1]);
    r = realpath(link, ret_directory) ? DEVICE_FOUND : DEVICE_ABSENT;
    for (unsigned level = 1; level < levels && r == DEVICE_FOUND; level++)
        r = descend(ret_directory, functions[level][0], functions[level][1]);
    return r;
}

static bool has_scsi_address(const char *directory, const uint32_t address[static 2])
{
    for (const char *at = strchr(directory, '/'); at; at = strchr(at + 1, '/')) {
        uint32_t numbers[4]; /* host, channel, target, lun */
        const char *end = numbers_read(at + 1, ":::", 10, numbers);

        if (end && (*end == '/' || !*end) && numbers[2] == address[0] && numbers[3] == address[1])
            return true;
    }
    return false;
}

/* The one whole disk whose sysfs directory lies below `above`, or, if that is NULL, has the SCSI
 * address (target and LUN). */
static int find_disk(const char *above, const uint32_t address[static 2], dev_t *ret_device)
{
    cleanup(dir_closep) DIR *class = opendir("/sys/class/block");
    size_t length = above ? strlen(above) : 0;
    const struct dirent *entry;
    dev_t found = 0;

    if (!class)
        return -errno;
    while ((entry = readdir(class))) {
        char link[PATH_MAX], directory[PATH_MAX];
        dev_t device;

        (void)snprintf(link, sizeof(link), "/sys/class/block/%s", entry->d_name);
        if (entry->d_name[0] == '.' || !realpath(link, directory) ||
            (above ? strncmp(directory, above, length) != 0 || directory[length] != '/'
                   : !has_scsi_address(directory, address)) ||
            device_by_name(entry->d_name, &device) < 0 || has_file(device, "partition"))
            continue;
        if (found)
            return DEVICE_AMBIGUOUS;
        found = device;
    }
    if (!found)
        return DEVICE_ABSENT;
    *ret_device = found;
    return DEVICE_FOUND;
}

int device_by_path(const char *path, dev_t *ret_device)
{
    char directory[PATH_MAX];
    uint32_t address[2] = {0};
    const char *end;
    int r;

    if (strncmp(path, "/dev/", 5) == 0)
        return device_by_name(path + 5, ret_device);
    if (strncmp(path, "pci:", 4) == 0) {
        r = resolve_pci_path(path + 4, directory);
        return r == DEVICE_FOUND ? find_disk(directory, address, ret_device) : r;
    }
    if (strncmp(path, "scsi:", 5) != 0)
        return DEVICE_IMPOSSIBLE;
    end = numbers_read(path + 5, ":", 10, address);
    return end && !*end ? find_disk(NULL, address, ret_device) : DEVICE_IMPOSSIBLE;
}
