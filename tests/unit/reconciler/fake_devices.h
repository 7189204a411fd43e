/* SPDX-License-Identifier: Apache-2.0 */
/* fake_devices.h - readers of devices that answer from a table; in place of observe/device.c. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "observe/observe.h"

enum { FAKES = 8 };

struct fake_device {
    const char *path;
    enum device_kind kind;
    uint32_t minor; /* of major 7 */
    uint64_t size;
    uint32_t lower; /* the minor of what it stands on; 0 nothing */
    bool is_crypt;  /* by LUKS */
};

static struct fake_device fake_device[FAKES];
static int fake_device_failure; /* -errno of any device that is read by its path */

static inline void clear_devices(void)
{
    memset(fake_device, 0, sizeof(fake_device));
    fake_device_failure = 0;
}

static inline void put_disk(unsigned place, const char *path, uint32_t minor, uint64_t size)
{
    fake_device[place] = (struct fake_device){path, DEVICE_KIND_BLOCK, minor, size, 0, false};
}

static inline const struct fake_device *find_device(const char *path, uint32_t minor)
{
    for (unsigned i = 0; i < FAKES; i++)
        if (fake_device[i].path &&
            (path ? strcmp(fake_device[i].path, path) == 0 : fake_device[i].minor == minor))
            return &fake_device[i];
    return NULL;
}

static inline void fill_device(const struct fake_device *fake, struct observed_device *device)
{
    *device = (struct observed_device){.kind = fake->kind,
                                       .major = fake->kind == DEVICE_KIND_BLOCK ? 7 : 0,
                                       .minor = fake->minor,
                                       .diskseq = fake->minor,
                                       .file_device = 1,
                                       .inode = fake->minor,
                                       .size_bytes = fake->size};
    (void)snprintf(device->name, sizeof(device->name), "%s", fake->path);
}

int observe_device_path(int root_fd, int sysfs, const char *path,
                        struct observed_device *ret_device)
{
    const struct fake_device *fake = find_device(path, 0);

    if (fake_device_failure)
        return fake_device_failure;
    if (fake)
        fill_device(fake, ret_device);
    return fake ? OBSERVED : OBSERVED_ABSENT;
}

int observe_device_number(int sysfs, uint32_t major, uint32_t minor,
                          struct observed_device *ret_device)
{
    const struct fake_device *fake = find_device(NULL, minor);

    if (fake)
        fill_device(fake, ret_device);
    return fake ? OBSERVED : OBSERVED_ABSENT;
}

int observe_open_sysfs(int root_fd, const char *path, int *ret_fd)
{
    *ret_fd = openat(root_fd, path + 1, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

unsigned observe_stack(int sysfs, const struct observed_device *device,
                       struct observed_layer ret_layer[static OBSERVE_LAYERS])
{
    const struct fake_device *fake = find_device(NULL, device->minor);
    unsigned count = 0;

    ret_layer[count++] = (struct observed_layer){.kind = !fake || !fake->lower ? LAYER_DISK
                                                         : fake->is_crypt      ? LAYER_CRYPT
                                                                               : LAYER_DM,
                                                 .device = *device};
    if (fake && fake->lower && find_device(NULL, fake->lower)) {
        ret_layer[count] = (struct observed_layer){.kind = LAYER_DISK};
        fill_device(find_device(NULL, fake->lower), &ret_layer[count++].device);
    }
    return count;
}

bool observe_each_lower_device(int sysfs, uint32_t major, uint32_t minor,
                               observe_device_callback *callback, void *userdata)
{
    callback(userdata, major, minor);
    return true;
}

void observe_scsi_disks(int sysfs, const char *devpath, observe_device_callback *callback,
                        void *userdata)
{
    callback(userdata, 7, (uint32_t)atoi(devpath));
}
