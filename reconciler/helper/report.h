/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the helper's answer: one line of JSON (docs/guest-helper.md).
 *
 * It comes out of a guest, so everything is bounded and checked, and texts are fit to be shown.
 */
#pragma once

#include "agent-client/agent_messages.h"
#include "lib/result.h"

enum {
    HELPER_REPORT_BYTES = 64 * 1024,
    HELPER_VOLUMES = 32, /* paths in one report */
    HELPER_TEXT_BYTES = 160,
};

/* The codes of a path's error. */
enum helper_fault {
    HELPER_FAULT_NONE,
    HELPER_FAULT_NOT_MOUNTED,
    HELPER_FAULT_NOT_A_BLOCK_DEVICE,
    HELPER_FAULT_UNSUPPORTED,
    HELPER_FAULT_REFUSED,
    HELPER_FAULT_READ_ONLY,
    HELPER_FAULT_ERRORS,
    HELPER_FAULT_SHUT_DOWN,
    HELPER_FAULT_NO_CAPABILITY,
    HELPER_FAULT_BUSY,
    HELPER_FAULT_TIMED_OUT,
    HELPER_FAULT_LIMIT,
    HELPER_FAULT_GROWING,
    HELPER_FAULT_FAILED, /* and any code that is unknown here */
    HELPER_FAULTS,
};

struct helper_volume {
    enum helper_fault fault;
    char text[HELPER_TEXT_BYTES];  /* why; "" without a fault */
    char layer[HELPER_TEXT_BYTES]; /* what is between the file system and the disk; "" nothing */
    uint64_t device_bytes;         /* 0 unknown */
    struct agent_stats stats;      /* after growing; has_bytes false: unknown */
};

struct helper_report {
    unsigned volumes;
    struct helper_volume volume[HELPER_VOLUMES]; /* in the order of the given paths */
};

/* Parses the report of a helper that was given this many paths: /vol/0, /vol/1, … in this order. 0;
 * -EBADMSG: it is not a valid report. */
int helper_report_parse(const char *text, size_t length, unsigned paths,
                        struct helper_report *ret_report, struct error *error);

/* The code as the report spells it. */
const char *helper_fault_name(enum helper_fault fault);
