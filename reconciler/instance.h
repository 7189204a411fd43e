/* instance.h - the one crustd of a database: where that is, and the lock beside it. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "config/config.h"
#include "lib/result.h"

struct store;

/* Outcomes of instance_init(). */
enum {
    INSTANCE_ALONE,
    INSTANCE_LOCKED, /* another crustd holds the lock */
};

struct instance {
    int lock; /* a flock on DATABASE.lock: it ends with the process */
    char database[PATH_MAX];
};

#define INSTANCE_INIT                                                                              \
    {                                                                                              \
        .lock = -1                                                                                 \
    }

/* Makes the database's directory if need be, finds it below root and takes the lock. INSTANCE_* or
 * -errno, with a text unless INSTANCE_ALONE. */
int instance_init(struct instance *instance, int root, const char *root_name,
                  const struct config *config, struct error *error);
void instance_done(struct instance *instance);

/* Opens the database in this boot; outcomes as store_open(). */
int instance_open_store(const struct instance *instance, const struct config *config,
                        struct store **ret_store, bool *ret_rebuilt, struct error *error);
