/* SPDX-License-Identifier: Apache-2.0 */
/* database.h - notices that the database's file fails, or is good again, and asks for a restart.
 *
 * A file that fails is not repaired while it is open: crustd executes itself anew, and the start
 * opens the file again, sets it aside, or works in memory. In memory, volumes are still resized,
 * but nothing is removed and no history is kept. The file is tried once a minute; when it is good,
 * crustd executes itself anew once more.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "lib/result.h"

struct context;
struct instance;

/* The fields are private to the module. */
struct database {
    const struct context *context;
    struct instance *instance; /* the location of the store's file */
    /* Asks for a restart, which happens when the loop has ended. NULL: there is none. */
    void (*restart)(void *userdata, int failure, const char *why);
    void *userdata;
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
