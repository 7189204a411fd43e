/* SPDX-License-Identifier: Apache-2.0 */
/* guest_device.h - a block device as sysfs shows it. Nothing here opens a device node, so it works
 * in a container whose /dev has none.
 *
 * Sources: Documentation/ABI/stable/sysfs-block (size is in sectors of 512 bytes whatever the
 * device's own sector is), Documentation/ABI/testing/sysfs-block-dm.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/result.h"

enum { DEVICE_NAME_BYTES = 64 };

/* The failures that callers distinguish. */
enum device_failure {
    DEVICE_MISSING = -ENOENT,    /* there is no block device of that number or name */
    DEVICE_IMPOSSIBLE = -EINVAL, /* nothing can have such a name or address */
};

/* Bytes. 0, DEVICE_MISSING, another -errno. */
int device_size(dev_t device, uint64_t *ret_bytes);

/* The kernel's name, "vda"; its numbers when it is gone. */
void device_name(dev_t device, char ret_name[static DEVICE_NAME_BYTES]);

/* By the kernel's name. 0, DEVICE_MISSING, DEVICE_IMPOSSIBLE. */
int device_by_name(const char *name, dev_t *ret_device);

/* Whether a layer between the device and its disk keeps it from growing with the disk; a sentence
 * names the layer. */
bool device_layer(dev_t device, char *ret_text, size_t size);

/* Outcomes of finding a disk by where it is attached. */
enum {
    DEVICE_FOUND,
    DEVICE_ABSENT,
    DEVICE_AMBIGUOUS, /* several disks are there */
};

/* A disk on the PCI bus by Kata's path: the slots (hexadecimal) from the root bus downwards through
 * bridges, "02/01"; an optional function ".0" after each. An outcome, DEVICE_IMPOSSIBLE, another
 * -errno. */
int device_by_pci_path(const char *path, dev_t *ret_device);

/* A disk by SCSI target and LUN, "0:1", on any controller. An outcome, DEVICE_IMPOSSIBLE, another
 * -errno. */
int device_by_scsi_address(const char *address, dev_t *ret_device);
