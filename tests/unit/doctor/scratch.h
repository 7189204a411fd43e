/* scratch.h - a root directory for one test, gone with it. */
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/config.h"
#include "lib/path.h"
#include "tests/unit/doctor/findings.h"

struct scratch {
    char name[64];
    int root;
    struct config config;
    struct written written;
};

static inline int scratch_set_up(void **state)
{
    struct scratch *scratch = calloc(1, sizeof(*scratch));

    (void)snprintf(scratch->name, sizeof(scratch->name), "/tmp/doctor-test-XXXXXX");
    assert_non_null(mkdtemp(scratch->name));
    assert_int_equal(path_open_root(scratch->name, &scratch->root), 0);
    config_defaults(&scratch->config);
    written_begin(&scratch->written);
    *state = scratch;
    return 0;
}

static inline int scratch_remove(const char *path, const struct stat *status, int type,
                                 struct FTW *place)
{
    (void)status;
    (void)type;
    (void)place;
    return remove(path);
}

static inline int scratch_tear_down(void **state)
{
    struct scratch *scratch = *state;

    written_done(&scratch->written);
    (void)close(scratch->root);
    (void)nftw(scratch->name, scratch_remove, 16, FTW_DEPTH | FTW_PHYS);
    free(scratch);
    return 0;
}

static inline void scratch_make(const struct scratch *scratch, const char *directory, mode_t mode)
{
    char path[512];

    assert_int_equal(path_make_directories(scratch->root, directory, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s%s", scratch->name, directory);
    assert_int_equal(chmod(path, mode), 0);
}

/* Makes its directories too. */
static inline void scratch_write(const struct scratch *scratch, const char *file, const char *text)
{
    char path[512], directory[512];
    FILE *stream;

    (void)snprintf(directory, sizeof(directory), "%s", file);
    *strrchr(directory, '/') = '\0';
    if (directory[0])
        assert_int_equal(path_make_directories(scratch->root, directory, 0755), 0);
    (void)snprintf(path, sizeof(path), "%s%s", scratch->name, file);
    stream = fopen(path, "we");
    assert_non_null(stream);
    assert_true(fputs(text, stream) >= 0);
    assert_int_equal(fclose(stream), 0);
}

static inline void scratch_link(const struct scratch *scratch, const char *target, const char *file)
{
    char path[512];

    (void)snprintf(path, sizeof(path), "%s%s", scratch->name, file);
    assert_int_equal(symlink(target, path), 0);
}

#define SCRATCH_TEST(function)                                                                     \
    cmocka_unit_test_setup_teardown(function, scratch_set_up, scratch_tear_down)
