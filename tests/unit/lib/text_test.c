/* SPDX-License-Identifier: Apache-2.0 */
/* text_test.c - what is UTF-8, and how anything is shown. */
#include "tests/unit/test.h"

#include <string.h>

#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/text.h"

static void every_character_survives(void **state)
{
    char bytes[4];
    uint32_t decoded;

    for (uint32_t character = 0; character <= 0x10FFFF; character++) {
        size_t length;

        if (character >= 0xD800 && character <= 0xDFFF)
            continue;
        length = text_encode_utf8(character, bytes);
        assert_int_equal(text_decode_utf8(bytes, length, &decoded), length);
        assert_int_equal(decoded, character);
        for (size_t cut = 0; cut < length; cut++)
            assert_int_equal(text_decode_utf8(bytes, cut, &decoded), 0);
    }
}

static void refuses_what_is_not_utf8(void **state)
{
    static const char *const cases[] = {
        "\x80",
        "\xBF",
        "\xC0\x80",
        "\xC1\xBF",
        "\xC2",
        "\xC2\x20",
        "\xE0\x80\x80",
        "\xE0\x9F\xBF",
        "\xED\xA0\x80",
        "\xED\xBF\xBF",
        "\xE2\x82",
        "\xE2\x28\xA1",
        "\xF0\x80\x80\x80",
        "\xF0\x8F\xBF\xBF",
        "\xF4\x90\x80\x80",
        "\xF5\x80\x80\x80",
        "\xFE",
        "\xFF",
        "ok\xFFok",
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_false(text_is_utf8(cases[i], strlen(cases[i])));
    assert_true(text_is_utf8("", 0));
    assert_true(text_is_utf8("\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", 9));
}

static void escapes(void **state)
{
    static const char text[] = "a\"\\\n\t\x01\x7F\xC2\x9B\xFF\xC3\xA4";
    const char *cursor = text, *end = text + sizeof(text) - 1;
    struct buffer shown = BUFFER_INIT(0);
    char escaped[TEXT_ESCAPED_BYTES];

    while (cursor < end)
        assert_int_equal(
            buffer_append(&shown, escaped, text_escape(&cursor, end, escaped, sizeof(escaped))), 0);
    assert_string_equal(buffer_text(&shown),
                        "a\\\"\\\\\\n\\t\\u0001\\u007f\\u009b\xEF\xBF\xBD\xC3\xA4");
    buffer_done(&shown);
}

static void escapes_nul(void **state)
{
    const char *cursor = "\0";
    char escaped[TEXT_ESCAPED_BYTES];

    assert_int_equal(text_escape(&cursor, cursor + 1, escaped, sizeof(escaped)), 6);
    assert_memory_equal(escaped, "\\u0000", 6);
}

static void cleans_for_a_person(void **state)
{
    static const struct {
        const char *text, *expected;
        size_t size;
    } cases[] = {
        {"it said \"no\"", "it said \"no\"", 64},
        {"a\nb\x1b[0m\x7f", "a\\nb\\u001b[0m\\u007f", 64},
        {"\xff\xc3", "\xef\xbf\xbd\xef\xbf\xbd", 64},
        {"\xc2\x85", "\\u0085", 64},
        {"aa\xc3\xa4", "aa", 4}, /* cut before a character that does not fit */
        {"abc", "", 1},
        {"", "", 1},
    };
    char text[64];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        text_clean(cases[i].text, strlen(cases[i].text), text, cases[i].size);
        assert_string_equal(text, cases[i].expected);
    }
    text_clean("a\0b", 3, text, sizeof(text));
    assert_string_equal(text, "a\\u0000b");
}

static void sizes_are_human(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {67108864, "64 MiB"},
        {67108865, "64.0 MiB"},
        {1610612736, "1.5 GiB"},
        {UINT64_C(1) << 40, "1 TiB"},
        {UINT64_MAX, "16.0 EiB"},
    };

    for (size_t i = 0; i < array_length(cases); i++)
        assert_string_equal(text_size(cases[i].bytes).text, cases[i].text);
}

static void times_lose_what_nobody_reads(void **state)
{
    assert_string_equal(text_time("2026-01-02T03:04:05.678Z").text, "2026-01-02 03:04:05");
    assert_string_equal(text_time("yesterday").text, "yesterday");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_character_survives),
        cmocka_unit_test(refuses_what_is_not_utf8),
        cmocka_unit_test(escapes),
        cmocka_unit_test(escapes_nul),
        cmocka_unit_test(cleans_for_a_person),
        cmocka_unit_test(sizes_are_human),
        cmocka_unit_test(times_lose_what_nobody_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
