/* SPDX-License-Identifier: Apache-2.0 */
/* slow_write_test.c - a write that is done elsewhere, fails there, or hangs there. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/slow_write.h"

enum { NEVER_SECONDS = 600 };

struct fixture {
    struct loop loop;
    int result;
    unsigned calls;
};

static int start(void **state)
{
    static struct fixture fixture;

    fixture = (struct fixture){.result = 1};
    *state = &fixture;
    return loop_init(&fixture.loop);
}

static int stop(void **state)
{
    struct fixture *fixture = *state;

    loop_done(&fixture->loop);
    return 0;
}

static void on_done(struct slow_write *write, int result, void *userdata)
{
    struct fixture *fixture = userdata;

    fixture->result = result;
    fixture->calls++;
    slow_write_free(write);
    loop_stop(&fixture->loop);
}

static int run(struct fixture *fixture, int fd, uint64_t deadline_ns)
{
    struct slow_write *write;

    assert_int_equal(slow_write_new(&fixture->loop, fd, "1", deadline_ns, on_done, fixture, &write),
                     0);
    loop_run(&fixture->loop);
    return fixture->result;
}

static void writes(void **state)
{
    struct fixture *fixture = *state;
    char text[8] = "";
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(run(fixture, ends[1], NEVER_SECONDS * NSEC_PER_SEC), 0);
    fd_close(ends[1]);
    assert_int_equal(read(ends[0], text, sizeof(text)), 1);
    assert_string_equal(text, "1");
    assert_int_equal(read(ends[0], text, sizeof(text)), 0); /* the child holds nothing */
    assert_int_equal(fixture->calls, 1);
    fd_close(ends[0]);
}

static void says_why_it_could_not(void **state)
{
    cleanup(fd_closep) int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    cleanup(fd_closep) int closed = open("/dev/null", O_RDONLY | O_CLOEXEC);

    assert_int_equal(run(*state, full, NEVER_SECONDS * NSEC_PER_SEC), -ENOSPC);
    assert_int_equal(run(*state, closed, NEVER_SECONDS * NSEC_PER_SEC), -EBADF);
}

/* A pipe that nobody reads and that takes no more. */
static void fill(int ends[2])
{
    static char block[4096];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    while (write(ends[1], block, sizeof(block)) > 0)
        ;
    while (write(ends[1], block, 1) > 0)
        ;
    assert_int_equal(fcntl(ends[1], F_SETFL, 0), 0);
}

static void one_that_hangs_is_ended(void **state)
{
    int ends[2];

    fill(ends);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(run(*state, ends[1], NSEC_PER_MSEC), -ETIMEDOUT);
    fd_close(ends[0]);
    fd_close(ends[1]);
}

static void one_that_is_not_wanted_any_more_is_ended(void **state)
{
    struct fixture *fixture = *state;
    struct slow_write *write;
    char block[1];
    int ends[2];

    fill(ends);
    assert_int_equal(slow_write_new(&fixture->loop, ends[1], "1", NEVER_SECONDS * NSEC_PER_SEC,
                                    on_done, fixture, &write),
                     0);
    slow_write_free(write);
    fd_close(ends[1]);
    assert_int_equal(fcntl(ends[0], F_SETFL, 0), 0);
    while (read(ends[0], block, sizeof(block)) > 0) /* ends once the child has */
        ;
    assert_int_equal(fixture->calls, 0);
    fd_close(ends[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes, start, stop),
        cmocka_unit_test_setup_teardown(says_why_it_could_not, start, stop),
        cmocka_unit_test_setup_teardown(one_that_hangs_is_ended, start, stop),
        cmocka_unit_test_setup_teardown(one_that_is_not_wanted_any_more_is_ended, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
