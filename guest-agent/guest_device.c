/* SPDX-License-Identifier: Apache-2.0 */
/* guest_device.c - reads /sys/dev/block, /sys/class/block and /sys/bus/pci.
 *
 * A disk's attachment follows from the path of its sysfs directory: below the directory of the PCI
 * function that carries it, and, on a SCSI bus, in one named HOST:CHANNEL:TARGET:LUN. This holds
 * for virtio-blk, virtio-scsi and NVMe alike, so no driver needs to be known by name.
 */
#include "guest-agent/guest_device.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "lib/cleanup.h"
#include "lib/quantity.h"

enum { ATTRIBUTE_BYTES = 128, SECTOR_BYTES = 512, PCI_LEVELS = 4 };

/* A short text attribute without its newline. */
static int read_attribute(const char *path, char ret_text[static ATTRIBUTE_BYTES])
{
    cleanup(fd_closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t count;

    if (fd < 0)
        return -errno;
    count = read(fd, ret_text, ATTRIBUTE_BYTES - 1);
    if (count < 0)
        return -errno;
    ret_text[count] = '\0';
    ret_text[strcspn(ret_text, "\n")] = '\0';
    return 0;
}

static int read_device_attribute(dev_t device, const char *name,
                                 char ret_text[static ATTRIBUTE_BYTES])
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(device), minor(device),
                   name);
    return read_attribute(path, ret_text);
}

static bool has_device_file(dev_t device, const char *name)
{
    char path[PATH_MAX];

    (void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/%s", major(device), minor(device),
                   name);
    return access(path, F_OK) == 0;
}

int device_size(dev_t device, uint64_t *ret_bytes)
{
    char text[ATTRIBUTE_BYTES], *end;
    uint64_t sectors;
    int r = read_device_attribute(device, "size", text);

    if (r < 0)
        return r;
    errno = 0;
    sectors = strtoull(text, &end, 10);
    if (errno || end == text || *end || sectors > UINT64_MAX / SECTOR_BYTES)
        return -EBADMSG;
    *ret_bytes = sectors * SECTOR_BYTES;
    return 0;
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
    char path[PATH_MAX], text[ATTRIBUTE_BYTES];
    uint32_t numbers[2];
    int r;

    if (!*name || *name == '.' || strchr(name, '/') || strlen(name) >= DEVICE_NAME_BYTES)
        return DEVICE_IMPOSSIBLE;
    (void)snprintf(path, sizeof(path), "/sys/class/block/%s/dev", name);
    r = read_attribute(path, text);
    if (r < 0)
        return r;
    if (!numbers_read(text, ":", 10, numbers))
        return -EBADMSG;
    *ret_device = makedev(numbers[0], numbers[1]);
    return 0;
}

static const char *mapper_kind(const char *uuid)
{
    static const struct {
        const char *prefix, *kind;
    } kinds[] = {
        {"CRYPT-", "an encrypted (dm-crypt) device; it needs cryptsetup resize"},
        {"LVM-", "an LVM logical volume; it needs pvresize and lvextend"},
        {"mpath-", "a multipath device; it needs multipathd resize map"},
    };

    for (size_t i = 0; i < array_length(kinds); i++) {
        if (strncmp(uuid, kinds[i].prefix, strlen(kinds[i].prefix)) == 0)
            return kinds[i].kind;
    }
    return "a device-mapper device";
}

bool device_layer(dev_t device, char *ret_text, size_t size)
{
    char name[DEVICE_NAME_BYTES], uuid[ATTRIBUTE_BYTES];
    const char *kind = NULL;

    if (read_device_attribute(device, "dm/uuid", uuid) == 0)
        kind = mapper_kind(uuid);
    else if (has_device_file(device, "partition"))
        kind = "a partition; its table has to be changed first";
    else if (has_device_file(device, "md"))
        kind = "a software RAID (md); it needs mdadm --grow";
    else if (has_device_file(device, "bcache"))
        kind = "a bcache device";
    if (!kind)
        return false;
    device_name(device, name);
    (void)snprintf(ret_text, size, "%s does not grow with its disk: it is %s", name, kind);
    return true;
}

/* "02" or "02.0" up to a slash or the end; moves the cursor past it. */
static int parse_slot(const char **cursor, unsigned *ret_slot, unsigned *ret_function)
{
    unsigned slot = 0, function = 0, digits = 0;

    for (; isxdigit((unsigned char)**cursor) && digits < 2; digits++, ++*cursor) {
        char c = (char)tolower((unsigned char)**cursor);

        slot = slot * 16 + (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (digits == 0 || slot > 0x1f)
        return DEVICE_IMPOSSIBLE;
    if (**cursor == '.') {
        if ((*cursor)[1] < '0' || (*cursor)[1] > '7')
            return DEVICE_IMPOSSIBLE;
        function = (unsigned)((*cursor)[1] - '0');
        *cursor += 2;
    }
    if (**cursor == '/' && (*cursor)[1])
        ++*cursor;
    else if (**cursor)
        return DEVICE_IMPOSSIBLE;
    *ret_slot = slot;
    *ret_function = function;
    return 0;
}

/* The function at slot.function on the bus behind a bridge, whatever number that bus has. */
static int descend(char path[static PATH_MAX], unsigned slot, unsigned function)
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

struct pci_function {
    unsigned slot, number;
};

static int parse_pci_path(const char *path, struct pci_function functions[static PCI_LEVELS],
                          unsigned *ret_levels)
{
    unsigned levels = 0;

    do {
        int r = levels < PCI_LEVELS
                    ? parse_slot(&path, &functions[levels].slot, &functions[levels].number)
                    : DEVICE_IMPOSSIBLE;

        if (r < 0)
            return r;
        levels++;
    } while (*path);
    *ret_levels = levels;
    return 0;
}

/* The sysfs directory of the last function of the path, without links. */
static int resolve_pci_path(const char *path, char ret_directory[static PATH_MAX])
{
    struct pci_function functions[PCI_LEVELS];
    unsigned levels;
    char link[64];
    int r = parse_pci_path(path, functions, &levels);

    if (r < 0)
        return r;
    (void)snprintf(link, sizeof(link), "/sys/bus/pci/devices/0000:00:%02x.%x", functions[0].slot,
                   functions[0].number);
    r = realpath(link, ret_directory) ? DEVICE_FOUND : DEVICE_ABSENT;
    for (unsigned level = 1; level < levels && r == DEVICE_FOUND; level++)
        r = descend(ret_directory, functions[level].slot, functions[level].number);
    return r;
}

/* The one whole disk whose sysfs directory `matches`. */
static int find_disk(bool (*matches)(const char *directory, const void *wanted), const void *wanted,
                     dev_t *ret_device)
{
    cleanup(dir_closep) DIR *class = opendir("/sys/class/block");
    const struct dirent *entry;
    dev_t found = 0;

    if (!class)
        return -errno;
    while ((entry = readdir(class))) {
        char link[PATH_MAX], directory[PATH_MAX];
        dev_t device;

        (void)snprintf(link, sizeof(link), "/sys/class/block/%s", entry->d_name);
        if (entry->d_name[0] == '.' || !realpath(link, directory) || !matches(directory, wanted) ||
            device_by_name(entry->d_name, &device) < 0 || has_device_file(device, "partition"))
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

static bool lies_below(const char *directory, const void *wanted)
{
    const char *above = wanted;
    size_t length = strlen(above);

    return strncmp(directory, above, length) == 0 && directory[length] == '/';
}

int device_by_pci_path(const char *path, dev_t *ret_device)
{
    char directory[PATH_MAX];
    int r = resolve_pci_path(path, directory);

    return r == DEVICE_FOUND ? find_disk(lies_below, directory, ret_device) : r;
}

static bool has_scsi_address(const char *directory, const void *wanted)
{
    const uint32_t *address = wanted; /* target, LUN */

    for (const char *at = strchr(directory, '/'); at; at = strchr(at + 1, '/')) {
        uint32_t numbers[4]; /* host, channel, target, lun */
        const char *end = numbers_read(at + 1, ":::", 10, numbers);

        if (end && (*end == '/' || !*end) && numbers[2] == address[0] && numbers[3] == address[1])
            return true;
    }
    return false;
}

int device_by_scsi_address(const char *address, dev_t *ret_device)
{
    uint32_t numbers[2];
    const char *end = numbers_read(address, ":", 10, numbers);

    if (!end || *end)
        return DEVICE_IMPOSSIBLE;
    return find_disk(has_scsi_address, numbers, ret_device);
}
