/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_tree.c - keeps a stack of the devices that contain the current line.
 *
 * A device ends where another device or a bus is not indented more deeply. The drive of a SCSI disk
 * is printed before its target and LUN, so the address is written when the disk ends.
 */
#include "hypervisor/qemu_report.h"

#include <stdio.h>
#include <string.h>

/* Twice the lines that a real tree has if it is as long as a monitor's answer may be. */
enum { DEPTH = 32, LINES = 128 * 1024 };

struct device {
    size_t indent;
    bool has_slot, has_target, has_lun, is_wanted;
    unsigned slot, function, target, lun;
};

struct tree {
    const char *drive;
    unsigned depth; /* of `device` */
    struct device device[DEPTH];
    unsigned named; /* devices that have the drive */
    unsigned found; /* those with an address */
    char address[QEMU_ADDRESS_BYTES];
};

static bool append(char *text, size_t *used, const char *separator, const struct device *device)
{
    size_t size = QEMU_ADDRESS_BYTES - *used;
    int length = device->function ? snprintf(text + *used, size, "%s%02x.%x", separator,
                                             device->slot, device->function)
                                  : snprintf(text + *used, size, "%s%02x", separator, device->slot);

    if (length < 0 || (size_t)length >= size)
        return false;
    *used += (size_t)length;
    return true;
}

static bool write_address(struct tree *tree, const struct device *disk)
{
    size_t used = strlen("pci:");
    const char *separator = "";

    if (disk->has_target && disk->has_lun)
        return snprintf(tree->address, sizeof(tree->address), "scsi:%u:%u", disk->target,
                        disk->lun) > 0;
    memcpy(tree->address, "pci:", used + 1);
    for (unsigned i = 0; i < tree->depth; i++) {
        if (!tree->device[i].has_slot)
            continue;
        if (!append(tree->address, &used, separator, &tree->device[i]))
            return false;
        separator = "/";
    }
    return *separator != '\0';
}

static void end_device(struct tree *tree)
{
    const struct device *device = &tree->device[tree->depth - 1];

    if (device->is_wanted && write_address(tree, device))
        tree->found++;
    tree->depth--;
}

static void end_devices(struct tree *tree, size_t indent)
{
    while (tree->depth && tree->device[tree->depth - 1].indent >= indent)
        end_device(tree);
}

static bool names_drive(const struct tree *tree, const char *line)
{
    static const char before[] = "drive = \"";
    size_t length = strlen(tree->drive);

    return strncmp(line, before, sizeof(before) - 1) == 0 &&
           strncmp(line + sizeof(before) - 1, tree->drive, length) == 0 &&
           line[sizeof(before) - 1 + length] == '"';
}

static bool skip(const char **text, const char *prefix)
{
    size_t length = strlen(prefix);

    if (strncmp(*text, prefix, length) != 0)
        return false;
    *text += length;
    return true;
}

/* Reads at most `most` digits; false: there is none. By hand, because most lines of a hostile tree
 * may be numbers, and sscanf(3) takes 20 times as long. */
static bool read_number(const char **text, unsigned base, unsigned most, unsigned *ret_number)
{
    static const char digits[] = "0123456789abcdef";
    const char *start = *text, *digit;

    *ret_number = 0;
    while (**text && *text < start + most && (digit = strchr(digits, **text)) &&
           digit < digits + base) {
        *ret_number = *ret_number * base + (unsigned)(digit - digits);
        ++*text;
    }
    return *text > start;
}

static void read_property(struct tree *tree, const char *line)
{
    struct device *device = &tree->device[tree->depth - 1];

    if (names_drive(tree, line)) {
        tree->named += !device->is_wanted;
        device->is_wanted = true;
    } else if (skip(&line, "addr = ")) {
        device->has_slot |= read_number(&line, 16, 2, &device->slot) && skip(&line, ".") &&
                            read_number(&line, 16, 1, &device->function);
    } else if (skip(&line, "scsi-id = ")) {
        device->has_target |= read_number(&line, 10, 5, &device->target);
    } else if (skip(&line, "lun = ")) {
        device->has_lun |= read_number(&line, 10, 5, &device->lun);
    }
}

/* false: deeper than any real machine, or the drive is there twice. */
static bool read_line(struct tree *tree, const char *line)
{
    size_t indent = strspn(line, " ");

    line += indent;
    if (strncmp(line, "dev: ", 5) == 0) {
        end_devices(tree, indent);
        if (tree->depth == DEPTH)
            return false;
        tree->device[tree->depth++] = (struct device){.indent = indent};
    } else if (strncmp(line, "bus: ", 5) == 0) {
        end_devices(tree, indent);
    } else if (tree->depth) {
        read_property(tree, line);
    }
    return tree->named <= 1;
}

bool qemu_tree_find(const char *text, const char *drive,
                    char ret_address[static QEMU_ADDRESS_BYTES])
{
    struct tree tree = {.drive = drive};
    bool going = true;

    for (unsigned lines = 0; going && *text; lines++) {
        going = lines < LINES && read_line(&tree, text);
        text = strchrnul(text, '\n');
        text += *text == '\n';
    }
    end_devices(&tree, 0);
    if (!going || tree.found != 1)
        return false;
    memcpy(ret_address, tree.address, sizeof(tree.address));
    return true;
}
