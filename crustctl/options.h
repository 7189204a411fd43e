/* SPDX-License-Identifier: Apache-2.0 */
/* options.h - the command line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"
#include "model/drive.h"

enum { DRIVE_CONTAINERS_MOST = 16 }; /* of crust.drive.v1 */

/* The options of `crustctl drive`, as they were given; NULL: not given. Borrowed from argv. */
struct drive_options {
    const char *sandbox, *host_path, *vm_path, *fs_type;
    const char *fs_group, *fs_group_policy;
    const char *bandwidth, *operations;
    bool writable, fsck;
    unsigned options, containers;
    const char *option[DRIVE_OPTIONS];
    const char *container[DRIVE_CONTAINERS_MOST];
};

/* Appends the body of POST /v1/drives, or of POST /v1/drives/ID/limits. -EINVAL with a text: an
 * option is missing or malformed. Otherwise 0, or as buffer_append(). */
int drive_options_append_attach(const struct drive_options *options, const char *drive_id,
                                struct buffer *json, struct error *error);
int drive_options_append_limits(const struct drive_options *options, struct buffer *json,
                                struct error *error);

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
    OPTION_PROBLEMS = 1 << 12,
    OPTION_WIDE = 1 << 13,
    OPTION_LIMITS = 1 << 14, /* --bandwidth, --operations */
    OPTION_DRIVE = 1 << 15,  /* the other options of drive attach */
};

enum { OPTIONS_OPERANDS = 4 };

struct options {
    const char *root;
    const char *config_file; /* NULL: the default below root */
    bool json, help, version;
    unsigned given; /* OPTION_… */
    unsigned rows;  /* options that were given, by the bits of a table in options.c */
    int64_t lines;  /* -n; 0: all */
    const char *wanted_state;
    int64_t timeout_seconds;
    const char *volume_path, *mount_info, *size; /* NULL: not given */
    struct drive_options drive;
    const char *command; /* NULL: none */
    unsigned operands;
    const char *operand[OPTIONS_OPERANDS];
};

/* Options may stand anywhere. Strings are borrowed from argv. 0, or -EINVAL with a text. */
int options_parse(int argc, char *argv[], struct options *ret_options, struct error *error);

/* The name of an option that was given and is none of `allowed` (OPTION_…); NULL: all are. */
const char *options_find_refused(const struct options *options, unsigned allowed);

/* "STATE" or "STATE/REASON", by which a person names what a volume is waited for: one of the
 * model's states, alone or with a reason that it can have. */
bool states_is_selector(const char *selector);
bool states_match(const char *selector, const char *state, const char *reason);
