/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_codec_test.c - content types, times, messages and texts as gRPC writes them. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "api/grpc_call.h"
#include "lib/cleanup.h"

static void content_types(void **state)
{
    assert_true(grpc_is_content_type("application/grpc"));
    assert_true(grpc_is_content_type("application/grpc+proto"));
    assert_true(grpc_is_content_type("application/grpc;x=y"));
    assert_false(grpc_is_content_type("application/grpc-web"));
    assert_false(grpc_is_content_type("application/json"));
    assert_false(grpc_is_content_type(""));
}

static void timeouts(void **state)
{
    static const struct {
        const char *text;
        uint64_t nanoseconds;
    } good[] = {
        {"0n", 0},
        {"1n", 1},
        {"7u", 7000},
        {"500m", 500000000},
        {"12S", UINT64_C(12000000000)},
        {"2M", UINT64_C(120000000000)},
        {"1H", UINT64_C(3600000000000)},
        {"00000001S", 1000000000},
        {"99999999H", INT64_MAX},
    };
    static const char *const bad[] = {"",   "1",   "S",    "123456789S", "-1S",
                                      "1x", "1S ", "1.5S", " 1S"};
    uint64_t nanoseconds;

    for (size_t i = 0; i < array_length(good); i++) {
        assert_int_equal(grpc_parse_timeout(good[i].text, &nanoseconds), 0);
        assert_true(nanoseconds == good[i].nanoseconds);
    }
    for (size_t i = 0; i < array_length(bad); i++)
        assert_int_equal(grpc_parse_timeout(bad[i], &nanoseconds), -EINVAL);
}

static void one_message_is_found(void **state)
{
    static const struct {
        const char *body;
        size_t length;
        int outcome;
    } cases[] = {
        {"", 0, GRPC_EMPTY},
        {"\0\0\0", 3, GRPC_CUT},
        {"\0\0\0\0\0", 5, GRPC_MESSAGE},
        {"\0\0\0\0\2ab", 7, GRPC_MESSAGE},
        {"\0\0\0\0\2a", 6, GRPC_CUT},
        {"\0\0\0\0\2abc", 8, GRPC_SEVERAL},
        {"\1\0\0\0\2ab", 7, GRPC_COMPRESSED},
        {"\0\0\1\0\1", 5, GRPC_OVERSIZE},
        {"\0\xff\xff\xff\xff", 5, GRPC_OVERSIZE},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        const void *message = NULL;
        size_t length = 99;

        assert_int_equal(grpc_find_message(cases[i].body, cases[i].length, &message, &length),
                         cases[i].outcome);
        if (cases[i].outcome == GRPC_MESSAGE) {
            assert_ptr_equal(message, cases[i].body + GRPC_PREFIX_BYTES);
            assert_int_equal(length, cases[i].length - GRPC_PREFIX_BYTES);
        }
    }
}

static void a_message_comes_back(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(100);
    const void *message;
    size_t length;

    assert_int_equal(grpc_append_prefix(&body, 5), 0);
    assert_int_equal(buffer_append_text(&body, "hello"), 0);
    assert_int_equal(grpc_find_message(body.data, body.length, &message, &length), GRPC_MESSAGE);
    assert_int_equal(length, 5);
    assert_memory_equal(message, "hello", 5);
}

static void texts_are_escaped(void **state)
{
    char text[16];

    grpc_escape_text("a b~", text, sizeof(text));
    assert_string_equal(text, "a b~");
    grpc_escape_text("50%\n\xc3\xa9", text, sizeof(text));
    assert_string_equal(text, "50%25%0A%C3%A9");
    grpc_escape_text("12345678901234%", text, sizeof(text));
    assert_string_equal(text, "12345678901234");
    grpc_escape_text("x", text, 1);
    assert_string_equal(text, "");
}

static void a_message_without_room_is_not_begun(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(GRPC_PREFIX_BYTES - 1);

    assert_true(grpc_append_prefix(&body, 1) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(content_types),
        cmocka_unit_test(timeouts),
        cmocka_unit_test(one_message_is_found),
        cmocka_unit_test(a_message_comes_back),
        cmocka_unit_test(a_message_without_room_is_not_begun),
        cmocka_unit_test(a_message_comes_back),
        cmocka_unit_test(texts_are_escaped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
