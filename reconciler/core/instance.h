/* SPDX-License-Identifier: Apache-2.0 */
/* instance.h - the single crustd of a database: where the database is, and the lock on its
 * directory. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "config/config.h"
#include "lib/result.h"

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

/* The same for a start, which may wait: a process that a killed crustd had just begun has copies of
 * its descriptors, and so the lock, until it runs. */
int instance_await_place(struct instance *instance, struct error *error);

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

/* ---- start failure -------------------------------------------------------------------------- */

/* crustd's exit codes. */
enum { EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_LOCKED = 3, EXIT_REFUSED = 4 };

enum start_step { START_CONFIG, START_DATABASE, START_SERVING, START_OTHER };

/* The remedy for a `result` as the step returned it: an outcome of its functions, or -errno. Never
 * NULL. */
const char *start_failure_remedy(enum start_step step, int result);

/* The exit code. Those that a restart cannot cure are in the unit's RestartPreventExitStatus. */
int start_failure_exit_code(enum start_step step, int result);
