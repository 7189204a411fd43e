/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug.h - the parts that QEMU has of a drive, and the commands about them as
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
#include <stddef.h>
#include <stdint.h>

#include "hypervisor/hypervisor.h"
#include "lib/buffer.h"
#include "lib/json.h"
#include "lib/result.h"

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

/* What commands are made of. */
struct qemu_hotplug_values {
    const struct hypervisor_request *request;
    struct qemu_hotplug_names names;
    uint64_t set;
    char bus[QEMU_HOTPLUG_BUS_BYTES]; /* of the device, or the bridge of the controller */
    unsigned scsi_id, lun;
};

const char *qemu_hotplug_command_name(enum qemu_hotplug_command command);

/* Whether QEMU is to hold the drive back at all. */
bool qemu_hotplug_is_limited(const struct hypervisor_limits *limits);

/* Appends the command's arguments as a JSON object, or nothing. 0, -EMSGSIZE, -ENOMEM. */
int qemu_hotplug_arguments(enum qemu_hotplug_command command,
                           const struct qemu_hotplug_values *values, struct buffer *text);

/* ---- qemu hotplug found --------------------------------------------------------------------- */

/* What QEMU has of one drive, read from its answers. No I/O. */

enum { QEMU_HOTPLUG_BRIDGES = 8, QEMU_HOTPLUG_SETS = 8, QEMU_HOTPLUG_ENTRIES = 1024 };

struct qemu_hotplug_found {
    bool has[QEMU_PARTS];
    struct qemu_hotplug_set {
        uint64_t number;
        int fd;                /* in QEMU's process */
    } sets[QEMU_HOTPLUG_SETS]; /* the drive's; the first of them is used */
    size_t set_count;
    bool is_on_set; /* FILE: its node is on the first of the sets */
    bool read_only; /* FILE */
    bool has_kata_controller, has_own_controller;
    char bridges[QEMU_HOTPLUG_BRIDGES][QEMU_HOTPLUG_BUS_BYTES]; /* pci-bridge devices */
    size_t bridge_count;
};

/* Reads the "return" of one of the four questions QEMU_ASK_SETS to QEMU_ASK_OBJECTS. QEMU_ASK_SETS
 * comes first, because it starts anew; the others come in any order. 0, -EBADMSG, -EMSGSIZE,
 * -ENOMEM. */
int qemu_hotplug_read(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                      enum qemu_hotplug_command command, const cJSON *value, struct error *error);

/* Whether nothing is there, and whether a part is there without one that it needs, or some of the
 * nodes without the others. A group needs nothing, and is there alone once QEMU's last monitor
 * client has gone: QEMU then closes the sets that no node is on (7.2, monitor/misc.c). */
bool qemu_hotplug_is_absent(const struct qemu_hotplug_found *found);
bool qemu_hotplug_has_gap(const struct qemu_hotplug_found *found);
enum hypervisor_drive_state qemu_hotplug_state(const struct qemu_hotplug_found *found);

/* The id of the drive that a set of query-fdsets is of; NULL: it is not crustd's. */
const char *qemu_hotplug_read_set(const cJSON *set, uint64_t *ret_number, int *ret_fd);

/* ---- qemu hotplug steps --------------------------------------------------------------------- */

/* What to do next to a drive, from what QEMU has of it. Pure.
 *
 *     READ ─▶ found ─▶ COMMAND ─▶ done ─▶ COMMAND … READ ─▶ found ─▶ END
 *                         └─▶ refused ─▶ the next address, READ, WAIT, or backwards
 *
 * Commands that need nothing of each other's answers are given together: each answer is a way to
 * QEMU and back. Only the first refusal counts. A group is added even if its set was refused; all
 * is read again then, and the group is taken back. The nodes and the device need what comes before
 * them, so QEMU refuses them, too.
 *
 * A success is believed until all is read again, which comes before each END that claims something,
 * but for an attach that has added every part itself and was refused none. Its guest then compares
 * serial, size and access with what was asked for, whatever QEMU says.
 * An attach that fails goes backwards until nothing of the drive is left.
 */

enum qemu_hotplug_next {
    QEMU_HOTPLUG_READ,    /* ask the four questions, then call qemu_hotplug_step_found() */
    QEMU_HOTPLUG_COMMAND, /* then qemu_hotplug_step_done() for each, up to the first that is
                             refused: qemu_hotplug_step_refused(). The last call says what is next
                           */
    QEMU_HOTPLUG_ADDRESS, /* ask the device's target, unit and serial, then END or _address() */
    QEMU_HOTPLUG_WAIT,    /* a little, then READ; too long: qemu_hotplug_step_late() */
    QEMU_HOTPLUG_END,
};

struct qemu_hotplug_step {
    enum qemu_hotplug_next next;
    enum qemu_hotplug_command command, last; /* COMMAND: from one to the other, together */
    enum hypervisor_outcome outcome;         /* END; its text is plan->error */
};

struct qemu_hotplug_plan {
    struct qemu_hotplug_values values;
    struct qemu_hotplug_found found;
    /* Whether the set's descriptor is the request's disk; asked for when something was
     * found or done. */
    bool (*is_disk)(const struct qemu_hotplug_plan *plan);
    enum hypervisor_outcome failure; /* of an attach that goes backwards; DONE: none */
    struct error error;
    bool is_new; /* QEMU had nothing of the drive when all was read last */
    bool limits_set;
    bool duplicate;              /* a part was said to be there already */
    bool told;                   /* the device's removal was accepted */
    bool cleared;                /* everything was believed to be removed */
    unsigned addresses, bridges; /* tried so far */
};

void qemu_hotplug_plan_init(struct qemu_hotplug_plan *plan,
                            const struct hypervisor_request *request);

/* plan->found is complete. */
struct qemu_hotplug_step qemu_hotplug_step_found(struct qemu_hotplug_plan *plan);
/* The command succeeded; ADD_SET: plan->values.set and found.sets[0] are the new set. */
struct qemu_hotplug_step qemu_hotplug_step_done(struct qemu_hotplug_plan *plan,
                                                enum qemu_hotplug_command command);
struct qemu_hotplug_step qemu_hotplug_step_refused(struct qemu_hotplug_plan *plan,
                                                   enum qemu_hotplug_command command,
                                                   const char *error_class, const char *text);
/* The device's target and unit are in plan->values, and this is its serial. */
struct qemu_hotplug_step qemu_hotplug_step_address(struct qemu_hotplug_plan *plan,
                                                   const char *serial);
/* Waited for as long as the request allows. */
struct qemu_hotplug_step qemu_hotplug_step_late(struct qemu_hotplug_plan *plan);
