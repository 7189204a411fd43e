/* SPDX-License-Identifier: Apache-2.0 */
/* program_test.c - where the real QEMU is looked for. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crust-qemu/qemu_program.h"
#include "tests/unit/scratch.h"

static void the_name_is_without_its_prefix(void **state)
{
    assert_string_equal(program_name("/opt/kata/bin/crust-qemu-system-x86_64"),
                        "qemu-system-x86_64");
    assert_string_equal(program_name("crust-qemu-system-aarch64"), "qemu-system-aarch64");
    assert_null(program_name("/usr/bin/qemu-system-x86_64"));
    assert_null(program_name("/usr/crust-/qemu"));
    assert_null(program_name("crust-"));
    assert_null(program_name(""));
}

static void put_program(const char *directory, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    int fd;

    (void)mkdir(directory, 0755);
    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
}

struct places {
    char own[512], first[512], second[512], self[1024];
};

static void make_places(const char *scratch, struct places *places)
{
    (void)snprintf(places->own, sizeof(places->own), "%s/own", scratch);
    (void)snprintf(places->first, sizeof(places->first), "%s/first", scratch);
    (void)snprintf(places->second, sizeof(places->second), "%s/second", scratch);
    (void)snprintf(places->self, sizeof(places->self), "%s/crust-vm", places->own);
    put_program(places->own, "crust-vm", 0755);
    (void)mkdir(places->first, 0755);
    (void)mkdir(places->second, 0755);
}

static bool find_in(const struct places *places, char path[static PATH_MAX])
{
    struct stat own;

    assert_int_equal(stat(places->self, &own), 0);
    return program_find(places->self, &own, "vm",
                        (const char *const[]){places->first, places->second, NULL}, path);
}

static void the_nearest_one_is_found(void **state)
{
    struct places places;
    char path[PATH_MAX];

    make_places(*state, &places);
    assert_false(find_in(&places, path));
    put_program(places.second, "vm", 0755);
    assert_true(find_in(&places, path));
    assert_memory_equal(path, places.second, strlen(places.second));
    put_program(places.first, "vm", 0755);
    assert_true(find_in(&places, path));
    assert_memory_equal(path, places.first, strlen(places.first));
    put_program(places.own, "vm", 0755);
    assert_true(find_in(&places, path));
    assert_memory_equal(path, places.own, strlen(places.own));
}

static void programs_that_cannot_run_are_passed_over(void **state)
{
    struct places places;
    char path[PATH_MAX], link[1024];

    make_places(*state, &places);
    put_program(places.own, "vm", 0644);
    (void)snprintf(link, sizeof(link), "%s/vm", places.first);
    assert_int_equal(symlink(places.self, link), 0);
    assert_false(find_in(&places, path));
    (void)snprintf(link, sizeof(link), "%s/vm", places.second);
    assert_int_equal(mkdir(link, 0755), 0);
    assert_false(find_in(&places, path));
}

/* As the kernel names a file that was deleted while it ran. */
static void a_deleted_program_still_knows_itself(void **state)
{
    struct places places;
    char path[PATH_MAX], deleted[1100], link[1024];
    struct stat own;

    make_places(*state, &places);
    assert_int_equal(stat(places.self, &own), 0);
    (void)snprintf(link, sizeof(link), "%s/vm", places.first);
    assert_int_equal(symlink(places.self, link), 0);
    put_program(places.second, "vm", 0755);
    (void)snprintf(deleted, sizeof(deleted), "%s (deleted)", places.self);
    assert_true(program_find(deleted, &own, "vm",
                             (const char *const[]){places.first, places.second, NULL}, path));
    assert_memory_equal(path, places.second, strlen(places.second));
}

static char scratch[SCRATCH_BYTES];

static int scratch_setup(void **state)
{
    *state = scratch;
    return scratch_directory_make(scratch);
}

static int scratch_teardown(void **state)
{
    return scratch_directory_remove(*state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_name_is_without_its_prefix),
        cmocka_unit_test_setup_teardown(the_nearest_one_is_found, scratch_setup, scratch_teardown),
        cmocka_unit_test_setup_teardown(programs_that_cannot_run_are_passed_over, scratch_setup,
                                        scratch_teardown),
        cmocka_unit_test_setup_teardown(a_deleted_program_still_knows_itself, scratch_setup,
                                        scratch_teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
