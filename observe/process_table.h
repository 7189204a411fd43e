/* SPDX-License-Identifier: Apache-2.0 */
/* process_table.h - reads all processes into a table of the VMMs and shims, by the sandbox id in
 * their arguments.
 *
 * The table is always read as a whole, in parts: any user can make a reading take long, so each
 * call reads a bounded number of processes and arguments, and the last complete reading serves
 * meanwhile. A process that hangs keeps its entries of that reading.
 *
 * The arguments do not prove which program a process runs, so the table may contain other processes
 * of root. A few of the processes that are not trusted are kept for messages.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/process_trust.h"
#include "observe/sandbox.h"

struct process_table;

struct process_table_entry {
    struct sandbox_arguments named;
    enum process_trust trust; /* PROCESS_ROOTS; for a VMM also PROCESS_USERS */
    pid_t pid;
    uint64_t start_ns; /* CLOCK_BOOTTIME */
    bool tied;         /* to its sandbox; the caller sets it, and later readings keep it */
};

/* The entries of one sandbox and role. */
struct process_table_range {
    struct process_table_entry *entry;
    size_t count;
};

/* What the last complete reading may lack. */
struct process_table_gaps {
    uint64_t sure_since_ns; /* every process of root started by then is in the table; 0: unknown */
    bool has_unread;        /* a process hung */
    bool is_doubtful; /* a process of root may be missing, or one that started during the reading */
};

int process_table_new(struct process_table **ret_table); /* 0 or -errno */
struct process_table *process_table_free(struct process_table *table);

/* Reads the next part, of a new reading if none is in progress. An enum progress_outcome (DONE: the
 * table has been replaced) or -errno. */
int process_table_read_on(struct process_table *table);

bool process_table_is_reading(const struct process_table *table); /* a reading is in progress */

/* Whether the last reading is so recent, or took so long, that it is too early for the next. */
bool process_table_is_young(const struct process_table *table);

void process_table_expire(struct process_table *table); /* it is no longer young */

/* Valid until the table is replaced. */
struct process_table_range process_table_find(struct process_table *table, enum process_role role,
                                              const char *sandbox_id);

struct process_table_range process_table_all(struct process_table *table);

/* A process that names the sandbox and is not trusted; NULL: none is known. */
const struct process_table_entry *process_table_find_refused(const struct process_table *table,
                                                             enum process_role role,
                                                             const char *sandbox_id);

const struct process_table_gaps *process_table_gaps(const struct process_table *table);
