/* SPDX-License-Identifier: Apache-2.0 */
/* scratch.h - a directory of the test's own, below TMPDIR, and gone with everything in it. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SCRATCH_BYTES = 64 }; /* its path: short, as sockets lie in it */

/* Makes it, empty. 0, or -1 with what is wrong printed: what a setup returns. */
static inline int scratch_directory_make(char ret_path[static SCRATCH_BYTES])
{
    const char *parent = getenv("TMPDIR");
    int length = snprintf(ret_path, SCRATCH_BYTES, "%s/crust-unit-XXXXXX",
                          parent && *parent ? parent : "/tmp");

    if (length < SCRATCH_BYTES && mkdtemp(ret_path))
        return 0;
    print_error("cannot make %s: %s\n", ret_path,
                length < SCRATCH_BYTES ? strerror(errno) : "TMPDIR is too long");
    return -1;
}

static inline int scratch_remove_one(const char *path, const struct stat *status, int type,
                                     struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

/* 0, or -1: what a teardown returns. Does not go into what is mounted there. */
static inline int scratch_directory_remove(const char *path)
{
    return nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
