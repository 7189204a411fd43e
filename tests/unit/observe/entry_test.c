/* SPDX-License-Identifier: Apache-2.0 */
/* entry_test.c - metadata directories as they should be, and each way in which they should not. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
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
    (void)state;
    if (scratch_directory_make(scratch) < 0)
        return -1;
    directory = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return directory < 0 || mkdirat(directory, NAME, 0700) < 0 ? -1 : 0;
}

static int stop(void **state)
{
    (void)state;
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

static void reads_a_good_entry(void **state)
{
    (void)state;
    write_file(NAME "/mountInfo.json", GOOD);
    write_file(NAME "/runtime-cli", "/usr/bin/kata-runtime");
    write_file(NAME "/b2", "");
    write_file(NAME "/a1", "");
    observe();
    assert_null(entry.problem);
    assert_string_equal(entry.target_path, "/v");
    assert_string_equal(entry.device, "/dev/loop0");
    assert_int_equal(strlen(entry.mount_info_sha256), 64);
    assert_true(entry.directory.inode != 0);
    assert_int_equal(entry.sandboxes, 2);
    assert_string_equal(entry.sandbox[0], "a1");
    assert_string_equal(entry.sandbox[1], "b2");
}

static void knows_absence(void **state)
{
    (void)state;
    assert_int_equal(observe_entry(directory, "L3c=", &entry), OBSERVED_ABSENT);
}

static void reads_a_sha256_entry(void **state)
{
    static const char name[] = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    (void)state;
    assert_int_equal(renameat(directory, NAME, directory, name), 0);
    assert_int_equal(observe_entry(directory, name, &entry), OBSERVED);
    assert_null(entry.target_path);
    assert_true(entry.try_again); /* mountInfo.json is still to come */
}

static void reports_an_odd_directory_name(void **state)
{
    (void)state;
    assert_int_equal(renameat(directory, NAME, directory, "lost+found"), 0);
    assert_int_equal(observe_entry(directory, "lost+found", &entry), OBSERVED);
    assert_null(entry.target_path);
    assert_non_null(strstr(entry.problem, "lost+found"));
}

static void reports_an_entry_that_is_not_a_directory(void **state)
{
    (void)state;
    assert_int_equal(unlinkat(directory, NAME, AT_REMOVEDIR), 0);
    write_file(NAME, "");
    expect_problem(NAME, "not a directory", false);
    assert_int_equal(unlinkat(directory, NAME, 0), 0);
    assert_int_equal(symlinkat("/tmp", directory, NAME), 0);
    expect_problem(NAME, "symbolic link", false);
}

static void reports_a_directory_of_others(void **state)
{
    (void)state;
    write_file(NAME "/mountInfo.json", GOOD);
    assert_int_equal(fchmodat(directory, NAME, 0777, 0), 0);
    expect_problem(NAME, "writable by others", false);
    assert_int_equal(fchmodat(directory, NAME, 0700, 0), 0);
    if (geteuid() != 0)
        skip();
    assert_int_equal(fchownat(directory, NAME, 1234, 0, 0), 0);
    expect_problem(NAME, "somebody else", false);
}

static void reports_writes_in_progress(void **state)
{
    (void)state;
    expect_problem("mountInfo.json", "no such file", true);
    write_file(NAME "/mountInfo.json", "");
    expect_problem("mountInfo.json", "empty", true);
    write_file(NAME "/mountInfo.json", "{\"device\":\"/dev/lo");
    expect_problem("mountInfo.json", "", true);
    write_file(NAME "/mountInfo.json", "{\"device\":7}");
    expect_problem("mountInfo.json", "device: not a string", false);
}

static void reports_names_that_are_not_regular_files(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    cleanup(fd_closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_int_equal(symlinkat("/etc/passwd", directory, NAME "/mountInfo.json"), 0);
    expect_problem("mountInfo.json", "symbolic link", false);
    assert_int_equal(unlinkat(directory, NAME "/mountInfo.json", 0), 0);

    assert_int_equal(mkfifoat(directory, NAME "/mountInfo.json", 0600), 0);
    expect_problem("mountInfo.json", "not a regular file", false);
    assert_int_equal(unlinkat(directory, NAME "/mountInfo.json", 0), 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/" NAME "/mountInfo.json",
                   scratch);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    expect_problem("mountInfo.json", "not a regular file", false);
    assert_int_equal(unlinkat(directory, NAME "/mountInfo.json", 0), 0);

    assert_int_equal(mkdirat(directory, NAME "/mountInfo.json", 0700), 0);
    expect_problem("mountInfo.json", "not a regular file", false);
    assert_int_equal(unlinkat(directory, NAME "/mountInfo.json", AT_REMOVEDIR), 0);

    if (mknodat(directory, NAME "/mountInfo.json", S_IFCHR | 0600, makedev(1, 3)) < 0)
        skip();
    expect_problem("mountInfo.json", "not a regular file", false);
}

static void reports_files_of_others(void **state)
{
    (void)state;
    write_file(NAME "/mountInfo.json", GOOD);
    assert_int_equal(linkat(directory, NAME "/mountInfo.json", directory, "other", 0), 0);
    expect_problem("mountInfo.json", "hard links", false);
    assert_int_equal(unlinkat(directory, "other", 0), 0);
    assert_int_equal(fchmodat(directory, NAME "/mountInfo.json", 0620, 0), 0);
    expect_problem("mountInfo.json", "writable by others", false);
    assert_int_equal(fchmodat(directory, NAME "/mountInfo.json", 0600, 0), 0);
    if (geteuid() != 0)
        skip();
    assert_int_equal(fchownat(directory, NAME "/mountInfo.json", 1234, 0, 0), 0);
    expect_problem("mountInfo.json", "belongs to uid 1234", false);
}

static void reports_a_file_too_big(void **state)
{
    static char text[65 * 1024 + 1];

    (void)state;
    memset(text, ' ', sizeof(text) - 1);
    write_file(NAME "/mountInfo.json", text);
    expect_problem("mountInfo.json", "more than 65536 bytes", false);
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

static void names_that_do_not_belong_are_ignored_and_named(void **state)
{
    char path[300] = NAME "/";

    (void)state;
    write_file(NAME "/mountInfo.json", GOOD);
    write_file(NAME "/good", "");
    write_file(NAME "/.mountInfo.json.tmp", "");
    expect_remark(".mountInfo.json.tmp", "not a name that belongs here");
    assert_int_equal(unlinkat(directory, NAME "/.mountInfo.json.tmp", 0), 0);

    write_file(NAME "/bad\x1bname", "");
    expect_remark("bad\\u001bname", "not a name that belongs here");
    assert_int_equal(unlinkat(directory, NAME "/bad\x1bname", 0), 0);

    memset(path + strlen(path), 'x', 129);
    write_file(path, "");
    expect_remark("xxx", "not a name that belongs here");
    assert_int_equal(unlinkat(directory, path, 0), 0);

    write_file(NAME "/csiPlugin.json", "{}");
    expect_remark("csiPlugin.json", "refused");
}

static void sandbox_files_that_are_none_are_ignored_and_named(void **state)
{
    (void)state;
    write_file(NAME "/mountInfo.json", GOOD);
    write_file(NAME "/good", "");
    write_file(NAME "/sandbox", "content");
    expect_remark("sandbox", "not empty");
    assert_int_equal(unlinkat(directory, NAME "/sandbox", 0), 0);
    assert_int_equal(symlinkat("mountInfo.json", directory, NAME "/sandbox"), 0);
    expect_remark("sandbox", "symbolic link");
    assert_int_equal(unlinkat(directory, NAME "/sandbox", 0), 0);
    assert_int_equal(mkdirat(directory, NAME "/sandbox", 0700), 0);
    expect_remark("sandbox", "not a regular file");
}

static void the_remark_does_not_depend_on_the_order_of_names(void **state)
{
    (void)state;
    write_file(NAME "/mountInfo.json", GOOD);
    write_file(NAME "/good", "");
    write_file(NAME "/.b", "");
    write_file(NAME "/.a", "");
    write_file(NAME "/.c", "");
    expect_remark(".a: ", "and 2 more");
}

static void a_remark_mends_no_problem(void **state)
{
    (void)state;
    write_file(NAME "/mountInfo.json", "{\"device\":7}");
    write_file(NAME "/.a", "");
    expect_problem("mountInfo.json", "device: not a string", false);
}

static void bounds_sandboxes_and_names(void **state)
{
    char path[64];

    (void)state;
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

    (void)state;
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
    (void)state;
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
        cmocka_unit_test_setup_teardown(reads_a_good_entry, start, stop),
        cmocka_unit_test_setup_teardown(knows_absence, start, stop),
        cmocka_unit_test_setup_teardown(reads_a_sha256_entry, start, stop),
        cmocka_unit_test_setup_teardown(reports_an_odd_directory_name, start, stop),
        cmocka_unit_test_setup_teardown(reports_an_entry_that_is_not_a_directory, start, stop),
        cmocka_unit_test_setup_teardown(reports_a_directory_of_others, start, stop),
        cmocka_unit_test_setup_teardown(reports_writes_in_progress, start, stop),
        cmocka_unit_test_setup_teardown(reports_names_that_are_not_regular_files, start, stop),
        cmocka_unit_test_setup_teardown(reports_files_of_others, start, stop),
        cmocka_unit_test_setup_teardown(reports_a_file_too_big, start, stop),
        cmocka_unit_test_setup_teardown(names_that_do_not_belong_are_ignored_and_named, start,
                                        stop),
        cmocka_unit_test_setup_teardown(sandbox_files_that_are_none_are_ignored_and_named, start,
                                        stop),
        cmocka_unit_test_setup_teardown(the_remark_does_not_depend_on_the_order_of_names, start,
                                        stop),
        cmocka_unit_test_setup_teardown(a_remark_mends_no_problem, start, stop),
        cmocka_unit_test_setup_teardown(bounds_sandboxes_and_names, start, stop),
        cmocka_unit_test_setup_teardown(bounds_a_flood, start, stop),
        cmocka_unit_test(knows_sandbox_ids),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
