/* SPDX-License-Identifier: Apache-2.0 */
/* buffer_test.c - growing, limits, and that a failure changes nothing. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "lib/buffer.h"

static void is_text_at_every_moment(void **state)
{
    struct buffer buffer = BUFFER_INIT(100);

    assert_string_equal(buffer_text(&buffer), "");
    assert_int_equal(buffer_append_text(&buffer, "ab"), 0);
    assert_int_equal(buffer_append_format(&buffer, "%d", 12), 0);
    assert_int_equal(buffer_append(&buffer, "c", 1), 0);
    assert_string_equal(buffer_text(&buffer), "ab12c");
    buffer_consume(&buffer, 3);
    assert_string_equal(buffer_text(&buffer), "2c");
    buffer_consume(&buffer, 99);
    assert_string_equal(buffer_text(&buffer), "");
    buffer_done(&buffer);
    assert_null(buffer.data);
    assert_int_equal(buffer.limit, 100);
}

static void keeps_to_its_limit(void **state)
{
    struct buffer buffer = BUFFER_INIT(4);

    assert_int_equal(buffer_try_append(&buffer, "abcde", 5), -EMSGSIZE);
    assert_int_equal(buffer.length, 0);
    assert_int_equal(buffer_append(&buffer, "abcd", 4), 0);
    assert_int_equal(buffer_try_append(&buffer, "e", 1), -EMSGSIZE);
    assert_int_equal(buffer_append(&buffer, "", 0), 0);
    assert_string_equal(buffer_text(&buffer), "abcd");
    assert_int_equal(buffer_try_append(&buffer, "x", SIZE_MAX), -EMSGSIZE);
    assert_int_equal(buffer_error(&buffer), 0);
    assert_int_equal(buffer_append_format(&buffer, "%s", "e"), -EMSGSIZE);
    assert_string_equal(buffer_text(&buffer), "abcd");
    buffer_done(&buffer);
}

/* Even one that would fit. */
static void appends_nothing_after_a_failure(void **state)
{
    struct buffer buffer = BUFFER_INIT(4);

    assert_int_equal(buffer_append_text(&buffer, "ab"), 0);
    assert_int_equal(buffer_append_text(&buffer, "cde"), -EMSGSIZE);
    assert_int_equal(buffer_error(&buffer), -EMSGSIZE);
    assert_int_equal(buffer_append(&buffer, "c", 1), -EMSGSIZE);
    assert_int_equal(buffer_append(&buffer, "", 0), -EMSGSIZE);
    assert_int_equal(buffer_append_text(&buffer, "c"), -EMSGSIZE);
    assert_int_equal(buffer_append_format(&buffer, "%d", 3), -EMSGSIZE);
    assert_int_equal(buffer_try_append(&buffer, "c", 1), -EMSGSIZE);
    assert_int_equal(buffer_fail(&buffer, -ENOMEM), -EMSGSIZE); /* the first one counts */
    assert_string_equal(buffer_text(&buffer), "ab");
    buffer_consume(&buffer, 99);
    assert_int_equal(buffer_error(&buffer), -EMSGSIZE);
    buffer_done(&buffer);
}

static void a_failure_ends_with_what_was_appended(void **state)
{
    struct buffer buffer = BUFFER_INIT(4);

    assert_int_equal(buffer_append_text(&buffer, "abcde"), -EMSGSIZE);
    buffer_clear(&buffer);
    assert_int_equal(buffer_error(&buffer), 0);
    assert_int_equal(buffer_append_text(&buffer, "ab"), 0);
    assert_int_equal(buffer_append_text(&buffer, "cde"), -EMSGSIZE);
    buffer_done(&buffer);
    assert_int_equal(buffer_error(&buffer), 0);
    assert_int_equal(buffer_append_text(&buffer, "ab"), 0);
    buffer_done(&buffer);
}

static void latches_its_user_s_failure(void **state)
{
    struct buffer buffer = BUFFER_INIT(4);

    assert_int_equal(buffer_fail(&buffer, 0), 0);
    assert_int_equal(buffer_append_text(&buffer, "a"), 0);
    assert_int_equal(buffer_fail(&buffer, -ENOMEM), -ENOMEM);
    assert_int_equal(buffer_append_text(&buffer, "b"), -ENOMEM);
    assert_string_equal(buffer_text(&buffer), "a");
    buffer_done(&buffer);
}

static void goes_back_to_a_mark(void **state)
{
    struct buffer buffer = BUFFER_INIT(4);
    struct buffer_mark empty = buffer_mark(&buffer), mark, failed;

    buffer_rewind(&buffer, empty);
    assert_string_equal(buffer_text(&buffer), "");
    assert_int_equal(buffer_append_text(&buffer, "ab"), 0);
    mark = buffer_mark(&buffer);
    assert_int_equal(buffer_append_text(&buffer, "c"), 0);
    assert_int_equal(buffer_append_text(&buffer, "de"), -EMSGSIZE);
    failed = buffer_mark(&buffer);
    buffer_rewind(&buffer, mark);
    assert_string_equal(buffer_text(&buffer), "ab");
    assert_int_equal(buffer_append_text(&buffer, "cd"), 0);
    /* A failure from before the mark stays. */
    buffer_rewind(&buffer, failed);
    assert_string_equal(buffer_text(&buffer), "abc");
    assert_int_equal(buffer_append_text(&buffer, "d"), -EMSGSIZE);
    buffer_done(&buffer);
}

static void grows_byte_by_byte(void **state)
{
    struct buffer buffer;

    buffer_init(&buffer, 10000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(buffer_append(&buffer, &(char){(char)('a' + i % 26)}, 1), 0);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(buffer.data[i], 'a' + i % 26);
    assert_int_equal(buffer_append(&buffer, "x", 1), -EMSGSIZE);
    buffer_done(&buffer);
}

/* Reads `length` bytes that a pipe holds. */
static int read_from_pipe(struct buffer *buffer, size_t length)
{
    char bytes[64];
    int ends[2], r;

    memset(bytes, 'z', sizeof(bytes));
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], bytes, length), length);
    close(ends[1]);
    r = buffer_read_all(buffer, ends[0]);
    close(ends[0]);
    return r;
}

static void reads_until_the_end(void **state)
{
    struct buffer buffer = BUFFER_INIT(10);

    assert_int_equal(read_from_pipe(&buffer, 0), 0);
    assert_string_equal(buffer_text(&buffer), "");
    assert_int_equal(read_from_pipe(&buffer, 10), 0);
    assert_int_equal(buffer.length, 10);
    buffer_clear(&buffer);
    assert_int_equal(buffer_append_text(&buffer, "ab"), 0);
    assert_int_equal(read_from_pipe(&buffer, 9), -EMSGSIZE);
    assert_string_equal(buffer_text(&buffer), "ab");
    assert_int_equal(buffer_error(&buffer), 0);
    assert_int_equal(buffer_read_all(&buffer, -1), -EBADF);
    assert_string_equal(buffer_text(&buffer), "ab");
    buffer_done(&buffer);
}

static void done_takes_null(void **state)
{
    buffer_done(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_text_at_every_moment),
        cmocka_unit_test(keeps_to_its_limit),
        cmocka_unit_test(grows_byte_by_byte),
        cmocka_unit_test(reads_until_the_end),
        cmocka_unit_test(done_takes_null),
        cmocka_unit_test(appends_nothing_after_a_failure),
        cmocka_unit_test(a_failure_ends_with_what_was_appended),
        cmocka_unit_test(latches_its_user_s_failure),
        cmocka_unit_test(goes_back_to_a_mark),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
