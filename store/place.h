/* SPDX-License-Identifier: Apache-2.0 */
/* place.h - the files at the database's path: judged, set aside, cleared. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/result.h"

enum place_kind {
    PLACE_NONE, /* nothing, or an empty file */
    PLACE_OURS,
    PLACE_FOREIGN, /* another application's database */
    PLACE_NEWER,   /* ours, of a newer schema */
    PLACE_DAMAGED, /* no database at all */
};

enum { PLACE_HEADER_BYTES = 100 };

/* What the first bytes of a file say; length may be less. */
enum place_kind place_judge_header(const unsigned char *header, size_t length);

/* Reads the file's header; touches nothing. -EISDIR, -EINVAL (a device, a FIFO), -errno. */
int place_judge(const char *path, enum place_kind *ret_kind, struct error *error);

/* Renames PATH, PATH-wal and PATH-shm to PATH.corrupt-N…, the database last: as long as it is
 * there, the next start sets it aside again. */
int place_set_aside(const char *path, struct error *error);

/* Whether there is any PATH.corrupt-N. */
bool place_has_set_aside(const char *path);

/* Whether a WAL that is not empty stands beside it. */
bool place_has_log(const char *path);

/* Before a new database: removes a WAL without its database, which would be replayed into the new
 * one. */
int place_clear(const char *path, struct error *error);

/* Whether a file of some size can be written and synced beside PATH: cheaper than opening a
 * database to find out. 0 or -errno. */
int place_try_room(const char *path, struct error *error);

int place_sync_directory(const char *path); /* of the directory that PATH is in */

/* PATH with a suffix, to be freed; NULL without memory. */
char *place_with(const char *path, const char *suffix);
