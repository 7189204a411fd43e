/* SPDX-License-Identifier: Apache-2.0 */
/* removal_test.c - what is removed, and what has to stay. */
#include "tests/unit/tree.h"

#include <dirent.h>
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lib/directory.h"
#include "tests/unit/mounts.h"

#define LEVELS 2

static int directory = -1;

/* Each listing also has a name that cannot be found, as on a damaged file system. */
static bool has_ghost;

/* This stands before the C library's. */
struct dirent *readdir(DIR *names)
{
    static struct dirent ghost = {.d_name = "ghost"};
    static bool is_shown;
    static struct dirent *(*next)(DIR * names);

    if (!next)
        *(void **)&next = dlsym(RTLD_NEXT, sizeof(off_t) == 8 ? "readdir64" : "readdir");
    is_shown = has_ghost && !is_shown;
    return is_shown ? &ghost : next(names);
}

static int start(void **state)
{
    if (tree_start(state) < 0)
        return -1;
    tree_make("/top/sub");
    tree_write("/top/file", "one");
    tree_write("/top/sub/file", "two");
    return path_open_directory_in_root(root, "/", &directory);
}

static int stop(void **state)
{
    fd_close(directory);
    return tree_stop(state);
}

static void expect_refusal(const char *name, unsigned levels, const char *text)
{
    struct error error = {0};

    assert_true(removal_check(directory, name, levels, NULL) < 0);
    assert_true(removal_run(directory, name, levels, &error) < 0);
    if (strncmp(error.text, text, strlen(text)) != 0)
        fail_msg("%s", error.text);
    assert_true(tree_has("/top/file") && tree_has("/top/sub/file"));
}

static void files_and_their_directories_go(void **state)
{
    assert_int_equal(removal_check(directory, "top", LEVELS, NULL), 0);
    assert_true(tree_has("/top/sub/file"));
    assert_int_equal(removal_run(directory, "top", LEVELS, NULL), 0);
    assert_false(tree_has("/top"));
    assert_int_equal(removal_run(directory, "top", LEVELS, NULL), 0);
}

static void nothing_goes_where_something_has_to_stay(void **state)
{
    expect_refusal("top", 1, "top/sub: a directory where only files belong: remove it by hand");
    expect_refusal("top", 0, "top: a directory");
    assert_int_equal(symlink("file", tree_path("/top/sub/link")), 0);
    expect_refusal("top", LEVELS, "top/sub/link: not a regular file: remove it by hand");
    tree_remove("/top/sub/link");
    assert_int_equal(mkfifo(tree_path("/top/sub/pipe"), 0600), 0);
    expect_refusal("top", LEVELS, "top/sub/pipe: not a regular file");
}

static void a_name_that_is_a_link_goes_alone(void **state)
{
    assert_int_equal(symlink("top", tree_path("/link")), 0);
    assert_int_equal(removal_run(directory, "link", LEVELS, NULL), 0);
    assert_false(tree_has("/link"));
    assert_true(tree_has("/top/sub/file"));
}

static void mounts_stay(void **state)
{
    static const char *const from[] = {"/other", "/other/file"};
    static const char *const to[] = {"/top/sub/deep", "/top/sub/file"};
    static const char *const texts[] = {"top/sub/deep: something is mounted there: unmount it",
                                        "top/sub/file: something is mounted there: unmount it"};

    tree_make("/other");
    tree_make("/top/sub/deep");
    tree_write("/other/file", "three");
    for (unsigned i = 0; i < array_length(from); i++) {
        if (child_begins()) {
            struct error error = {0};

            child_mounts(scratch, from[i], to[i]);
            child_expects(path_open_root(scratch, &root) == 0 &&
                          path_open_directory_in_root(root, "/", &directory) == 0);
            child_expects(removal_run(directory, "top", LEVELS + 1, &error) < 0);
            child_expects(strncmp(error.text, texts[i], strlen(texts[i])) == 0);
            child_ends();
        }
        child_went_well();
        assert_true(tree_has("/other/file") && tree_has("/top/file") && tree_has("/top/sub/file"));
    }
}

static void a_name_that_stays_keeps_no_other(void **state)
{
    struct error error = {0};
    cleanup(fd_closep) int top = -1;

    assert_int_equal(path_open_directory_in_root(root, "/top", &top), 0);
    assert_int_equal(mkfifo(tree_path("/top/pipe"), 0600), 0);
    assert_true(removal_empty(top, LEVELS, &error) < 0);
    assert_string_equal(error.text,
                        "pipe: not a regular file: remove it by hand if nobody needs it");
    assert_false(tree_has("/top/file") || tree_has("/top/sub"));
    assert_true(tree_has("/top/pipe"));
}

static void a_name_that_cannot_be_found_is_not_looked_for_for_ever(void **state)
{
    int r;

    (void)alarm(60);
    has_ghost = true;
    r = removal_run(directory, "top", LEVELS, NULL);
    has_ghost = false;
    (void)alarm(0);
    assert_int_equal(r, -E2BIG);
    assert_int_equal(removal_run(directory, "top", LEVELS, NULL), 0);
}

static void a_tree_has_a_bound(void **state)
{
    for (unsigned i = 0; i < REMOVAL_NAMES; i++) {
        char path[40];

        (void)snprintf(path, sizeof(path), "/top/sub/%u", i);
        tree_write(path, "");
    }
    assert_int_equal(removal_run(directory, "top", LEVELS, NULL), -E2BIG);
    assert_true(tree_has("/top/file") && tree_has("/top/sub/0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(files_and_their_directories_go, start, stop),
        cmocka_unit_test_setup_teardown(nothing_goes_where_something_has_to_stay, start, stop),
        cmocka_unit_test_setup_teardown(a_name_that_is_a_link_goes_alone, start, stop),
        cmocka_unit_test_setup_teardown(mounts_stay, start, stop),
        cmocka_unit_test_setup_teardown(a_name_that_stays_keeps_no_other, start, stop),
        cmocka_unit_test_setup_teardown(a_name_that_cannot_be_found_is_not_looked_for_for_ever,
                                        start, stop),
        cmocka_unit_test_setup_teardown(a_tree_has_a_bound, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
