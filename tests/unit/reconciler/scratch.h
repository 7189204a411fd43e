/* scratch.h - a tree of files below a root of the test's own. */
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

static char scratch[64];
static int root = -1;

static int scratch_start(void **state)
{
    (void)state;
    (void)snprintf(scratch, sizeof(scratch), "/tmp/scratch-test-XXXXXX");
    return !mkdtemp(scratch) || path_open_root(scratch, &root) < 0 ? -1 : 0;
}

static int scratch_stop(void **state)
{
    char command[128];

    (void)state;
    fd_close(root);
    (void)snprintf(command, sizeof(command), "rm -rf %s", scratch);
    return system(command);
}

static inline const char *scratch_path(const char *path)
{
    static char full[2][1024];
    static unsigned turn;

    turn = (turn + 1) % 2;
    (void)snprintf(full[turn], sizeof(full[turn]), "%s%s", scratch, path);
    return full[turn];
}

static inline void scratch_make(const char *path)
{
    assert_int_equal(path_make_directories(root, path, 0700), 0);
}

static inline void scratch_write(const char *path, const char *text)
{
    cleanup(fd_closep) int fd =
        open(scratch_path(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static inline void scratch_remove(const char *path)
{
    assert_int_equal(remove(scratch_path(path)), 0);
}

static inline bool scratch_has(const char *path)
{
    struct stat st;

    return lstat(scratch_path(path), &st) == 0;
}
