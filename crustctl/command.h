/* SPDX-License-Identifier: Apache-2.0 */
/* command.h - what a crustctl command is, and the table of them. */
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
    struct source *source;
    unsigned width;       /* of prose, in columns */
    unsigned table_width; /* of tables: unlimited if stdout is no terminal */
    struct buffer out;    /* written to stdout by session_end(), or session_flush() before */
};

struct command {
    const char *name;
    const char *operands; /* as shown in the usage; "" */
    unsigned operand_count;
    unsigned options;                    /* OPTION_… that it takes */
    const char *summary;                 /* one line */
    const char *help;                    /* more text for --help; may be NULL */
    int (*run)(struct session *session); /* an exit code */
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

/* Prints "crustctl: text" on stderr; the exit code for a SOURCE_* outcome or -errno. */
int session_fail(int result, const struct error *error);

/* The exit code for an error status of the daemon's HTTP. */
int session_exit_code(unsigned http_status);

/* The one volume that VOL names: 0 with *ret_row owned by the caller, or an exit code with the
 * reason on stderr. */
int session_find_volume(struct session *session, const char *name, cJSON **ret_row);

/* Lists the volumes that the name may mean on stderr. EXIT_USAGE. */
int session_refuse_ambiguous(const char *name, const cJSON *rows);

int command_status(struct session *session);
int command_health(struct session *session);
int command_resync(struct session *session);
int command_view(struct session *session);
int command_volume(struct session *session);
int command_journal(struct session *session);
int command_explain(struct session *session);
int command_doctor(struct session *session);
int command_crust_qemu(struct session *session);
int command_wait(struct session *session);
int command_resize(struct session *session);
int command_stats(struct session *session);
int command_crust_stats(struct session *session);
int command_crust_resize(struct session *session);
int command_direct_volume_add(struct session *session);
int command_direct_volume_remove(struct session *session);
int command_direct_volume_stats(struct session *session);
int command_direct_volume_resize(struct session *session);
int command_fs_stats(struct session *session);
int command_fs_resize(struct session *session);
int command_gc(struct session *session);
int command_drives(struct session *session);
int command_drive_attach(struct session *session);
int command_drive_detach(struct session *session);
int command_drive_limits(struct session *session);
int command_restore(struct session *session);

/* Asks the daemon, waits, prints its answer; sizes in bytes, "0": any. An exit code. */
int command_ask_stats(struct session *session, const char *volume);
int command_ask_resize(struct session *session, const char *volume, const char *least,
                       const char *most);
