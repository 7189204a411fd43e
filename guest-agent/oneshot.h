/* SPDX-License-Identifier: Apache-2.0 */
/* oneshot.h - `crust-guest-agent --once`: grows or reports the named volumes, prints one line of
 * JSON and exits. The contract is docs/guest-helper.md.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
