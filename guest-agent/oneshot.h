/* SPDX-License-Identifier: Apache-2.0 */
/* oneshot.h - `crust-guest-agent --once`: grows or reports the named volumes, prints one line of
 * JSON and exits. The contract is docs/guest-helper.md.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guest-agent/guest_volume.h"
#include "lib/buffer.h"
#include "lib/result.h"

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

/* ---- report --------------------------------------------------------------------------------- */

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
