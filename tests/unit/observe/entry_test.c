/* SPDX-License-Identifier: Apache-2.0 */
/* entry_test.c - how much of a metadata directory is read, and what is remarked of the rest. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "observe/observe.h"
#include "tests/unit/scratch.h"

/* base64url of "/v" */
#define NAME "L3Y="
#define GOOD "{\"device\":\"/dev/loop0\",\"fstype\":\"ext4\"}"

static char scratch[SCRATCH_BYTES];
static int directory;
static struct observed_entry entry;

static int start(void **state)
{
    if (scratch_directory_make(scratch) < 0)
        return -1;
    directory = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory < 0 || mkdirat(directory, NAME, 0700) < 0 ? -1 : 0;
}

static int stop(void **state)
{
    observed_entry_done(&entry);
    fd_close(directory);
    return scratch_directory_remove(scratch);
}

static void write_file(const char *path, const char *text)
{
    cleanup(fd_closep) int fd =
        openat(directory, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void observe(void)
{
    observed_entry_done(&entry);
    assert_int_equal(observe_entry(directory, NAME, &entry), OBSERVED);
}

/* The problem names the file and says what is wrong, and nothing of mountInfo.json gets through. */
static void expect_problem(const char *file, const char *what, bool try_again)
{
    observe();
    assert_non_null(entry.problem);
    if (!strstr(entry.problem, file) || !strstr(entry.problem, what))
        fail_msg("\"%s\" says neither \"%s\" nor \"%s\"", entry.problem, file, what);
    assert_int_equal(entry.try_again, try_again);
    assert_null(entry.device);
    assert_null(entry.metadata);
    assert_string_equal(entry.mount_info_sha256, "");
    assert_string_equal(entry.target_path, "/v");
}

/* The remark names the file and says why it was ignored, and the rest of the entry stands. */
static void expect_remark(const char *file, const char *why)
{
    observe();
    assert_null(entry.problem);
    assert_false(entry.try_again);
    assert_non_null(entry.remark);
    if (!strstr(entry.remark, file) || !strstr(entry.remark, why))
        fail_msg("\"%s\" says neither \"%s\" nor \"%s\"", entry.remark, file, why);
    assert_string_equal(entry.device, "/dev/loop0");
    assert_int_equal(strlen(entry.mount_info_sha256), 64);
    assert_int_equal(entry.sandboxes, 1);
    assert_string_equal(entry.sandbox[0], "good");
}

static void the_remark_does_not_depend_on_the_order_of_names(void **state)
{
    write_file(NAME "/mountInfo.json", GOOD);
    write_file(NAME "/good", "");
    write_file(NAME "/.b", "");
    write_file(NAME "/.a", "");
    write_file(NAME "/.c", "");
    expect_remark(".a: ", "and 2 more");
}

static void bounds_sandboxes_and_names(void **state)
{
    char path[64];

    write_file(NAME "/mountInfo.json", GOOD);
    for (unsigned i = 0; i < OBSERVE_SANDBOXES; i++) {
        (void)snprintf(path, sizeof(path), NAME "/sandbox-%02u", i);
        write_file(path, "");
    }
    observe();
    assert_null(entry.problem);
    assert_int_equal(entry.sandboxes, OBSERVE_SANDBOXES);
    write_file(NAME "/sandbox-more", "");
    expect_problem("", "more than 16", false);
}

static void bounds_a_flood(void **state)
{
    char path[64];

    write_file(NAME "/mountInfo.json", GOOD);
    for (unsigned i = 0; i < OBSERVE_ENTRY_NAMES - 2; i++) {
        (void)snprintf(path, sizeof(path), NAME "/.flood-%02u", i);
        write_file(path, "");
    }
    write_file(NAME "/good", "");
    expect_remark(".flood-00", "and 61 more");
    write_file(NAME "/.flood-more", "");
    expect_problem("", "more than 64 names", false);
}

static void knows_sandbox_ids(void **state)
{
    assert_true(observe_is_sandbox_id("a"));
    assert_true(observe_is_sandbox_id("0123456789abcdef_.-Z"));
    assert_false(observe_is_sandbox_id(""));
    assert_false(observe_is_sandbox_id(".hidden"));
    assert_false(observe_is_sandbox_id("-option"));
    assert_false(observe_is_sandbox_id("a/b"));
    assert_false(observe_is_sandbox_id(".."));
    assert_false(observe_is_sandbox_id("a b"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_remark_does_not_depend_on_the_order_of_names, start,
                                        stop),
        cmocka_unit_test_setup_teardown(bounds_sandboxes_and_names, start, stop),
        cmocka_unit_test_setup_teardown(bounds_a_flood, start, stop),
        cmocka_unit_test(knows_sandbox_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
