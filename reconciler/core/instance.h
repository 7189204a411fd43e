/* SPDX-License-Identifier: Apache-2.0 */
/* instance.h - the single crustd of a database: where the database is, and the lock on its
 * directory. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "config/config.h"
#include "lib/result.h"

struct store;
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

/* Opens the database for this boot; outcomes as store_open(). */
int instance_open_store(const struct instance *instance, const struct config *config,
                        enum instance_store where, struct store **ret_store,
                        struct store_opening *ret_opening, struct error *error);
