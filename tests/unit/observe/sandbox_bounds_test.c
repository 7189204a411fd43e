/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_bounds_test.c - how much of a sandbox's files is read: all containers' together. */
#include "tests/unit/observe/node_fixture.h"

#include "lib/buffer.h"
#include "lib/cleanup.h"

#define ID "b0b0b0b0123456789abcdef0123456789abcdef0123456789abcdef0123456ab"

/* Mounts in the file of a container; padding: bytes that say nothing. */
static void write_long_container(unsigned number, unsigned mounts, int padding)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    char directory[160], file[192];

    (void)snprintf(directory, sizeof(directory), "/run/vc/sbs/" ID "/c%u", number);
    (void)snprintf(file, sizeof(file), "%s/persist.json", directory);
    make_directory(directory);
    assert_int_equal(
        buffer_append_format(&text, "{\"State\":\"running\",%*s\"Mounts\":[", padding, ""), 0);
    for (unsigned i = 0; i < mounts; i++)
        assert_int_equal(buffer_append_format(&text,
                                              "%s{\"Source\":\"/v%u-%u\",\"Destination\":\"/d%u\"}",
                                              i ? "," : "", number, i, i),
                         0);
    assert_int_equal(buffer_append_format(&text, "]}"), 0);
    write_file(file, buffer_text(&text));
}

static void start_with_containers(unsigned containers, unsigned mounts, int padding)
{
    make_directory("/run/vc/vm/" ID);
    make_directory("/run/vc/sbs/" ID);
    write_pid("/run/vc/vm/" ID "/pid", start_process("/", "qemu", "-name", "sandbox-" ID, NULL));
    write_file("/run/vc/sbs/" ID "/persist.json", "{\"Devices\":[]}");
    for (unsigned i = 0; i < containers; i++)
        write_long_container(i, mounts, padding);
}

/* Each is as long as one may be. */
static void files_of_containers_are_bounded_together(void **state)
{
    start_with_containers(2, 1, 1000 * 1000);
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_null(sandbox.problem);
    assert_int_equal(sandbox.records, 2);
    write_long_container(2, 1, 1000 * 1000);
    write_long_container(3, 1, 1000 * 1000);
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_non_null(strstr(sandbox.problem, "more of containers than is read"));
    assert_int_equal(sandbox.records, 2);
}

static void a_file_is_bounded(void **state)
{
    start_with_containers(1, 1, 0);
    write_long_container(0, 1, 1024 * 1024);
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_non_null(sandbox.problem);
    assert_non_null(strstr(sandbox.problem, "more than 1048576 bytes"));
}

static void containers_are_bounded(void **state)
{
    start_with_containers(128, 1, 0);
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_null(sandbox.problem);
    write_long_container(128, 1, 0);
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_non_null(strstr(sandbox.problem, "more containers than are read"));
}

/* Of files, which are no containers. */
static void names_are_bounded(void **state)
{
    char file[160];

    start_with_containers(1, 1, 0);
    for (unsigned i = 0; i < 512; i++) {
        (void)snprintf(file, sizeof(file), "/run/vc/sbs/" ID "/file%u", i);
        write_file(file, "");
    }
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_non_null(strstr(sandbox.problem, "more containers than are read"));
}

static void mounts_of_containers_are_bounded_together(void **state)
{
    start_with_containers(4, 500, 0);
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_null(sandbox.problem);
    write_long_container(4, 500, 0);
    assert_int_equal(observe_whole(ID), OBSERVED);
    assert_non_null(strstr(sandbox.problem, "more mounts of containers than are read"));
}

#define TEST(test) cmocka_unit_test_setup_teardown(test, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(files_of_containers_are_bounded_together),
        TEST(a_file_is_bounded),
        TEST(containers_are_bounded),
        TEST(names_are_bounded),
        TEST(mounts_of_containers_are_bounded_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
