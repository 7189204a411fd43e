/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_found.h - what QEMU has of one drive, read from its answers. No I/O. Private to
 * hypervisor/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hypervisor/qemu_hotplug_commands.h"
#include "lib/json.h"
#include "lib/result.h"

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

/* Reads the "return" of the four questions, QEMU_ASK_NODES to QEMU_ASK_DEVICES in any order but
 * after QEMU_ASK_SETS, which starts anew. 0, -EBADMSG, -EMSGSIZE, -ENOMEM. */
int qemu_hotplug_read(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                      enum qemu_hotplug_command command, const cJSON *value, struct error *error);

/* Whether nothing is there, and whether a part is there without one that it needs, or some of the
 * nodes without the others. A group needs nothing, and is there alone once QEMU's last monitor
 * client has gone: QEMU then closes the sets that no node is on (7.2, monitor/misc.c). */
bool qemu_hotplug_is_absent(const struct qemu_hotplug_found *found);
bool qemu_hotplug_has_gap(const struct qemu_hotplug_found *found);
enum hypervisor_drive_state qemu_hotplug_state(const struct qemu_hotplug_found *found);

/* ---- all drives ---- */

struct qemu_hotplug_list {
    struct hypervisor_drive_entry *entries; /* owned; and for each its descriptor in QEMU's process,
                                               and its device's name */
    int *fds;
    char (*devices)[QEMU_HOTPLUG_NAME_BYTES];
    size_t count;
};

/* The sets that are crustd's, each drive once; then which of them have a device. */
int qemu_hotplug_list_sets(struct qemu_hotplug_list *list, const cJSON *value, struct error *error);
int qemu_hotplug_list_devices(struct qemu_hotplug_list *list, const cJSON *value,
                              struct error *error);
void qemu_hotplug_list_done(struct qemu_hotplug_list *list);
