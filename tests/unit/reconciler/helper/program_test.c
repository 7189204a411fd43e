/* SPDX-License-Identifier: Apache-2.0 */
/* program_test.c - where the helper's program is looked for, and which file is taken for it. */
#include "tests/unit/tree.h"

#include <limits.h>

#include "reconciler/helper/helper.h"

#define BESIDE "/libexec/crustd/crust-guest-agent"

static char crustd[PATH_MAX]; /* what is said to run here */
static uid_t owner;           /* of every file */

/* ---- what takes root to have ---- */

int fstat(int fd, struct stat *ret_status)
{
    int r = fstatat(fd, "", ret_status, AT_EMPTY_PATH);

    ret_status->st_uid = owner;
    return r;
}

ssize_t readlink(const char *path, char *buffer, size_t size)
{
    size_t length = strlen(crustd);

    assert_string_equal(path, "/proc/self/exe");
    if (!length) {
        errno = ENOENT;
        return -1;
    }
    assert_true(length <= size);
    memcpy(buffer, crustd, length);
    return (ssize_t)length;
}

static int start(void **state)
{
    owner = 0;
    crustd[0] = '\0';
    return tree_start(state);
}

/* ---- programs ---- */

static unsigned char own[4096]; /* the beginning of a program for this machine */

static void read_own(void)
{
    cleanup(fd_closep) int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

    assert_int_equal(pread(fd, own, sizeof(own), 0), sizeof(own));
}

static void put(const char *path, const void *bytes, size_t length, mode_t mode)
{
    cleanup(fd_closep) int fd =
        open(tree_path(path), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    assert_int_equal(write(fd, bytes, length), length);
    assert_int_equal(fchmod(fd, mode), 0);
}

static int open_program(const char *path, struct error *error)
{
    struct config config = {0};
    int fd = -1, r;

    (void)snprintf(config.guest.helper_file, sizeof(config.guest.helper_file), "%s", path);
    *error = (struct error){0};
    r = helper_program_open(&config, &fd, error);
    assert_int_equal(fd >= 0, r == HELPER_PROGRAM_OK);
    fd_close(fd);
    return r;
}

static void assert_opened(const char *path, int outcome, const char *text)
{
    struct error error;

    assert_int_equal(open_program(tree_path(path), &error), outcome);
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

/* ---- tests ---- */

static void a_program_is_roots_and_nobody_elses_to_write(void **state)
{
    read_own();
    put("/program", own, sizeof(own), 0755);
    assert_opened("/program", HELPER_PROGRAM_OK, "");
    owner = 1000;
    assert_opened("/program", HELPER_PROGRAM_MISSING, "must be root's");
    owner = 0;
    put("/program", own, sizeof(own), 0775);
    assert_opened("/program", HELPER_PROGRAM_MISSING, "writable by nobody else");
    put("/program", own, sizeof(own), 0757);
    assert_opened("/program", HELPER_PROGRAM_MISSING, "writable by nobody else");
}

static void a_program_is_for_this_machine(void **state)
{
    read_own();
    own[18] ^= 0x40; /* e_machine */
    put("/program", own, sizeof(own), 0755);
    assert_opened("/program", HELPER_PROGRAM_FOREIGN, "ELF machine");
    put("/program", "#!/bin/sh\n", 10, 0755);
    assert_opened("/program", HELPER_PROGRAM_FOREIGN, "no ELF program");
}

static void a_program_is_a_regular_file_of_a_bounded_size(void **state)
{
    assert_opened("/nonexistent", HELPER_PROGRAM_MISSING, "/nonexistent");
    tree_make("/directory");
    assert_opened("/directory", HELPER_PROGRAM_MISSING, "no regular file");
    read_own();
    put("/large", own, sizeof(own), 0755);
    assert_int_equal(truncate(tree_path("/large"), HELPER_PROGRAM_BYTES), 0);
    assert_opened("/large", HELPER_PROGRAM_OK, "");
    assert_int_equal(truncate(tree_path("/large"), HELPER_PROGRAM_BYTES + 1), 0);
    assert_opened("/large", HELPER_PROGRAM_MISSING, "larger than 64 MiB");
}

static void by_default_it_stands_where_crustd_was_installed(void **state)
{
    struct error error;

    (void)snprintf(crustd, sizeof(crustd), "%s/opt/sbin/crustd", scratch);
    tree_make("/opt/libexec/crustd");
    put("/opt" BESIDE, "#!/bin/sh\n", 10, 0755);
    assert_int_equal(open_program(CONFIG_HELPER_FILE, &error), HELPER_PROGRAM_FOREIGN);
    assert_non_null(strstr(error.text, tree_path("/opt" BESIDE)));
    assert_opened("/opt/other", HELPER_PROGRAM_MISSING, "/opt/other"); /* where one is named */
}

/* Else the path is the default's own, and what is told names it. */
static void without_one_beside_crustd_the_default_is_as_it_is_written(void **state)
{
    static const char *const places[] = {"", "crustd", "/crustd"};
    struct error error;

    for (size_t i = 0; i < array_length(places) + 1; i++) {
        if (i < array_length(places))
            (void)snprintf(crustd, sizeof(crustd), "%s", places[i]);
        else
            memset(crustd, '/', sizeof(crustd) - 1);
        if (open_program(CONFIG_HELPER_FILE, &error) != HELPER_PROGRAM_OK)
            assert_non_null(strstr(error.text, CONFIG_HELPER_FILE));
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, tree_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_program_is_roots_and_nobody_elses_to_write),
        TEST(a_program_is_for_this_machine),
        TEST(a_program_is_a_regular_file_of_a_bounded_size),
        TEST(by_default_it_stands_where_crustd_was_installed),
        TEST(without_one_beside_crustd_the_default_is_as_it_is_written),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
