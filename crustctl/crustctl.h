/* SPDX-License-Identifier: Apache-2.0 */
/* crustctl.h - the command line, what crustctl knows of the node, and the table of commands. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/result.h"
#include "model/drive.h"
#include "store/read.h"

/* ---- the command line ----------------------------------------------------------------------- */

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

/* ---- the daemon, or else its database ------------------------------------------------------- */

/* Outcomes: the caller prints the error's text and exits accordingly. */
enum {
    SOURCE_UNREACHABLE = 1, /* no daemon (and, for rows, no database either) */
    SOURCE_REFUSED = 2,     /* the daemon answered with an error status */
};

enum { SOURCE_ANSWER_BYTES = 64 * 1024 * 1024 };

struct source {
    int root;              /* O_PATH of --root */
    const char *root_name; /* borrowed: an argument */
    struct config config;
    struct error config_fault; /* "" where the configuration was read */
    bool needs_daemon;   /* an absent daemon is SOURCE_UNREACHABLE, whatever the database has */
    bool checked_memory; /* whether the daemon works in memory */
    struct store_reader *reader; /* set once no daemon answered */
};

/* Reads the configuration; config_file NULL: the default one below root, which may be absent. Where
 * a file has a fault, the others hold. Asks nobody yet. 0 or -errno; source_close() either way. */
int source_open(struct source *source, const char *root, const char *config_file,
                struct error *error);
void source_close(struct source *source);

struct source_request {
    const char *method, *target;
    const char *body; /* JSON, or "" for an empty one; NULL none */
    unsigned seconds; /* until it is given up; 0: 30 */

    /* While the answer is not there, what this says of the subject is shown on stderr whenever it
     * has changed. NULL: nothing is. */
    void (*describe)(struct source *source, const char *subject, struct buffer *ret_text);
    const char *subject;

    unsigned status; /* HTTP's, of the answer */
};

/* One request to the daemon and nobody else. 0: 2xx, ret_body is the answer. SOURCE_REFUSED: the
 * error's text is the daemon's message and ret_body its JSON. SOURCE_UNREACHABLE, -errno. */
int source_ask(struct source *source, struct source_request *request, struct buffer *ret_body,
               struct error *error);

/* Rows of a view, as JSON text. Once no daemon answered, this source keeps to the database, and
 * says so once on stderr. 0, SOURCE_*, -errno. */
int source_read(struct source *source, const struct store_query *query, struct buffer *ret_json,
                struct error *error);
/* The same, parsed: an array, owned by the caller. */
int source_rows(struct source *source, const struct store_query *query, cJSON **ret_rows,
                struct error *error);

/* JSON of crustd's own, whose size alone is bounded. 0 or -errno. */
int source_parse(const struct buffer *json, cJSON **ret_value, struct error *error);

/* The daemon's status; without a daemon {"daemon":false,"summary":{…}} from the database. */
int source_status(struct source *source, cJSON **ret_status, struct error *error);

/* The node's findings (doctor/doctor.h): the daemon's, or else those of this process, with what the
 * database knows of sandboxes where there is one. 0, SOURCE_REFUSED, -errno. */
int source_findings(struct source *source, bool *ret_by_daemon, cJSON **ret_findings,
                    struct error *error);

/* ---- commands ------------------------------------------------------------------------------- */

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

/* ---- tables --------------------------------------------------------------------------------- */

/* Rows of a view as text: many as a table, one as a sheet, the journal as lines.
 *
 * A column is data: its title, the row's member, how that is shown, and what happens to it when the
 * terminal is narrow. Columns shrink to their minimum first, those with the longest values most;
 * then expendable columns are dropped, the highest number first.
 *
 * Functions that append return 0 or the buffer's failure, which is latched: lib/buffer.h.
 */

enum column_kind { COLUMN_TEXT, COLUMN_NUMBER, COLUMN_SIZE, COLUMN_TIME };

struct column {
    const char *title;
    const char *key; /* member of the row */
    enum column_kind kind;
    unsigned minimum;    /* 0: never shortened */
    unsigned expendable; /* 0: always shown */
    /* What is shown instead of the member; NULL: the member. */
    int (*format)(const cJSON *row, struct buffer *ret_text);
};

enum { TABLE_COLUMNS = 12 };

/* Header and rows. `nothing` is printed if there are none. */
int table_print(const struct column *columns, unsigned count, const cJSON *rows, unsigned width,
                const char *nothing, struct buffer *out);

/* "column  value" lines of what the row has a value for. */
int table_print_sheet(const cJSON *row, struct buffer *out);

/* ---- row ------------------------------------------------------------------------------------ */

/* The objects that a row of a view is about, named as people do. */

uint64_t row_number(const cJSON *row, const char *key); /* 0 if the row has no such number */
const char *row_reason(const cJSON *row);               /* "none" where the row has no reason */

/* Formats of columns: PV name, else path, else key; "state/reason"; "namespace/name"; "yes",
 * "no/monitor_missing". */
int row_volume_name(const cJSON *row, struct buffer *ret_text);
int row_state(const cJSON *row, struct buffer *ret_text);
int row_pod(const cJSON *row, struct buffer *ret_text);
int row_resizable(const cJSON *row, struct buffer *ret_text);

/* One line of the journal: when, what, about what, details; these in lines of their own, indented,
 * where all of it does not fit into `width`. */
int row_print_journal(const cJSON *row, unsigned width, struct buffer *out);

/* JSON with a newline, the elements of an array each on a line of its own. */
int row_print_json(const cJSON *value, struct buffer *out);

/* ---- display -------------------------------------------------------------------------------- */

/* Text for a terminal: escaped, measured in columns, shortened, wrapped.
 *
 * Widths are columns of a UTF-8 terminal; display_init() must have run. Names come from outside, so
 * characters that a terminal would obey (controls, changes of direction) are shown as escapes.
 */

enum { DISPLAY_DEFAULT_WIDTH = 80 };

/* Makes character widths known. Once, before anything else here. */
void display_init(void);

/* The terminal's width if stdout is one, else $COLUMNS, else 80. */
unsigned display_columns(void);

/* The terminal's width if stdout is one; else unlimited, because a program reads it. */
unsigned display_table_columns(void);

unsigned display_width(const char *text);

/* Functions that append return 0 or the buffer's failure, which is latched: lib/buffer.h. */
int display_append(struct buffer *out, const char *text);

/* The escaped text, shortened in its middle if it has more than `width` columns, else padded with
 * blanks unless it is SHORT. */
enum display_align { DISPLAY_LEFT, DISPLAY_RIGHT, DISPLAY_SHORT };
int display_append_cell(struct buffer *out, const char *text, unsigned width,
                        enum display_align align);

/* Words filled into lines of `width`; every line but the first starts with `indent` blanks, and so
 * does the first unless `lead` stands there (its width must be `indent`). Ends with a newline. */
int display_append_wrapped(struct buffer *out, const char *text, const char *lead, unsigned indent,
                           unsigned width);
