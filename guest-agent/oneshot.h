/* SPDX-License-Identifier: Apache-2.0 */
/* oneshot.h - `crust-guest-agent --once`: grows or reports the named volumes, prints one line of
 * JSON and exits. The contract is docs/guest-helper.md.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent-client/agent_messages.h"
#include "guest-agent/volume.h"
#include "lib/buffer.h"
#include "lib/result.h"

enum { ONESHOT_PATHS = 64, ONESHOT_PATH_BYTES = 256 }; /* the latter with its NUL */

struct oneshot_request {
    const char *const *paths;
    size_t count;
    bool all; /* every writable volume there is, in place of paths */
    bool report_only;
    uint64_t timeout_ns; /* 0: as long as the kernel takes */
};

/* Outcomes. */
enum {
    ONESHOT_DONE,
    ONESHOT_INCOMPLETE, /* some volume has an error; the report says which */
};

/* Writes the report to `output`. Outcome, or -errno with a text: there is no report then. */
int oneshot_run(const struct oneshot_request *request, int output, struct error *error);

/* ---- report --------------------------------------------------------------------------------- */

/* The one-shot mode's report about each path, as JSON (docs/guest-helper.md). */

/* Stable names: report.c has the words. */
enum report_error {
    REPORT_DONE,
    REPORT_NOT_MOUNTED,
    REPORT_NOT_A_BLOCK_DEVICE,
    REPORT_UNSUPPORTED,
    REPORT_REFUSED,
    REPORT_READ_ONLY,
    REPORT_ERRORS,
    REPORT_SHUT_DOWN,
    REPORT_NO_CAPABILITY,
    REPORT_BUSY,
    REPORT_TIMED_OUT,
    REPORT_LIMIT,
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
    enum report_error error;
    char error_text[ERROR_TEXT_BYTES]; /* "" with REPORT_DONE */
};

/* Fills everything but path and error from a mounted volume. */
void report_describe(const struct volume *volume, struct report_volume *report);

/* Sets the error, unless one is set already. */
void report_fail(struct report_volume *report, enum report_error error, const char *text);

/* The name of an outcome of filesystem_grow(), or of -errno. */
enum report_error report_error_from_outcome(int outcome);

/* The line is a beginning, any number of volumes, and an end. 0, -EMSGSIZE, -ENOMEM. */
int report_begin(struct buffer *line);
int report_append(struct buffer *line, const struct report_volume *volume);
int report_end(struct buffer *line);
