/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_commands.h - the parts that QEMU has of a drive, and the commands about them as
 * JSON. No I/O. Private to hypervisor/.
 *
 *     scsi-hd ── throttle ── raw ── host_device or file ── /dev/fdset/N
 *     (device)      └─ throttle-group                        (set)
 *
 * Names are derived from the drive's id by its hash, because a block node's name has at most 31
 * characters. The set has the id itself, as the opaque text "crust:ID" that query-fdsets shows.
 * Every drive has a throttle node, also without limits, so that limits can be set later on.
 *
 * Source: QEMU's qapi/block-core.json, misc.json (fd sets), qom.json and qdev.json; tried with 7.2.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "hypervisor/drive.h"
#include "lib/buffer.h"

/* In the order in which they are added: each needs those before it. The set is first, so that
 * whatever there is of a drive can be found by its id. The three nodes come with one command, and
 * the lower two go with the throttle node. */
enum qemu_part {
    QEMU_PART_SET,
    QEMU_PART_GROUP,
    QEMU_PART_FILE,
    QEMU_PART_RAW,
    QEMU_PART_THROTTLE,
    QEMU_PART_DEVICE,
    QEMU_PARTS,
};

#define QEMU_OPAQUE_PREFIX "crust:"

enum {
    QEMU_HOTPLUG_OPAQUE_BYTES = sizeof(QEMU_OPAQUE_PREFIX) + HYPERVISOR_DRIVE_ID_BYTES,
    QEMU_HOTPLUG_NAME_BYTES = 32,
    QEMU_HOTPLUG_BUS_BYTES = 64,
    QEMU_HOTPLUG_SCSI_ID = 255,      /* the first to be used, then downwards */
    QEMU_HOTPLUG_SCSI_ID_LAST = 200, /* Kata counts upwards from 0 */
    QEMU_HOTPLUG_LUNS = 256,
    QEMU_HOTPLUG_ARGUMENT_BYTES = 1024,
};

/* crustd's own controller, where the VM has none; in slot 31 of a bridge, because Kata uses 1 to
 * 30. It stays until the VM ends. */
#define QEMU_HOTPLUG_CONTROLLER "crust-scsi"
#define QEMU_KATA_CONTROLLER    "scsi0"

struct qemu_hotplug_names {
    char opaque[QEMU_HOTPLUG_OPAQUE_BYTES];
    char part[QEMU_PARTS][QEMU_HOTPLUG_NAME_BYTES]; /* of a set: "" */
};

void qemu_hotplug_names_init(struct qemu_hotplug_names *names, const char *drive_id);

/* The drive's id in a set's opaque text; NULL: the set is not crustd's. */
const char *qemu_hotplug_id_of(const char *opaque);

enum qemu_hotplug_command {
    QEMU_ASK_SETS,
    QEMU_ASK_DEVICES, /* up to here, what shows all drives */
    QEMU_ASK_NODES,   /* up to here, what shows whether the disk of a drive may be in use */
    QEMU_ASK_OBJECTS, /* up to here, what shows all parts */
    QEMU_ASK_SCSI_ID, /* of the drive's device; then its unit and its serial */
    QEMU_ASK_LUN,
    QEMU_ASK_SERIAL,
    QEMU_ADD_SET,
    QEMU_ADD_GROUP,
    QEMU_ADD_NODES,
    QEMU_ADD_DEVICE,
    QEMU_REMOVE_SET, /* in the order of enum qemu_part */
    QEMU_REMOVE_GROUP,
    QEMU_REMOVE_FILE,
    QEMU_REMOVE_RAW,
    QEMU_REMOVE_THROTTLE,
    QEMU_REMOVE_DEVICE,
    QEMU_ADD_CONTROLLER,
    QEMU_SET_LIMITS,
    QEMU_RESIZE, /* the node that the device has: only then its guest is told */
    QEMU_HOTPLUG_COMMANDS,
};

static inline enum qemu_hotplug_command qemu_remove_of(enum qemu_part part)
{
    return (enum qemu_hotplug_command)(QEMU_REMOVE_SET + (int)part);
}

/* What commands are made of. */
struct qemu_hotplug_values {
    const struct hypervisor_drive_request *request;
    struct qemu_hotplug_names names;
    uint64_t set;
    char bus[QEMU_HOTPLUG_BUS_BYTES]; /* of the device, or the bridge of the controller */
    unsigned scsi_id, lun;
};

const char *qemu_hotplug_command_name(enum qemu_hotplug_command command);

/* Whether QEMU is to hold the drive back at all. */
bool qemu_hotplug_is_limited(const struct hypervisor_limits *limits);

/* The command's arguments as a JSON object; "": none. 0, -EMSGSIZE. */
int qemu_hotplug_arguments(enum qemu_hotplug_command command,
                           const struct qemu_hotplug_values *values,
                           char ret_arguments[static QEMU_HOTPLUG_ARGUMENT_BYTES]);
