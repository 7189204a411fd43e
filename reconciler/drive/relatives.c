/* SPDX-License-Identifier: Apache-2.0 */
/* relatives.c - see relatives.h. */
#include "reconciler/drive/relatives.h"

#include <sys/sysmacros.h>

#include "observe/observe.h"

struct finding {
    dev_t disk;
    struct drive_relatives *relatives;
    bool is_cut;
};

static void add(void *userdata, uint32_t major, uint32_t minor)
{
    struct finding *finding = userdata;
    struct drive_relatives *relatives = finding->relatives;
    dev_t device = makedev(major, minor);

    if (device == finding->disk)
        return;
    if (relatives->count < DRIVE_RELATIVES)
        relatives->device[relatives->count++] = device;
    else
        finding->is_cut = true;
}

static int add_partition(void *userdata, const char *directory, uint32_t major, uint32_t minor)
{
    (void)directory;
    add(userdata, major, minor);
    return 0;
}

bool drive_relatives_add(int sysfs, uint32_t major, uint32_t minor,
                         struct drive_relatives *relatives)
{
    struct finding finding = {.disk = makedev(major, minor), .relatives = relatives};

    return observe_each_lower_device(sysfs, major, minor, add, &finding) &&
           observe_each_partition(sysfs, major, minor, add_partition, &finding) == 0 &&
           !finding.is_cut;
}

bool drive_relatives_include(const struct drive_relatives *relatives, dev_t device)
{
    for (unsigned i = 0; i < relatives->count; i++)
        if (relatives->device[i] == device)
            return true;
    return false;
}
