/* schema.h - the database's shape: how it is made, brought up to date and recognised. */
#pragma once

#include "store/sql.h"

enum { SCHEMA_APPLICATION_ID = 0x43525354 }; /* "CRST" */

/* Runs the migrations from `version` (0: an empty file) up to STORE_SCHEMA_VERSION, each in its own
 * transaction with its version number. */
int schema_migrate(struct sql_connection *connection, int64_t version);

/* -EUCLEAN if a table, index or view is not what the migrations made. */
int schema_check(struct sql_connection *connection);

/* Claims `c` of something within a volume: beneath its path, or where the kubelet binds parts of
 * it; but not what is a volume by itself. */
#define CLAIMS_WITHIN(target_path, subpaths)                                                       \
    "(" CLAIM_BENEATH(target_path) " OR " CLAIM_BENEATH(subpaths) ")" AND_NO_VOLUME

#define CLAIM_BENEATH(path) "(c.path > " path " || '/' AND c.path < " path " || '0')"
#define AND_NO_VOLUME                                                                              \
    " AND NOT EXISTS (SELECT 1 FROM volumes w WHERE w.target_path = c.path"                        \
    " AND w.removed_at IS NULL)"
