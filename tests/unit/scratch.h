/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - a directory of the test's own, below TMPDIR, and gone with everything in it. That of
 * a test that is killed goes with the run: tests/run-unit.sh sets TMPDIR and UNIT_MEMORY. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SCRATCH_BYTES = 64 }; /* its path: short, as sockets lie in it */

static inline const char *scratch_parent(const char *variable, const char *otherwise)
{
    const char *parent = getenv(variable);

    return parent && *parent ? parent : otherwise;
}

/* Where a directory of a tmpfs can be made, as /run is one. */
static inline const char *scratch_memory(void)
{
    return scratch_parent("UNIT_MEMORY", "/dev/shm");
}

/* Makes it, empty. 0, or -1 with what is wrong printed: what a setup returns. */
static inline int scratch_directory_make_below(const char *parent,
                                               char ret_path[static SCRATCH_BYTES])
{
    int length = snprintf(ret_path, SCRATCH_BYTES, "%s/crust-unit-XXXXXX", parent);

    if (length < SCRATCH_BYTES && mkdtemp(ret_path))
        return 0;
    print_error("cannot make %s: %s\n", ret_path,
                length < SCRATCH_BYTES ? strerror(errno) : "its parent's path is too long");
    return -1;
}

static inline int scratch_directory_make(char ret_path[static SCRATCH_BYTES])
{
    return scratch_directory_make_below(scratch_parent("TMPDIR", "/tmp"), ret_path);
}

static inline int scratch_remove_one(const char *path, const struct stat *status, int type,
                                     struct FTW *place)
{
    return remove(path);
}

/* 0, or -1: what a teardown returns. Does not go into what is mounted there. */
static inline int scratch_directory_remove(const char *path)
{
    return nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
