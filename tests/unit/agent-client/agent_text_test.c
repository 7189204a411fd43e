/* SPDX-License-Identifier: Apache-2.0 */
/* agent_text_test.c - what errors from a guest look like when a person reads them. */
#include "tests/unit/test.h"

#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_messages.h"

static void check(const char *text, size_t length, const char *expected)
{
    char *exact = malloc(length + 1), clean[64];

    assert_non_null(exact);
    memcpy(exact, text, length);
    agent_clean_text(exact, length, clean, sizeof(clean));
    assert_string_equal(clean, expected);
    free(exact);
}

#define CHECK(text, expected) check(text, sizeof(text) - 1, expected)

static void quotes_around_the_text_go(void **state)
{
    (void)state;
    CHECK("\"resize_volume is not implemented\"", "resize_volume is not implemented");
    CHECK("\"\\\"twice\\\"\"", "twice");
    CHECK(" \n\"x\" \n", "x");
    CHECK("\"a\" and \"b", "\"a\" and \"b");
    CHECK("\"", "\"");
    CHECK("\"\"", "");
    CHECK("", "");
}

static void controls_and_bad_bytes_are_escaped(void **state)
{
    (void)state;
    CHECK("a\tb\x1b[31m", "a\\tb\\u001b[31m");
    CHECK("a\0b", "a\\u0000b");
    CHECK("gr\xc3\xbc\xc3\x9f", "gr\xc3\xbc\xc3\x9f");
    CHECK("\xff", "\xef\xbf\xbd");
    CHECK("\xc2\x85", "\\u0085");
}

static void backtrace_goes_and_lines_are_joined(void **state)
{
    (void)state;
    CHECK("the file /x was not found\n\nStack backtrace:\n   0: <unknown>\n",
          "the file /x was not found");
    CHECK("\"no\"\n\nStack backtrace:\n   0: <unknown>", "no");
    CHECK("make it\n\nCaused by:\n    0: one\n    1: two\n\nStack backtrace:\n   0: <unknown>",
          "make it Caused by: 0: one 1: two");
    CHECK("Stack backtrace:", "Stack backtrace:");
    CHECK("a  b \t\n", "a  b");
}

static void long_texts_are_cut_between_characters(void **state)
{
    char clean[8];

    (void)state;
    agent_clean_text("abcdefghij", 10, clean, sizeof(clean));
    assert_string_equal(clean, "abcdefg");
    agent_clean_text("abcdef\xc3\xbc", 8, clean, sizeof(clean));
    assert_string_equal(clean, "abcdef");
    agent_clean_text("x", 1, clean, 1);
    assert_string_equal(clean, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quotes_around_the_text_go),
        cmocka_unit_test(controls_and_bad_bytes_are_escaped),
        cmocka_unit_test(backtrace_goes_and_lines_are_joined),
        cmocka_unit_test(long_texts_are_cut_between_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
