/* schema.h - the database's shape: how it is made, brought up to date and recognised. */
#pragma once

#include "store/sql.h"

enum { SCHEMA_APPLICATION_ID = 0x43525354 }; /* "CRST" */

/* Runs the migrations from `version` (0: an empty file) up to STORE_SCHEMA_VERSION, each in its own
 * transaction with its version number. */
int schema_migrate(struct sql_connection *connection, int64_t version);

/* -EUCLEAN if a table, index or view is not what the migrations made. */
int schema_check(struct sql_connection *connection);
