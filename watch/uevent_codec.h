/* SPDX-License-Identifier: Apache-2.0 */
/* uevent_codec.h - splits one kernel uevent datagram into its parts, no I/O.
 *
 * Layout (lib/kobject_uevent.c of Linux): "action@devpath" NUL, then "KEY=VALUE" NUL …, in any
 * order. RESIZE=1 is sent for growing and shrinking alike and not by every driver, so it is only a
 * hint to read the size again; SYNTH_* marks an event that a user wrote into a uevent file.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct uevent {
    const char *action; /* all borrowed from the datagram */
    const char *devpath;
    const char *subsystem;   /* "" */
    const char *device_name; /* "" */
    bool has_number;
    uint32_t major, minor;
    bool resize;
    bool capacity_changed; /* SDEV_UA=CAPACITY_DATA_HAS_CHANGED */
    bool synthetic;
};

/* data[length] must be readable and NUL (the receiver's buffer is one byte longer than it asks
 * for). 0 or -EBADMSG. */
int uevent_parse(char *data, size_t length, struct uevent *ret_event);
