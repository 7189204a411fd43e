/* SPDX-License-Identifier: Apache-2.0 */
/* missing_database.h - SQLite that finds no file of a database that is open. */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <sqlite3.h>
#include <string.h>

static const char *missing_for; /* part of the statements that fail */
static unsigned missing_times;  /* how many more of them do */
static bool is_missing;

int sqlite3_step(sqlite3_stmt *statement)
{
    int (*step)(sqlite3_stmt *) = (int (*)(sqlite3_stmt *))dlsym(RTLD_NEXT, "sqlite3_step");

    is_missing = missing_times && strstr(sqlite3_sql(statement), missing_for);
    if (!is_missing)
        return step(statement);
    missing_times--;
    return SQLITE_CANTOPEN;
}

int sqlite3_system_errno(sqlite3 *db)
{
    int (*number)(sqlite3 *) = (int (*)(sqlite3 *))dlsym(RTLD_NEXT, "sqlite3_system_errno");

    return is_missing ? ENOENT : number(db);
}
