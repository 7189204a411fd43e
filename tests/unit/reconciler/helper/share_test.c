/* SPDX-License-Identifier: Apache-2.0 */
/* share_test.c - a helper's directory in a sandbox's share: made, found, removed, and nothing else.
 */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/path.h"
#include "reconciler/helper/report.h"
#include "reconciler/helper/share.h"
#include "tests/unit/scratch.h"

#define ID   "aaaa"
#define NAME "crust-0123456789abcdef"

struct fixture {
    char directory[SCRATCH_BYTES];
    int root, share, program;
};

static void make(const struct fixture *fixture, const char *path)
{
    assert_int_equal(path_make_directories(fixture->root, path, 0755), 0);
}

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    struct error error;

    assert_non_null(fixture);
    assert_int_equal(scratch_directory_make(fixture->directory), 0);
    assert_int_equal(path_open_root(fixture->directory, &fixture->root), 0);
    make(fixture, "/run/kata-containers/shared/sandboxes/" ID "/mounts");
    make(fixture, "/run/kata-containers/shared/sandboxes/" ID "/rw/passthrough");
    assert_int_equal(helper_share_open(fixture->root, RUNTIME_KATA_GO, ID, &fixture->share, &error),
                     HELPER_SHARE_OK);
    fixture->program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    assert_true(fixture->program >= 0);
    *state = fixture;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    int r;

    (void)close(fixture->root);
    (void)close(fixture->share);
    (void)close(fixture->program);
    r = scratch_directory_remove(fixture->directory);
    free(fixture);
    return r;
}

static void a_helper_is_placed_whole_and_removed(void **state)
{
    struct fixture *fixture = *state;
    struct stat placed, own;
    struct error error;

    assert_int_equal(helper_share_place(fixture->share, NAME, fixture->program, &error), 0);
    assert_int_equal(fstatat(fixture->share, NAME "/agent", &placed, 0), 0);
    assert_int_equal(fstat(fixture->program, &own), 0);
    assert_int_equal(placed.st_size, own.st_size);
    assert_int_equal(placed.st_mode & 0777, 0555);
    for (const char *const *name = (const char *const[]){"proc", "sys", "dev", "vol", NULL}; *name;
         name++) {
        char path[64];

        (void)snprintf(path, sizeof(path), NAME "/%s", *name);
        assert_int_equal(fstatat(fixture->share, path, &placed, 0), 0);
        assert_int_equal(placed.st_mode & 07777, 0755);
    }
    assert_int_equal(helper_share_remove(fixture->share, NAME), 0);
    assert_int_equal(fstatat(fixture->share, NAME, &placed, 0), -1);
    assert_int_equal(helper_share_remove(fixture->share, NAME), 0); /* there is none */
}

static void existing_files_are_never_taken_over(void **state)
{
    struct fixture *fixture = *state;
    struct stat st;
    struct error error;

    assert_int_equal(mkdirat(fixture->share, NAME, 0755), 0);
    assert_int_equal(helper_share_place(fixture->share, NAME, fixture->program, &error), -EEXIST);
    assert_int_equal(fstatat(fixture->share, NAME, &st, 0), 0);
    assert_int_equal(fstatat(fixture->share, NAME "/agent", &st, 0), -1);
}

static void strange_content_is_left(void **state)
{
    struct fixture *fixture = *state;
    struct stat st;

    assert_int_equal(mkdirat(fixture->share, NAME, 0755), 0);
    assert_int_equal(mkdirat(fixture->share, NAME "/other", 0755), 0);
    assert_int_equal(helper_share_remove(fixture->share, NAME), -ENOTEMPTY);
    assert_int_equal(fstatat(fixture->share, NAME "/other", &st, 0), 0);
}

static void links_lead_nowhere(void **state)
{
    struct fixture *fixture = *state;
    struct stat st;
    struct error error;

    assert_int_equal(mkdirat(fixture->share, "victim", 0755), 0);
    assert_int_equal(mkdirat(fixture->share, "victim/proc", 0755), 0);
    assert_int_equal(symlinkat("victim", fixture->share, NAME), 0);
    assert_true(helper_share_remove(fixture->share, NAME) < 0);
    assert_true(helper_share_place(fixture->share, NAME, fixture->program, &error) < 0);
    assert_int_equal(fstatat(fixture->share, "victim/proc", &st, 0), 0);
    assert_int_equal(fstatat(fixture->share, "victim/agent", &st, 0), -1);
}

static void a_share_behind_a_link_is_refused(void **state)
{
    struct fixture *fixture = *state;
    struct error error;
    int fd = -1;

    make(fixture, "/run/kata-containers/shared/sandboxes/elsewhere/mounts");
    assert_int_equal(
        symlinkat("elsewhere", fixture->root, "run/kata-containers/shared/sandboxes/b"), 0);
    assert_int_equal(helper_share_open(fixture->root, RUNTIME_KATA_GO, "b", &fd, &error),
                     HELPER_SHARE_ABSENT);
    assert_non_null(strstr(error.text, "sandboxes/b/mounts"));
    assert_int_equal(helper_share_open(fixture->root, RUNTIME_KATA_GO, "c", &fd, &error),
                     HELPER_SHARE_ABSENT);
    assert_int_equal(fd, -1);
}

static void each_runtime_has_its_place(void **state)
{
    struct fixture *fixture = *state;
    char path[HELPER_GUEST_PATH_BYTES];
    struct error error;
    int fd = -1;

    helper_share_guest_path(RUNTIME_KATA_GO, NAME, path);
    assert_string_equal(path, "/run/kata-containers/shared/containers/" NAME);
    helper_share_guest_path(RUNTIME_KATA_RS, NAME, path);
    assert_string_equal(path, "/run/kata-containers/shared/containers/passthrough/" NAME);
    assert_int_equal(helper_share_open(fixture->root, RUNTIME_KATA_RS, ID, &fd, &error),
                     HELPER_SHARE_OK);
    assert_int_equal(mkdirat(fd, "x", 0755), 0);
    assert_int_equal(faccessat(fixture->root,
                               "run/kata-containers/shared/sandboxes/" ID "/rw/passthrough/x", F_OK,
                               0),
                     0);
    (void)close(fd);
}

/* Before the sandbox's first container. */
static void a_share_of_the_rust_runtime_may_come_later(void **state)
{
    struct fixture *fixture = *state;
    struct error error;
    int fd = -1;

    make(fixture, "/run/kata-containers/shared/sandboxes/early/rw");
    assert_int_equal(helper_share_open(fixture->root, RUNTIME_KATA_RS, "early", &fd, &error),
                     HELPER_SHARE_LATER);
    assert_int_equal(helper_share_open(fixture->root, RUNTIME_KATA_GO, "early", &fd, &error),
                     HELPER_SHARE_ABSENT);
    assert_int_equal(helper_share_open(fixture->root, RUNTIME_KATA_RS, "none", &fd, &error),
                     HELPER_SHARE_ABSENT);
    assert_int_equal(fd, -1);
}

static int note(void *userdata, const char *name)
{
    (void)snprintf(userdata, HELPER_NAME_BYTES, "%s", name);
    return 0;
}

static void only_names_of_ours_are_found(void **state)
{
    static const char *const others[] = {
        "crust-",
        "crust-0123456789abcde",
        "crust-0123456789abcdef0",
        "crust-0123456789abcdeg",
        "crust-0123456789ABCDEF",
        "0123-resolv.conf",
    };
    struct fixture *fixture = *state;
    char found[HELPER_NAME_BYTES] = "", first[HELPER_NAME_BYTES], second[HELPER_NAME_BYTES];

    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_false(helper_name_is_ours(others[i]));
        assert_int_equal(mkdirat(fixture->share, others[i], 0755), 0);
    }
    assert_int_equal(helper_share_each(fixture->share, note, found), 0);
    assert_string_equal(found, "");
    assert_int_equal(helper_name_make(first), 0);
    assert_int_equal(helper_name_make(second), 0);
    assert_true(helper_name_is_ours(first));
    assert_string_not_equal(first, second);
    assert_int_equal(mkdirat(fixture->share, first, 0755), 0);
    assert_int_equal(helper_share_each(fixture->share, note, found), 0);
    assert_string_equal(found, first);
}

/* ---- without descriptors ------------------------------------------------------------------ */

static int note_any(void *userdata, const char *name)
{
    (void)userdata;
    (void)name;
    return 0;
}

/* What crustd cannot open now is not taken for something that is not there. */
static void a_lack_of_descriptors_is_not_taken_for_absence(void **state)
{
    struct fixture *fixture = *state;
    struct store_helper_run sandbox = {
        .runtime = RUNTIME_KATA_GO, .sandbox_id = ID, .is_alive = true};
    struct config config = {.guest.helper_file = "/proc/self/exe"};
    struct rlimit limit, none;
    struct error error;
    int opened, has, searched, program, fd = -1;

    make(fixture, "/run/kata-containers/shared/sandboxes/" ID "/mounts/" NAME);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    opened = helper_share_open(fixture->root, RUNTIME_KATA_GO, ID, &fd, &error);
    has = helper_share_has(fixture->share, NAME);
    searched = helper_leftovers_search(fixture->root, &sandbox, note_any, NULL);
    program = helper_program_open(&config, &fd, &error);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    assert_int_equal(opened, -EMFILE);
    assert_int_equal(has, -EMFILE);
    assert_int_equal(searched, -EMFILE);
    assert_int_equal(program, -EMFILE);
    assert_int_equal(helper_share_has(fixture->share, NAME), 1);
    assert_int_equal(helper_share_has(fixture->share, "crust-fedcba9876543210"), 0);
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_helper_is_placed_whole_and_removed),
        TEST(existing_files_are_never_taken_over),
        TEST(strange_content_is_left),
        TEST(links_lead_nowhere),
        TEST(a_share_behind_a_link_is_refused),
        TEST(each_runtime_has_its_place),
        TEST(a_share_of_the_rust_runtime_may_come_later),
        TEST(only_names_of_ours_are_found),
        TEST(a_lack_of_descriptors_is_not_taken_for_absence),
    };

    return cmocka_run_group_tests_name("helper_share", tests, NULL, NULL);
}
