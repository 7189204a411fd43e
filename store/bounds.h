/* SPDX-License-Identifier: Apache-2.0 */
/* bounds.h - bounds on the texts that the store keeps. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct store;

/* The outcomes of a search for one object. */
enum store_found { STORE_FOUND, STORE_NOT_FOUND };

enum {
    STORE_SCHEMA_VERSION = 1,  /* the major version; minor ones: schema.h */
    STORE_PATH_BYTES = 4096,   /* a device as written in mountInfo.json */
    STORE_TARGET_BYTES = 4096, /* a volume path; in Kata's layout it has at most 189 bytes */
    STORE_KEY_BYTES = 256,     /* a directory's name */
    STORE_SANDBOX_ID_BYTES = 129,
    STORE_NAME_BYTES = 128,    /* kernel device names, drive ids */
    STORE_ADDRESS_BYTES = 384, /* sockets, agent addresses, guest paths */
    STORE_TEXT_BYTES = 256,    /* problems and errors */
};

/* ---- failure -------------------------------------------------------------------------------- */

/* What a function of store/ returns if it fails. They are negative: a caller that only forwards
 * tests `r < 0`, and one that distinguishes them switches on the names. Each has the value of the
 * errno that describes it, whose text error_set_errno() prints. */
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
