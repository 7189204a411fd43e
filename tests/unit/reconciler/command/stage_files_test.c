/* SPDX-License-Identifier: Apache-2.0 */
/* stage_files_test.c - directories that come and go as a whole. */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/path.h"
#include "reconciler/command/clients.h"
#include "tests/unit/mounts.h"
#include "tests/unit/scratch.h"

static struct fixture {
    char directory[SCRATCH_BYTES];
    struct stage_place place;
} * fixture;

static int set_up(void **state)
{
    fixture = calloc(1, sizeof(*fixture));
    assert_non_null(fixture);
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    fixture->place.volumes = "/run/volumes";
    (void)snprintf(fixture->place.staging_dir, sizeof(fixture->place.staging_dir), "/run/workshop");
    assert_int_equal(path_open_root(fixture->directory, &fixture->place.root), 0);
    return 0;
}

static int tear_down(void **state)
{
    fd_close(fixture->place.root);
    assert_int_equal(scratch_directory_remove(fixture->directory), 0);
    free(fixture);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static int put(const char *name, const char *text)
{
    struct error error = {0};
    const struct stage_content content = {text, strlen(text), NULL};
    int r = stage_files_put(&fixture->place, name, &content, &error);

    assert_int_equal(r == STAGE_DONE || r == STAGE_UNCHANGED, error.text[0] == '\0');
    return r;
}

static int take(const char *name)
{
    struct error error = {0};

    return stage_files_take(&fixture->place, name, &error);
}

static void make(const char *path, bool directory)
{
    const char *relative = path + 1;

    if (directory)
        assert_int_equal(mkdirat(fixture->place.root, relative, 0700), 0);
    else
        assert_int_equal(mknodat(fixture->place.root, relative, S_IFREG | 0600, 0), 0);
}

static void expect_text(const char *path, const char *text)
{
    cleanup(buffer_done) struct buffer now = BUFFER_INIT(1000);
    struct error error = {0};
    int r = path_read_in_root(fixture->place.root, path, &now, &error);

    assert_int_equal(r, text ? PATH_OK : PATH_ABSENT);
    if (text)
        assert_string_equal(buffer_text(&now), text);
}

static unsigned count(const char *path)
{
    cleanup(dir_closep) DIR *names = NULL;
    const struct dirent *name;
    unsigned found = 0;
    int fd = -1;

    assert_int_equal(path_open_directory_in_root(fixture->place.root, path, &fd), 0);
    names = fdopendir(fd);
    while ((name = readdir(names)))
        found += name->d_name[0] != '.';
    return found;
}

/* By that its grace time begins anew (observe/mount_info.h). */
static void staging_again_touches_the_files(void **state)
{
    static const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct stat status;

    assert_int_equal(put("a", "one"), STAGE_DONE);
    assert_int_equal(utimensat(fixture->place.root, "run/volumes/a", long_ago, 0), 0);
    assert_int_equal(put("a", "one"), STAGE_UNCHANGED);
    assert_int_equal(fstatat(fixture->place.root, "run/volumes/a", &status, 0), 0);
    assert_int_not_equal(status.st_mtim.tv_sec, 1000);
}

/* Several go before any of them is removed. */
static void a_directory_taken_away_keeps_its_name(void **state)
{
    assert_int_equal(stage_files_sync(&fixture->place), 0); /* there is no root yet */
    assert_int_equal(put("a", "one"), STAGE_DONE);
    assert_int_equal(put("b", "two"), STAGE_DONE);
    assert_int_equal(stage_files_sync(&fixture->place), 0);
    assert_int_equal(take("a"), STAGE_DONE);
    assert_int_equal(take("b"), STAGE_DONE);
    assert_int_equal(put("a", "again"), STAGE_DONE);
    assert_int_equal(take("a"), STAGE_DONE);
    expect_text("/run/workshop/a/mountInfo.json", "again");
    expect_text("/run/workshop/b/mountInfo.json", "two");
    assert_int_equal(count("/run/volumes"), 0);
    make("/run/workshop/a/deeper", true); /* and whatever else lies there */
    make("/run/workshop/a/deeper/file", false);
    make("/run/workshop/c", false);
    assert_int_equal(stage_files_sweep(&fixture->place, NULL), 0);
    assert_int_equal(count("/run/workshop"), 0);
    make("/run/workshop/new", false);
    assert_int_equal(put("b", "three"), STAGE_DONE);
    expect_text("/run/volumes/b/mountInfo.json", "three");
    assert_int_equal(count("/run/workshop"), 0);
}

/* It came there after the directory had been taken. */
static void a_mount_in_the_workshop_is_not_emptied(void **state)
{
    struct error error = {0};

    assert_int_equal(put("a", "one"), STAGE_DONE);
    make("/precious", true);
    make("/precious/file", false);
    make("/run/workshop/b", true);
    make("/run/workshop/b/inside", true);
    make("/run/workshop/c", false);
    if (child_begins()) {
        child_mounts(fixture->directory, "/precious", "/run/workshop/b/inside");
        child_expects(path_open_root(fixture->directory, &fixture->place.root) == 0);
        child_expects(stage_files_sweep(&fixture->place, &error) < 0);
        child_expects(strncmp(error.text, "b/inside: something is mounted there", 30) == 0);
        child_ends();
    }
    child_went_well();
    expect_text("/precious/file", "");
    assert_int_equal(count("/run/workshop"), 1); /* "c" went all the same */
}

static void a_failed_creation_is_an_error(void **state)
{
    make("/run", false);
    assert_int_equal(put("a", "one"), -ENOTDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(staging_again_touches_the_files),
        TEST(a_directory_taken_away_keeps_its_name),
        TEST(a_mount_in_the_workshop_is_not_emptied),
        TEST(a_failed_creation_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
