/* SPDX-License-Identifier: Apache-2.0 */
/* database.h - the database's file: where it is, the lock by which one crustd alone has it, and
 * what is done when it fails.
 *
 * A file that fails is not repaired while it is open: crustd executes itself anew, and the start
 * opens the file again, sets it aside, or works in memory. In memory, volumes are still resized,
 * but nothing is removed and no history is kept. The file is tried once a minute; when it is good,
 * crustd executes itself anew once more.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "lib/log.h"
#include "lib/loop.h"
#include "lib/result.h"

struct context;
struct reconciler_options;
struct store;
struct store_gap;
struct store_opening;

/* Outcomes of instance_take_place(). */
enum {
    INSTANCE_ALONE,
    INSTANCE_LOCKED = 16, /* another crustd holds the lock; not an outcome of store_open() */
};

struct instance {
    int root;
    const char *root_name; /* borrowed */
    char name[CONFIG_PATH_BYTES];
    int lock;                /* a flock on the directory, released when the process ends */
    char database[PATH_MAX]; /* as this process reaches it, once the place is taken */
};

#define INSTANCE_INIT                                                                              \
    {                                                                                              \
        .lock = -1                                                                                 \
    }

void instance_init(struct instance *instance, int root, const char *root_name,
                   const struct config *config);
void instance_done(struct instance *instance);

/* Makes the database's directory if needed, resolves it below root and locks it, unless this
 * process holds that lock already. Returns INSTANCE_* or an enum store_failure, with a text unless
 * INSTANCE_ALONE. */
int instance_take_place(struct instance *instance, struct error *error);

enum instance_store { INSTANCE_STORE_FILE, INSTANCE_STORE_MEMORY };

/* Opens the database for this boot; gap: to be recorded there, or NULL. Outcomes as store_open().
 */
int instance_open_store(const struct instance *instance, const struct config *config,
                        enum instance_store where, const struct store_gap *gap,
                        struct store **ret_store, struct store_opening *ret_opening,
                        struct error *error);

/* Opens the file for a running daemon and closes it again, so that the gap is on record there if it
 * is one. The file may be in a different directory by now. Outcomes as instance_take_place() and
 * store_open(). */
int instance_try_store(struct instance *instance, const struct config *config,
                       const struct store_gap *gap, struct error *error);

/* ---- failures while crustd runs -------------------------------------------------------------- */

/* The fields are private to the module. */
struct database {
    const struct context *context;
    const struct reconciler_options *options; /* the location of the file; who restarts crustd */
    struct loop_timer timer;
    bool tries_soon; /* the timer, because somebody asked for it */
    int64_t began_ms;
    unsigned failed_passes;          /* consecutive */
    char degraded[ERROR_TEXT_BYTES]; /* for people; "" while the file is in use */
    char failing[ERROR_TEXT_BYTES];  /* why passes fail; "" while they succeed */
};

/* The store was opened in memory, because the file failed at start with this error. */
void database_begin_in_memory(struct database *database, const struct error *error);
void database_done(struct database *database);

/* The store failed with r and has been rolled back; text is its error text. Asks for a restart if
 * that helps; until then, and otherwise, the next pass is delayed. */
void database_on_failure(struct database *database, int r, const char *text);
/* A pass was committed. */
void database_on_success(struct database *database);

/* For the sweep: a file that was removed, replaced or overwritten causes no error by itself. */
void database_check_file(struct database *database);
/* Tries the file soon, because someone reports that it is good again. */
void database_try_soon(struct database *database);

/* The last pass failed, and the next one is delayed. */
bool database_is_waiting(const struct database *database);
/* Passes have failed for so long that waiting longer is pointless. */
bool database_is_lasting(const struct database *database);
/* The file fails or is not in use. */
bool database_fails(const struct database *database);
/* The problem as text for people, or NULL. */
const char *database_problem(const struct database *database);

/* ---- journal lines --------------------------------------------------------------------------- */

/* log.journal: the journal on stdout, a line of JSON for each committed row.
 *
 * The loop never waits for stdout: a line that it does not take at once is dropped and counted.
 * audit_journal has the row.
 */
/* Others read output.written and output.dropped; the rest is private to the module. */
struct journal_lines {
    const struct context *context;
    const char *node; /* borrowed */
    bool has_output, is_on;
    struct line_output output;
    int64_t seq; /* the last row that was read */
};

/* fd: borrowed; 0: nowhere. */
void journal_lines_init(struct journal_lines *lines, const struct context *context, int fd,
                        const char *node);
/* Writes the rows that are left. */
void journal_lines_done(struct journal_lines *lines);

/* As log.journal says now. Where crustd starts it begins with the row with which the store was
 * opened, switched on later with the next row. */
void journal_lines_configure(struct journal_lines *lines, bool starts);

/* Outside a transaction: writes some of what was committed since. Whether there may be more. */
bool journal_lines_follow(struct journal_lines *lines);

/* ---- start failure -------------------------------------------------------------------------- */

/* crustd's exit codes. */
enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_LOCKED = 3, EXIT_REFUSED = 4 };

enum start_step { START_CONFIG, START_DATABASE, START_SERVING, START_OTHER };

/* The remedy for a `result` as the step returned it: an outcome of its functions, or -errno. Never
 * NULL. */
const char *start_failure_remedy(enum start_step step, int result);

/* The exit code. Those that a restart cannot cure are in the unit's RestartPreventExitStatus. */
int start_failure_exit_code(enum start_step step, int result);
