/* SPDX-License-Identifier: Apache-2.0 */
/* container_copy_test.c - a program that is copied into a guest without a share, and emptied again.
 */
#include "tests/unit/agent-client/container_agent.h"

static int make_program(size_t bytes)
{
    char path[SCRATCH_BYTES + 16];
    int fd;

    (void)snprintf(path, sizeof(path), "%s/program", scratch);
    fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0700);
    assert_true(fd >= 0);
    for (size_t i = 0; i < bytes; i++) {
        char byte = (char)(i * 7 / 5);

        if (i % 4099 == 0 || i + 1 == bytes)
            assert_int_equal(pwrite(fd, &byte, 1, (off_t)i), 1);
    }
    return fd;
}

static void assert_copied(int fd, size_t bytes)
{
    char *expected = malloc(bytes);

    assert_non_null(expected);
    assert_int_equal(pread(fd, expected, bytes, 0), bytes);
    assert_int_equal(agent.ran_bytes, bytes);
    assert_memory_equal(agent.ran, expected, bytes);
    free(expected);
}

static struct container_request copying(int fd)
{
    struct container_request request = ordinary();

    request.directory = "/d";
    request.copied = true;
    request.program_file = fd;
    return request;
}

static void program_is_copied_and_emptied(void **state)
{
    static const size_t sizes[] = {1, 262143, 262144, 262145, 700000};

    for (size_t i = 0; i < array_length(sizes); i++) {
        int fd = make_program(sizes[i]);
        struct container_request request;

        reset();
        request = copying(fd);
        run_with(&request);
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_clean();
        assert_copied(fd, sizes[i]);
        assert_true(agent.emptied);
        assert_string_equal(agent.copied_paths, "/d/agent /d/agent ");
        assert_null(strchr(agent.log + 1, '|'));
        assert_string_equal(strstr(agent.log, "Remove"), "RemoveContainer CopyFile ");
        fd_close(fd);
    }
}

static void copy_that_fails_creates_nothing(void **state)
{
    int fd = make_program(600000);
    struct container_request request = copying(fd);

    refuse("CopyFile", STATUS_PERMISSION_DENIED, "CopyFileRequest is blocked by policy");
    run_with(&request);
    assert_kind(CONTAINER_DENIED, CONTAINER_COPY, "CopyFile: PERMISSION_DENIED");
    assert_clean();
    assert_string_equal(agent.log, "|CopyFile ");
    refuse("CopyFile", STATUS_NOT_FOUND, "");
    run_with(&request);
    assert_kind(CONTAINER_UNSUPPORTED, CONTAINER_COPY, "NOT_FOUND");
    refuse("CopyFile", STATUS_INTERNAL, "ENOSPC");
    script.after = 1; /* nor a piece, but the sweep was there */
    script.times = 1;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_COPY, "ENOSPC");
    assert_true(agent.emptied);
    refuse("CopyFile", STATUS_PERMISSION_DENIED, "blocked by policy");
    script.after = 1;
    script.times = 1;
    run_with(&request);
    assert_kind(CONTAINER_DENIED, CONTAINER_COPY, "blocked");
    assert_true(agent.emptied);
    refuse("CopyFile", STATUS_INTERNAL, "ENOSPC");
    script.after = 2; /* the sweep and a piece */
    script.times = 1;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_COPY, "ENOSPC");
    assert_clean();
    assert_true(agent.emptied);
    go_wrong("CopyFile", HANG);
    script.times = 1;
    request.step_ns = SHORT_TIME;
    run_with(&request);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_COPY, "CopyFile: no answer");
    assert_clean();
    refuse("CreateContainer", STATUS_PERMISSION_DENIED, "blocked by policy");
    request.step_ns = LONG_TIME;
    run_with(&request);
    assert_kind(CONTAINER_DENIED, CONTAINER_CREATE, "blocked");
    assert_clean();
    assert_true(agent.emptied);
    fd_close(fd);
}

static void program_that_cannot_be_copied_is_reported(void **state)
{
    int fd = make_program(1);
    struct container_request request = copying(fd);

    assert_int_equal(ftruncate(fd, 0), 0);
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, "is empty");
    assert_int_equal(ftruncate(fd, (off_t)CONTAINER_PROGRAM_BYTES + 1), 0);
    reset();
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, "too large");
    reset();
    request.program_file = root;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_CONNECT, "cannot be read");
    assert_clean();
    assert_string_equal(agent.log, "");
    fd_close(fd);
}

/* What a copy that was cut off has left goes into no program. */
static void leftovers_of_a_copy_are_swept(void **state)
{
    static const size_t sizes[] = {1, 300000, 400000};
    static char leftover[400000];
    int fd = make_program(300000);

    memset(leftover, 'L', sizeof(leftover));
    for (size_t i = 0; i < 2 * array_length(sizes); i++) {
        struct container_request request;

        reset();
        script.old = i % 2;
        assert_int_equal(buffer_append(&agent.temporary, leftover, sizes[i / 2]), 0);
        request = copying(fd);
        run_with(&request);
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_clean();
        assert_copied(fd, 300000);
        assert_true(agent.emptied);
        assert_int_equal(agent.temporary.length, 0);
    }
    fd_close(fd);
}

static void copy_that_is_cut_off_leaves_no_temporary_file(void **state)
{
    int fd = make_program(600000);
    struct container_request request;

    refuse("CopyFile", STATUS_INTERNAL, "ENOSPC");
    script.old = true;
    script.after = 2;
    script.times = 1;
    request = copying(fd);
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_COPY, "ENOSPC");
    assert_clean();
    assert_int_equal(agent.temporary.length, 0);
    assert_int_equal(agent.copied.length, 0);
    fd_close(fd);
}

static void program_that_becomes_shorter_is_not_run(void **state)
{
    int fd = make_program(600000);
    struct container_request request = copying(fd);

    script.shrinks = fd;
    run_with(&request);
    assert_kind(CONTAINER_FAILED, CONTAINER_COPY, "cannot read the program's file");
    assert_clean();
    assert_true(agent.emptied);
    fd_close(fd);
}

static void clean_up_empties_the_program(void **state)
{
    struct container_request request = copying(-1);

    request.act = CONTAINER_CLEAN_UP;
    agent.exists = true;
    run_with(&request);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_true(agent.emptied);
    assert_string_equal(agent.log, KILLED "CopyFile CopyFile ");
    refuse("CopyFile", STATUS_INTERNAL, "ENOSPC");
    agent.exists = true;
    run_with(&request);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_left("CopyFile: INTERNAL: ENOSPC");
    assert_string_equal(agent.log, KILLED "CopyFile ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AGENT(program_is_copied_and_emptied),
        AGENT(copy_that_fails_creates_nothing),
        AGENT(program_that_cannot_be_copied_is_reported),
        AGENT(leftovers_of_a_copy_are_swept),
        AGENT(copy_that_is_cut_off_leaves_no_temporary_file),
        AGENT(program_that_becomes_shorter_is_not_run),
        AGENT(clean_up_empties_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
