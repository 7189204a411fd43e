/* SPDX-License-Identifier: Apache-2.0 */
/* commands.h - what a crustctl command is, and the table of them. */
#pragma once

#include "crustctl/options.h"
#include "crustctl/source.h"
#include "lib/buffer.h"
#include "lib/result.h"

/* Exit codes. */
enum {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NOT_FOUND = 3,
    EXIT_UNREACHABLE = 4,
    EXIT_BLOCKED = 5, /* cannot be done: it stays so until somebody changes something */
    EXIT_NOT_NOW = 6, /* time may heal it: the command may be repeated */
};

/* A command in the middle of its work. */
struct session {
    const struct options *options;
    struct source source;
    unsigned width;       /* of prose, in columns */
    unsigned table_width; /* of tables: unlimited if stdout is no terminal */
    struct buffer out;    /* written to stdout by session_end(), or session_flush() before */
};

/* Returns an exit code. */
typedef int command_run(struct session *session);

struct command {
    const char *name;
    const char *operands; /* as shown in the usage; "" */
    unsigned operand_count;
    unsigned options;    /* OPTION_… that it takes */
    const char *summary; /* one line */
    const char *help;    /* more text for --help; may be NULL */
    command_run *run;
};

/* Ends with a row without a name. */
extern const struct command commands[];

const struct command *command_find(const char *name);

/* The command that the command line names; for a name of two words ("crust stats") the second is
 * the first operand. NULL: there is none. */
const struct command *command_choose(struct options *options);

/* -EINVAL with a text if the options and operands do not fit the command. */
int command_check(const struct command *command, const struct options *options,
                  struct error *error);

/* 0, -EIO, or the output's failure. */
int session_flush(struct session *session);

/* Writes what command->run() left in the output, and reports its failure. The exit code. */
int session_end(struct session *session, int code);

/* Prints "crustctl: text" on stderr, and returns the exit code: the one given, or the one for a
 * SOURCE_* outcome or -errno, whose text is strerror()'s where the error has none. */
int session_fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
int session_fail_result(int result, const struct error *error);

/* With -o json, prints the value and returns true. */
bool session_print_json(struct session *session, const cJSON *value);

/* Rows of a view, or an exit code with the reason on stderr. */
int session_rows(struct session *session, const struct store_query *query, cJSON **ret_rows);

/* The daemon's answer, as it came and parsed, either NULL: of no interest. An exit code, with the
 * reason on stderr. */
int session_ask(struct session *session, struct source_request *request, struct buffer *ret_text,
                cJSON **ret_answer);

/* The one volume that VOL names: 0 with *ret_row owned by the caller, or an exit code with the
 * reason on stderr. */
int session_find_volume(struct session *session, const char *name, cJSON **ret_row);

/* Lists the volumes that the name may mean on stderr. EXIT_USAGE. */
int session_refuse_ambiguous(const char *name, const cJSON *rows);

command_run command_status, command_health, command_resync, command_view, command_volume,
    command_journal, command_explain, command_doctor, command_crust_qemu, command_wait,
    command_resize, command_stats, command_direct_volume_add, command_direct_volume_remove,
    command_fs_stats, command_fs_resize, command_gc, command_drives, command_drive_attach,
    command_drive_detach, command_drive_limits, command_restore;
