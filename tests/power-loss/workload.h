/* SPDX-License-Identifier: Apache-2.0 */
/* workload.h - volumes that are staged, bound, resized, ended and cleaned up, with crustd's own
 * functions, and what stands in the database after each commit.
 *
 * A record is promised once store_sync() or store_commit_durable() has returned: those are what
 * crustd calls before it answers a client that stages, unstages or expands, and before it moves
 * metadata away. All commits before are promised with it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "store/sql.h"

/* What the database holds, as numbers to compare. */
struct workload_content {
    uint64_t all;     /* of every row of every table; 0: nothing is on record yet */
    uint64_t history; /* of what a start leaves as it is: volumes, resizes, cleanups, the journal */
    int64_t lines;    /* the journal's last number */
};

/* 0 or a failure of the store's. lines: of the journal, no later ones; 0: all of them. */
int workload_read_content(struct sql_connection *connection, int64_t lines,
                          struct workload_content *ret_content);

struct workload_commit {
    size_t operations; /* of the disk, once it was made */
    struct workload_content content;
};

struct workload_promise {
    size_t operations; /* once it was given */
    size_t commit;     /* the last one that it covers */
};

struct workload {
    struct workload_commit *commit;
    struct workload_promise *promise;
    size_t commits, promises;
};

/* Begins without a database at `path`, on the recorded disk; ends with the daemon's end. */
void workload_run(const char *path, unsigned volumes, struct workload *ret_workload);
void workload_done(struct workload *workload);

/* Of a power cut after so many operations: the last commit that must be there, -1 none, and the
 * last one that may be. killed: it was the process alone. */
void workload_bounds(const struct workload *workload, size_t operations, int killed,
                     long *ret_least, long *ret_most);
