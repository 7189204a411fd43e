/* SPDX-License-Identifier: Apache-2.0 */
/* resizable.h - would a resize of the device reach the file system, if it came now?
 *
 * Pure, as decide.h is. docs/states.md ("Resizable") is its table, and every cell is tested.
 */
#pragma once

#include "reconciler/decide/decide.h"

/* What the VMM's monitor can do with the drive, as far as its list shows. */
enum resizable_monitor {
    MONITOR_UNASKED, /* the list was not read, or does not have the drive */
    MONITOR_ABLE,
    MONITOR_UNABLE,
};

struct resizable_facts {
    const struct decide_facts *resize; /* the facts of decide() */
    enum resizable_monitor monitor;
    enum volume_reason monitor_reason; /* of MONITOR_UNABLE */
};

enum resizable_answer {
    RESIZABLE_UNUSED, /* no sandbox has the volume: there is nothing to tell */
    RESIZABLE_YES,    /* each part was seen */
    RESIZABLE_NO,     /* the first observed obstacle */
    RESIZABLE_UNKNOWN,
    RESIZABLE_ANSWERS,
};

struct resizable {
    enum resizable_answer answer;
    enum volume_reason reason; /* NO: the obstacle; UNKNOWN: the missing observation */
};

struct resizable resizable_decide(const struct resizable_facts *facts);

/* NULL for RESIZABLE_UNUSED. */
const char *resizable_name(enum resizable_answer answer);
