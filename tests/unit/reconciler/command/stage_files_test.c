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
#include "reconciler/command/staging.h"
#include "tests/unit/mounts.h"
#include "tests/unit/scratch.h"

struct fixture {
    char directory[SCRATCH_BYTES];
    struct stage_place place;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));

    assert_non_null(fixture);
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    fixture->place.volumes = "/run/volumes";
    fixture->place.workshop = "/run/workshop";
    assert_int_equal(path_open_root(fixture->directory, &fixture->place.root), 0);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;

    fd_close(fixture->place.root);
    assert_int_equal(scratch_directory_remove(fixture->directory), 0);
    free(fixture);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

static int put(struct fixture *fixture, const char *name, const char *text)
{
    struct error error = {0};
    const struct stage_content content = {text, strlen(text), NULL};
    int r = stage_files_put(&fixture->place, name, &content, &error);

    assert_int_equal(r == STAGE_DONE || r == STAGE_UNCHANGED, error.text[0] == '\0');
    return r;
}

static int take(struct fixture *fixture, const char *name)
{
    struct error error = {0};

    return stage_files_take(&fixture->place, name, &error);
}

static void make(const struct fixture *fixture, const char *path, bool directory)
{
    const char *relative = path + 1;

    if (directory)
        assert_int_equal(mkdirat(fixture->place.root, relative, 0700), 0);
    else
        assert_int_equal(mknodat(fixture->place.root, relative, S_IFREG | 0600, 0), 0);
}

static void expect_text(const struct fixture *fixture, const char *path, const char *text)
{
    cleanup(buffer_done) struct buffer now = BUFFER_INIT(1000);
    struct error error = {0};
    int r = path_read_in_root(fixture->place.root, path, &now, &error);

    assert_int_equal(r, text ? PATH_OK : PATH_ABSENT);
    if (text)
        assert_string_equal(buffer_text(&now), text);
}

static unsigned count(const struct fixture *fixture, const char *path)
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

static void it_comes_and_goes(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(take(fixture, "a"), STAGE_UNCHANGED); /* not even its root is there */
    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    expect_text(fixture, "/run/volumes/a/mountInfo.json", "one");
    assert_int_equal(put(fixture, "a", "one"), STAGE_UNCHANGED);
    assert_int_equal(count(fixture, "/run/workshop"), 0);
    assert_int_equal(take(fixture, "a"), STAGE_DONE);
    assert_int_equal(count(fixture, "/run/volumes"), 0);
    assert_int_equal(take(fixture, "a"), STAGE_UNCHANGED);
    assert_int_equal(stage_files_sweep(&fixture->place, NULL), 0);
    assert_int_equal(count(fixture, "/run/workshop"), 0);
}

/* By that its grace time begins anew (observe/mount_info.h). */
static void staging_again_touches_the_files(void **state)
{
    static const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct fixture *fixture = *state;
    struct stat status;

    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    assert_int_equal(utimensat(fixture->place.root, "run/volumes/a", long_ago, 0), 0);
    assert_int_equal(put(fixture, "a", "one"), STAGE_UNCHANGED);
    assert_int_equal(fstatat(fixture->place.root, "run/volumes/a", &status, 0), 0);
    assert_int_not_equal(status.st_mtim.tv_sec, 1000);
}

static void the_rest_of_a_directory_stays(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    make(fixture, "/run/volumes/a/sandbox", false);
    assert_int_equal(put(fixture, "a", "two"), STAGE_DONE);
    expect_text(fixture, "/run/volumes/a/mountInfo.json", "two");
    assert_int_equal(count(fixture, "/run/volumes/a"), 2);
    assert_int_equal(put(fixture, "a", "tw"), STAGE_DONE); /* the beginning of it is not it */
    expect_text(fixture, "/run/volumes/a/mountInfo.json", "tw");
}

static void an_empty_file_stands_beside(void **state)
{
    struct fixture *fixture = *state;
    const struct stage_content content = {"one", 3, "sandbox"};
    struct error error;

    assert_int_equal(stage_files_put(&fixture->place, "a", &content, &error), STAGE_DONE);
    expect_text(fixture, "/run/volumes/a/sandbox", "");
    assert_int_equal(stage_files_put(&fixture->place, "a", &content, &error), STAGE_UNCHANGED);
    assert_int_equal(put(fixture, "b", "one"), STAGE_DONE);
    assert_int_equal(stage_files_put(&fixture->place, "b", &content, &error), STAGE_DONE);
    expect_text(fixture, "/run/volumes/b/sandbox", "");
    expect_text(fixture, "/run/volumes/b/mountInfo.json", "one");
}

static void foreign_files_in_the_way_stay(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    make(fixture, "/run/volumes/file", false);
    assert_int_equal(put(fixture, "file", "one"), STAGE_IN_THE_WAY);
    expect_text(fixture, "/run/volumes/file", "");
    make(fixture, "/elsewhere", true);
    assert_int_equal(symlinkat("/elsewhere", fixture->place.root, "run/volumes/link"), 0);
    assert_int_equal(put(fixture, "link", "one"), STAGE_IN_THE_WAY);
    assert_int_equal(count(fixture, "/elsewhere"), 0);
    make(fixture, "/run/volumes/b", true);
    make(fixture, "/run/volumes/b/mountInfo.json", true);
    assert_int_equal(put(fixture, "b", "one"), STAGE_IN_THE_WAY);
    assert_int_equal(count(fixture, "/run/workshop"), 0);

    /* But all of it can be taken away; of a link the link. */
    assert_int_equal(take(fixture, "file"), STAGE_DONE);
    assert_int_equal(take(fixture, "link"), STAGE_DONE);
    assert_int_equal(take(fixture, "b"), STAGE_DONE);
    assert_int_equal(stage_files_sweep(&fixture->place, NULL), 0);
    assert_int_equal(count(fixture, "/"), 2);
}

/* A daemon was killed in the midst of something. */
static void leftovers_hinder_nobody(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    make(fixture, "/run/workshop/new", true);
    make(fixture, "/run/workshop/new/mountInfo.json", false);
    assert_int_equal(put(fixture, "b", "two"), STAGE_DONE);
    expect_text(fixture, "/run/volumes/b/mountInfo.json", "two");
    assert_int_equal(count(fixture, "/run/workshop"), 0);
    make(fixture, "/run/workshop/new", false);
    assert_int_equal(put(fixture, "b", "three"), STAGE_DONE);
    expect_text(fixture, "/run/volumes/b/mountInfo.json", "three");
    assert_int_equal(count(fixture, "/run/workshop"), 0);

    make(fixture, "/run/workshop/b", true);
    make(fixture, "/run/workshop/b/deeper", true);
    make(fixture, "/run/workshop/b/deeper/file", false);
    make(fixture, "/run/workshop/c", false);
    assert_int_equal(take(fixture, "b"), STAGE_DONE);
    expect_text(fixture, "/run/workshop/b/mountInfo.json", "three");
    assert_int_equal(stage_files_sweep(&fixture->place, NULL), 0);
    assert_int_equal(count(fixture, "/run/workshop"), 0);
}

/* Several go before any of them is removed. */
static void a_directory_taken_away_keeps_its_name(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(stage_files_sync(&fixture->place), 0); /* there is no root yet */
    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    assert_int_equal(put(fixture, "b", "two"), STAGE_DONE);
    assert_int_equal(stage_files_sync(&fixture->place), 0);
    assert_int_equal(take(fixture, "a"), STAGE_DONE);
    assert_int_equal(take(fixture, "b"), STAGE_DONE);
    assert_int_equal(put(fixture, "a", "again"), STAGE_DONE);
    assert_int_equal(take(fixture, "a"), STAGE_DONE);
    expect_text(fixture, "/run/workshop/a/mountInfo.json", "again");
    expect_text(fixture, "/run/workshop/b/mountInfo.json", "two");
    assert_int_equal(count(fixture, "/run/volumes"), 0);
    assert_int_equal(stage_files_sweep(&fixture->place, NULL), 0);
    assert_int_equal(count(fixture, "/run/workshop"), 0);
}

/* Files of whoever has mounted them there, as a volume's own directory of another pod. */
static void mount_inside(struct fixture *fixture, struct error *error)
{
    make(fixture, "/precious", true);
    make(fixture, "/precious/file", false);
    make(fixture, "/run/volumes/a/inside", true);
    child_mounts(fixture->directory, "/precious", "/run/volumes/a/inside");
    child_expects(path_open_root(fixture->directory, &fixture->place.root) == 0);
    child_expects(stage_files_take(&fixture->place, "a", error) < 0);
}

static void a_mount_inside_keeps_all_of_it(void **state)
{
    struct fixture *fixture = *state;
    struct error error = {0};

    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    if (child_begins()) {
        mount_inside(fixture, &error);
        child_expects(strcmp(error.text, "/run/volumes/a/inside: something is mounted there: "
                                         "unmount it first") == 0);
        child_expects(stage_files_sweep(&fixture->place, &error) == 0);
        child_ends();
    }
    child_went_well();
    expect_text(fixture, "/precious/file", "");
    expect_text(fixture, "/run/volumes/a/mountInfo.json", "one");
    assert_int_equal(take(fixture, "a"), STAGE_DONE);
    assert_int_equal(stage_files_sweep(&fixture->place, NULL), 0);
    assert_int_equal(count(fixture, "/run/workshop"), 0);
}

/* It came there after the directory had been taken. */
static void a_mount_in_the_workshop_is_not_emptied(void **state)
{
    struct fixture *fixture = *state;
    struct error error = {0};

    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    make(fixture, "/precious", true);
    make(fixture, "/precious/file", false);
    make(fixture, "/run/workshop/b", true);
    make(fixture, "/run/workshop/b/inside", true);
    make(fixture, "/run/workshop/c", false);
    if (child_begins()) {
        child_mounts(fixture->directory, "/precious", "/run/workshop/b/inside");
        child_expects(path_open_root(fixture->directory, &fixture->place.root) == 0);
        child_expects(stage_files_sweep(&fixture->place, &error) < 0);
        child_expects(strncmp(error.text, "b/inside: something is mounted there", 30) == 0);
        child_ends();
    }
    child_went_well();
    expect_text(fixture, "/precious/file", "");
    assert_int_equal(count(fixture, "/run/workshop"), 1); /* "c" went all the same */
}

/* fsync(2) of this program: what it was called for since the last look. */
static ino_t synced[16];
static unsigned syncs;

int fsync(int fd)
{
    struct stat status;

    assert_int_equal(fstat(fd, &status), 0);
    synced[syncs++ % array_length(synced)] = status.st_ino;
    return 0;
}

static bool was_synced(const struct fixture *fixture, const char *path)
{
    struct stat status;

    assert_int_equal(fstatat(fixture->place.root, path + 1, &status, 0), 0);
    for (unsigned i = 0; i < syncs && i < array_length(synced); i++)
        if (synced[i] == status.st_ino)
            return true;
    return false;
}

/* "Unchanged" is a promise like any other: who wrote it may not have synced it. */
static void files_already_there_are_synced(void **state)
{
    struct fixture *fixture = *state;

    assert_int_equal(put(fixture, "a", "one"), STAGE_DONE);
    syncs = 0;
    assert_int_equal(put(fixture, "a", "one"), STAGE_UNCHANGED);
    assert_true(was_synced(fixture, "/run/volumes/a/mountInfo.json"));
    assert_true(was_synced(fixture, "/run/volumes/a"));
    syncs = 0;
    assert_int_equal(stage_files_sync(&fixture->place), 0);
    assert_true(was_synced(fixture, "/run/volumes"));
}

static void a_failed_creation_is_an_error(void **state)
{
    struct fixture *fixture = *state;

    make(fixture, "/run", false);
    assert_int_equal(put(fixture, "a", "one"), -ENOTDIR);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_comes_and_goes),
        TEST(staging_again_touches_the_files),
        TEST(the_rest_of_a_directory_stays),
        TEST(an_empty_file_stands_beside),
        TEST(foreign_files_in_the_way_stay),
        TEST(leftovers_hinder_nobody),
        TEST(a_directory_taken_away_keeps_its_name),
        TEST(a_mount_inside_keeps_all_of_it),
        TEST(a_mount_in_the_workshop_is_not_emptied),
        TEST(files_already_there_are_synced),
        TEST(a_failed_creation_is_an_error),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
