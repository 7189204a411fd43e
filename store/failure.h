/* SPDX-License-Identifier: Apache-2.0 */
/* failure.h - what the store can fail with.
 *
 * A function of store/ that fails returns one of these. They are negative: a caller that only
 * forwards tests `r < 0`, and one that distinguishes them switches on the names. Each has the value
 * of the errno that describes it, whose text error_set_errno() prints.
 */
#pragma once

#include <errno.h>

enum store_failure {
    STORE_NO_SPACE = -ENOSPC,   /* its file system is full, or a quota is */
    STORE_READ_ONLY = -EROFS,   /* its file system, or the database, can't be written */
    STORE_FORBIDDEN = -EACCES,  /* to this process */
    STORE_LOCKED = -EBUSY,      /* another program keeps it locked */
    STORE_DAMAGED = -EUCLEAN,   /* its content, or its header is not ours any more */
    STORE_MISSING = -ENOENT,    /* the file or its directory: never made, or removed */
    STORE_REPLACED = -ESTALE,   /* another file has taken its place */
    STORE_IN_THE_WAY = -EISDIR, /* its path is no regular file */
    STORE_UNREADABLE = -EIO,    /* its disk fails, or any failure without a name here */
    STORE_NO_MEMORY = -ENOMEM,
    /* crustd's own faults: they would fail on any file. */
    STORE_FAULT = -EINVAL,    /* a statement, a value or a constraint is wrong */
    STORE_TOO_BIG = -E2BIG,   /* a value, for SQLite */
    STORE_RUNNING = -EDEADLK, /* the statement, already: a walk started itself */
};

/* Translates the -errno of a system call on the database's files. Outcomes above 0 stay. */
int store_failure_of(int r);
