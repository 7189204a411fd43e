/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the command line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "crustctl/drive_options.h"
#include "lib/result.h"

/* Options that only some commands accept, as their rows in the table say. */
enum {
    OPTION_BLOCKED = 1 << 0,
    OPTION_ALL = 1 << 1,
    OPTION_LINES = 1 << 2,
    OPTION_FOLLOW = 1 << 3,
    OPTION_FOR = 1 << 4,
    OPTION_TIMEOUT = 1 << 5,
    OPTION_DRY_RUN = 1 << 6,
    OPTION_VOLUME_PATH = 1 << 7,
    OPTION_MOUNT_INFO = 1 << 8,
    OPTION_SIZE = 1 << 9,
    OPTION_STALLED = 1 << 10,
    OPTION_NOT_RESIZABLE = 1 << 11,
    OPTION_SANDBOX = 1 << 12,
    OPTION_HOST_PATH = 1 << 13,
    OPTION_VM_PATH = 1 << 14,
    OPTION_TYPE = 1 << 15,
    OPTION_OPTION = 1 << 16,
    OPTION_WRITABLE = 1 << 17,
    OPTION_FSCK = 1 << 18,
    OPTION_FS_GROUP = 1 << 19,
    OPTION_FS_GROUP_POLICY = 1 << 20,
    OPTION_BANDWIDTH = 1 << 21,
    OPTION_OPERATIONS = 1 << 22,
    OPTION_CONTAINER = 1 << 23,
    OPTION_PROBLEMS = 1 << 24,
    OPTION_WIDE = 1 << 25,
};

enum { OPTIONS_OPERANDS = 4 };

struct options {
    const char *root;
    const char *config_file; /* NULL: the default below root */
    bool json;
    bool help;
    bool version;
    unsigned given; /* OPTION_… */
    int64_t lines;  /* -n; 0: all */
    const char *wanted_state;
    int64_t timeout_seconds;
    const char *volume_path, *mount_info, *size; /* NULL: not given */
    struct drive_options drive;
    const char *command; /* NULL: none */
    unsigned operands;
    const char *operand[OPTIONS_OPERANDS];
};

/* "--blocked" for OPTION_BLOCKED; of several the first. */
const char *options_name(unsigned given);

/* Options may stand anywhere. Strings are borrowed from argv. 0, or -EINVAL with a text. */
int options_parse(int argc, char *argv[], struct options *ret_options, struct error *error);

/* ---- states --------------------------------------------------------------------------------- */

/* "STATE" or "STATE/REASON", by which a person names what a volume is waited for. */

bool states_is_selector(const char *selector);
bool states_match(const char *selector, const char *state, const char *reason);
