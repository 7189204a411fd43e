/* SPDX-License-Identifier: Apache-2.0 */
/* oneshot.h - what crust-guest-agent does once, as a helper that crustd runs in a container in
 * kata-agent's own mount namespace. The contract is docs/guest-helper.md.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/guest_volume.h"
#include "lib/buffer.h"
#include "lib/result.h"

/* ---- --once: grows or reports the named volumes, and prints one line of JSON ---------------- */

enum { ONESHOT_PATHS = 64, ONESHOT_PATH_BYTES = 1024 }; /* the latter with its NUL */

struct oneshot_request {
    const char *const *paths;
    size_t count;
    bool all; /* every writable volume there is, in place of paths */
    bool report_only;
    uint64_t timeout_ns; /* 0: as long as the kernel takes */
};

/* Outcomes, and the exit codes of the program. */
enum {
    ONESHOT_DONE,
    ONESHOT_INCOMPLETE, /* some volume has an error; the report says which */
};

/* Writes the report to `output`. Outcome, or -errno with a text: there is no report then. */
int oneshot_run(const struct oneshot_request *request, int output, struct error *error);

/* The outcomes of filesystem_grow(), and other reasons why a path is not done. */
enum report_error {
    REPORT_DONE = FILESYSTEM_GROWN,
    REPORT_BUSY = FILESYSTEM_BUSY,
    REPORT_UNSUPPORTED = FILESYSTEM_UNSUPPORTED,
    REPORT_READ_ONLY = FILESYSTEM_READ_ONLY,
    REPORT_NOT_MOUNTED = FILESYSTEM_OUTCOMES,
    REPORT_NOT_A_BLOCK_DEVICE,
    REPORT_TIMED_OUT,
    REPORT_GROWING,
    REPORT_FAILED,
    REPORT_ERROR_COUNT,
};

struct report_volume {
    char path[PATH_MAX];
    char file_system[32]; /* "" unknown */
    dev_t device;         /* 0: none */
    unsigned device_count;
    uint64_t device_bytes; /* of all of them */
    char layer[ERROR_TEXT_BYTES];
    struct agent_stats stats;
    bool read_only;
    int error;                         /* enum report_error */
    char error_text[ERROR_TEXT_BYTES]; /* "" with REPORT_DONE */
};

/* One path's object. 0, -EMSGSIZE, -ENOMEM. */
int report_append(struct buffer *line, const struct report_volume *volume);

/* ---- --drive: makes one call of crust.guest.v1.Drives --------------------------------------- */

/* The argument is the ttrpc frame of the request in base64url, and what is printed that of the
 * response. A program that is about to end does not end its line. One that has mounted a drive ends
 * it and stays, if the drive is to be synced or containers have it: it syncs the file system at an
 * interval, and mounts it into containers that were started again. It has the mount point open only
 * while it syncs. */

enum drive_once_outcome {
    DRIVE_ONCE_DONE,    /* the first two are the program's exit codes */
    DRIVE_ONCE_REFUSED, /* the response has the reason */
    DRIVE_ONCE_USAGE,   /* no such call: nothing was printed */
};

/* flush_ns: the interval; 0: no syncs. An outcome, or -errno with a text if no response could be
 * written. Does not return while it stays. */
int drive_once_run(const char *call, uint64_t flush_ns, int output, struct error *error);
