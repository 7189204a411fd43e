/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - the helper's answer: one line of JSON (docs/guest-helper.md).
 *
 * It comes out of a guest, so everything is bounded and checked, and texts are fit to be shown.
 */
#pragma once

#include "agent-client/agent_messages.h"
#include "config/config.h"
#include "lib/result.h"
#include "model/reason.h"

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

/* Parses the report of a helper that was given these paths, in this order. 0; -EBADMSG: it is not a
 * valid report. */
int helper_report_parse(const char *text, size_t length, const char *const *path, unsigned paths,
                        struct helper_report *ret_report, struct error *error);

/* ---- judge ---------------------------------------------------------------------------------- */

/* What a helper's report says about one volume. Pure. */

struct helper_verdict {
    enum volume_reason reason; /* NONE: its file system fills the device, or its usage was read */
    char text[HELPER_TEXT_BYTES];
    uint64_t device_bytes; /* according to the guest; 0 unknown */
    struct agent_stats stats;
};

/* volume: the entries for all places at which the volume may be mounted. If there are several, the
 * one on a device of this size is taken; growing the others did no harm, because a file system only
 * ever grows to the size of its own device. grew: the helper was to grow, otherwise only to
 * report. */
void helper_judge(const struct helper_volume *volume, unsigned volumes, uint64_t device_bytes,
                  bool grew, struct helper_verdict *ret_verdict);

/* ---- program -------------------------------------------------------------------------------- */

/* The helper's program on this node: guest.helper_file. */

/* Outcomes of helper_program_open(); the error says which file and why. */
enum {
    HELPER_PROGRAM_OK,
    HELPER_PROGRAM_MISSING, /* missing, or not fit to be run as root in a guest */
    HELPER_PROGRAM_FOREIGN, /* built for another processor architecture than this node's */
};

enum { HELPER_PROGRAM_BYTES = 64 * 1024 * 1024 };

/* Opens the file for reading, and checks it: a regular file of root's that nobody else may write,
 * an ELF program for the machine that crustd itself runs on. HELPER_PROGRAM_* or -errno. */
int helper_program_open(const struct config *config, int *ret_fd, struct error *error);
