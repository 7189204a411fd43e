/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_tree.c - keeps a stack of the devices that contain the current line.
 *
 * A device ends where another device or a bus is not indented more deeply. The drive of a SCSI disk
 * is printed before its target and LUN, so the address is written when the disk ends.
 */
#include "hypervisor/qemu_tree.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH = 32, LINE_BYTES = 256 };

struct device {
    size_t indent;
    bool has_slot, has_target, has_lun, is_wanted;
    unsigned slot, function, target, lun;
};

struct tree {
    const char *drive;
    unsigned depth; /* of `device` */
    struct device device[DEPTH];
    unsigned found;
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

static void read_property(struct tree *tree, const char *line)
{
    struct device *device = &tree->device[tree->depth - 1];

    if (names_drive(tree, line))
        device->is_wanted = true;
    else if (sscanf(line, "addr = %2x.%1x", &device->slot, &device->function) == 2)
        device->has_slot = true;
    else if (sscanf(line, "scsi-id = %5u", &device->target) == 1)
        device->has_target = true;
    else if (sscanf(line, "lun = %5u", &device->lun) == 1)
        device->has_lun = true;
}

/* false: deeper than any real machine. */
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
    return true;
}

/* Each line is parsed by itself, because sscanf(3) measures all the text that it is given. The part
 * that is cut off a longer line has no meaning here. */
bool qemu_tree_find(const char *text, const char *drive,
                    char ret_address[static QEMU_ADDRESS_BYTES])
{
    struct tree tree = {.drive = drive};
    bool going = true;

    while (going && *text) {
        size_t length = strcspn(text, "\n"), kept = length < LINE_BYTES ? length : LINE_BYTES - 1;
        char line[LINE_BYTES];

        memcpy(line, text, kept);
        line[kept] = '\0';
        going = read_line(&tree, line);
        text += length;
        text += *text == '\n';
    }
    end_devices(&tree, 0);
    if (!going || tree.found != 1)
        return false;
    memcpy(ret_address, tree.address, sizeof(tree.address));
    return true;
}
