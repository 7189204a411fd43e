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

#include "lib/process.h"
#include "model/sandbox.h"
#include "observe/observed_sandbox.h"

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

/* ---- process index -------------------------------------------------------------------------- */

/* Finds the VMM or shim of a sandbox.
 *
 * One reading of /proc serves many searches. A process that was found is checked against /proc/PID
 * before it is returned. A process that is not in a recent reading counts as missing; `stale` means
 * that one started just now may be missing. Each call reads a bounded number of processes and
 * arguments.
 *
 * Only arguments of root's processes are believed (process.h), and a VMM must also be tied to
 * its sandbox by its parent or its cgroup, which the kernel reports. If two believable processes
 * claim the same sandbox, neither is believed. Reading and holding the index: observe_cache_…() of
 * observed_sandbox.h.
 */

struct process_index;

struct indexed_process {
    pid_t pid;
    uint64_t start_ns;               /* CLOCK_BOOTTIME */
    enum hypervisor_kind hypervisor; /* according to argv[0] */
    uint32_t guest_cid;              /* of QEMU's vhost-vsock device; 0: none */
};

int process_index_new(struct process_index **ret_index);
struct process_index *process_index_free(struct process_index *index);

enum process_index_outcome {
    PROCESS_INDEX_FOUND,
    PROCESS_INDEX_NONE,       /* there is none, or (`stale`) none is known yet */
    PROCESS_INDEX_UNFINISHED, /* not all processes are read yet: call again */
};

enum { PROCESS_DOUBT_BYTES = 192 };

struct process_search {
    struct indexed_process process; /* if FOUND */
    bool stale;
    bool is_contested;               /* if NONE: several trusted processes claim to be it */
    uint64_t sure_since_ns;          /* every process started by then is known; 0: unknown */
    bool has_unread;                 /* if NONE: some process could not be read */
    char doubt[PROCESS_DOUBT_BYTES]; /* if NONE: why a process that names the sandbox is not
                                        trusted; "" */
};

/* An enum process_index_outcome or -errno. */
int process_index_find(struct process_index *index, enum process_role role, const char *sandbox_id,
                       struct process_search *ret_search);

/* The same among the processes that are known: nothing is read. */
bool process_index_find_known(struct process_index *index, enum process_role role,
                              const char *sandbox_id, struct indexed_process *ret_process);

/* ---- unknown sandboxes ----------------------------------------------------------------------- */

/* Decides when it is certain that a sandbox has no shim.
 *
 * A shim runs before the first question about its sandbox can come. So a reading of all processes
 * that began after that question and missed none of root's finds the shim if it exists. The time of
 * the first question is kept for the sandboxes that were asked about last.
 */

enum { QUESTIONS = 64 };

struct unknown_sandboxes { /* all zero: none */
    struct question {
        char sandbox_id[OBSERVE_SANDBOX_ID_BYTES];
        uint64_t first_ns, last_ns; /* 0: free */
    } question[QUESTIONS];
};

/* Begins or continues a question about the sandbox. To be called before the search for its
 * processes. */
void unknown_sandboxes_ask(struct unknown_sandboxes *unknown_sandboxes, const char *sandbox_id);

/* OBSERVED_ABSENT: the sandbox has no shim; OBSERVED_UNFINISHED: not certain yet, ask again;
 * -errno. */
int unknown_sandboxes_find(struct unknown_sandboxes *unknown_sandboxes,
                           struct process_index *processes, const char *sandbox_id);
