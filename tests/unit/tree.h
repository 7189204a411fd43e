/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - a tree of files below a root of the test's own. */
#pragma once

#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/path.h"
#include "tests/unit/scratch.h"

static char scratch[SCRATCH_BYTES];
static int root = -1;

static inline int tree_start(void **state)
{
    return scratch_directory_make(scratch) < 0 || path_open_root(scratch, &root) < 0 ? -1 : 0;
}

static inline int tree_stop(void **state)
{
    fd_close(root);
    return scratch_directory_remove(scratch);
}

static inline const char *tree_path(const char *path)
{
    static char full[2][1024];
    static unsigned turn;

    turn = (turn + 1) % 2;
    (void)snprintf(full[turn], sizeof(full[turn]), "%s%s", scratch, path);
    return full[turn];
}

static inline void tree_make(const char *path)
{
    assert_int_equal(path_make_directories(root, path, 0700), 0);
}

static inline void tree_write(const char *path, const char *text)
{
    cleanup(fd_closep) int fd =
        open(tree_path(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static inline void tree_remove(const char *path)
{
    assert_int_equal(remove(tree_path(path)), 0);
}

static inline bool tree_has(const char *path)
{
    struct stat st;

    return lstat(tree_path(path), &st) == 0;
}
