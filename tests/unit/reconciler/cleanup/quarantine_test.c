/* SPDX-License-Identifier: Apache-2.0 */
/* quarantine_test.c - directories that are moved away and come back. */
#include "tests/unit/tree.h"

#include "observe/observe.h"
#include "reconciler/cleanup/cleanup_pass.h"
#include "tests/unit/mounts.h"

#define VOLUMES "/run/shared/direct-volumes"
#define TRASH   "/run/shared/.trash"
#define KEY     "a2V5"
#define ENTRY   VOLUMES "/" KEY
#define MOVED   TRASH "/1-1/" KEY

static const char *const watched[] = {VOLUMES, "/run/crust", NULL};
static struct quarantine quarantine;
static char fingerprint[SHA256_HEX_BYTES];
static struct quarantine_item item;

static int open_at(const char *trash, struct error *error)
{
    return quarantine_open(root, VOLUMES, trash, watched, &quarantine, error);
}

static void take_fingerprint(void)
{
    cleanup(fd_closep) int fd = open(tree_path(ENTRY), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(fingerprint_directory(fd, fingerprint, NULL), FINGERPRINT_TAKEN);
}

static int start(void **state)
{
    quarantine = (struct quarantine)QUARANTINE_INIT;
    item = (struct quarantine_item){.key = KEY, .name = "1-1", .fingerprint = fingerprint};
    if (tree_start(state) < 0)
        return -1;
    tree_make(ENTRY);
    tree_write(ENTRY "/mountInfo.json", "{\"device\":\"/dev/a\"}");
    tree_write(ENTRY "/sandbox-1", "");
    take_fingerprint();
    assert_int_equal(open_at(TRASH, NULL), QUARANTINE_READY);
    return 0;
}

static int stop(void **state)
{
    quarantine_done(&quarantine);
    return tree_stop(state);
}

static struct quarantine_state look(void)
{
    struct quarantine_state now;

    assert_int_equal(quarantine_observe(&quarantine, &item, &now), 0);
    return now;
}

/* ---- there and back -------------------------------------------------------------------------- */

/* Staged anew between the look and the move: another directory went. */
static void another_directory_is_a_change(void **state)
{
    assert_int_equal(rename(tree_path(ENTRY), tree_path("/aside")), 0);
    tree_make(ENTRY);
    tree_write(ENTRY "/mountInfo.json", "{\"device\":\"/dev/a\"}");
    tree_write(ENTRY "/sandbox-1", "");
    assert_int_equal(quarantine_take(&quarantine, &item), QUARANTINE_DONE);
    assert_false(look().unchanged);
    assert_int_equal(quarantine_put_back(&quarantine, &item), QUARANTINE_DONE);
    assert_true(tree_has(ENTRY "/mountInfo.json"));
}

static void a_link_in_its_place_is_put_back_unfollowed(void **state)
{
    assert_int_equal(rename(tree_path(ENTRY), tree_path("/aside")), 0);
    assert_int_equal(symlink("../../../aside", tree_path(ENTRY)), 0);
    assert_int_equal(quarantine_take(&quarantine, &item), QUARANTINE_DONE);
    assert_true(look().in_trash && !look().unchanged);
    assert_true(tree_has("/aside/mountInfo.json"));
    assert_int_equal(quarantine_put_back(&quarantine, &item), QUARANTINE_DONE);
    assert_true(tree_has(ENTRY));
}

static void deleting_may_be_repeated(void **state)
{
    assert_int_equal(quarantine_take(&quarantine, &item), QUARANTINE_DONE);
    tree_remove(MOVED "/sandbox-1"); /* killed on its way */
    assert_int_equal(quarantine_delete(&quarantine, &item, NULL), QUARANTINE_DONE);
    assert_false(tree_has(TRASH "/1-1"));
    assert_true(tree_has(TRASH));
    assert_int_equal(quarantine_delete(&quarantine, &item, NULL), QUARANTINE_DONE);
}

static void a_file_goes_and_comes_back(void **state)
{
    cleanup(fd_closep) int fd = open(tree_path(ENTRY), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(fingerprint_file(fd, "sandbox-1", fingerprint), FINGERPRINT_TAKEN);
    item.file = "sandbox-1";
    assert_int_equal(quarantine_take(&quarantine, &item), QUARANTINE_DONE);
    assert_true(tree_has(ENTRY "/mountInfo.json") && !tree_has(ENTRY "/sandbox-1"));
    assert_true(look().in_trash && look().unchanged && !look().in_place);
    assert_int_equal(quarantine_put_back(&quarantine, &item), QUARANTINE_DONE);
    assert_true(tree_has(ENTRY "/sandbox-1"));
    assert_int_equal(quarantine_take(&quarantine, &item), QUARANTINE_DONE);
    assert_int_equal(rename(tree_path(ENTRY), tree_path("/aside")), 0);
    assert_false(look().in_place);
    assert_int_equal(quarantine_put_back(&quarantine, &item), QUARANTINE_TAKEN);
    assert_int_equal(quarantine_delete(&quarantine, &item, NULL), QUARANTINE_DONE);
    assert_false(tree_has(TRASH "/1-1"));
}

/* ---- the trash ------------------------------------------------------------------------------- */

static void expect_unfit(const char *trash, const char *text)
{
    struct quarantine unused = quarantine;
    struct error error = {0};

    assert_int_equal(open_at(trash, &error), QUARANTINE_UNFIT);
    if (!strstr(error.text, text))
        fail_msg("%s: %s", trash, error.text);
    assert_memory_equal(&unused, &quarantine, sizeof(unused));
}

static void a_trash_in_a_watched_directory_is_refused(void **state)
{
    tree_make("/run/crust");
    expect_unfit(VOLUMES, "which is watched");
    expect_unfit(VOLUMES "/.trash/deeper", "which is watched");
    expect_unfit("/run/crust/.trash", "which is watched");
    assert_int_equal(symlink("direct-volumes", tree_path("/run/shared/link")), 0);
    expect_unfit("/run/shared/link/.trash", "which is watched");
}

static void a_trash_of_others_is_refused(void **state)
{
    tree_make("/open");
    assert_int_equal(chmod(tree_path("/open"), 0777), 0);
    expect_unfit("/open", "writable by others");
    tree_write("/file", "");
    expect_unfit("/file/trash", "cannot use the trash");
    if (geteuid() != 0)
        return;
    tree_make("/foreign");
    assert_int_equal(chown(tree_path("/foreign"), 1000, 1000), 0);
    expect_unfit("/foreign", "belongs to uid 1000");
}

static void a_trash_on_another_mount_is_refused(void **state)
{
    tree_make("/elsewhere");
    if (child_begins()) {
        struct error error = {0};

        child_mounts(scratch, "/run/shared", "/elsewhere");
        child_expects(path_open_root(scratch, &root) == 0);
        /* The same file system, and not the same mount: rename(2) gives EXDEV. */
        child_expects(open_at("/elsewhere/.trash", &error) == QUARANTINE_UNFIT);
        child_expects(strstr(error.text, "same mount"));
        child_ends();
    }
    child_went_well();
}

static void mounts_in_the_trash_stay(void **state)
{
    tree_make("/precious");
    tree_write("/precious/file", "");
    assert_int_equal(quarantine_take(&quarantine, &item), QUARANTINE_DONE);
    if (child_begins()) {
        struct error error = {0};

        child_mounts(scratch, "/precious/file", MOVED "/mountInfo.json");
        child_expects(path_open_root(scratch, &root) == 0);
        child_expects(open_at(TRASH, NULL) == QUARANTINE_READY);
        child_expects(quarantine_delete(&quarantine, &item, &error) < 0);
        child_expects(strstr(error.text, KEY "/mountInfo.json: something is mounted there"));
        child_ends();
    }
    child_went_well();
    assert_true(tree_has("/precious/file") && tree_has(MOVED "/sandbox-1"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(another_directory_is_a_change),
        TEST(a_link_in_its_place_is_put_back_unfollowed),
        TEST(deleting_may_be_repeated),
        TEST(a_file_goes_and_comes_back),
        TEST(a_trash_in_a_watched_directory_is_refused),
        TEST(a_trash_of_others_is_refused),
        TEST(a_trash_on_another_mount_is_refused),
        TEST(mounts_in_the_trash_stay),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
