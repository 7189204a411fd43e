/* SPDX-License-Identifier: Apache-2.0 */
/* display_test.c - escaping, widths, shortening, wrapping. */
#include "crustctl/crustctl.h"

#include <string.h>

#include "lib/cleanup.h"
#include "tests/unit/test.h"

static int set_up(void **state)
{
    display_init();
    return 0;
}

static void terminal_control_characters_are_escaped(void **state)
{
    static const struct {
        const char *text;
        const char *shown;
    } cases[] = {
        {"plain \"text\" \\ é 漢", "plain \"text\" \\ é 漢"},
        {"\x1b[2J", "\\u001b[2J"},
        {"a\nb\tc\x7f", "a\\u000ab\\u0009c\\u007f"},
        {"\xc2\x9b"
         "31m",
         "\\u009b31m"},
        {"gpj.\xe2\x80\xae"
         "exe",
         "gpj.\\u202eexe"},
        {"\xff\xc3", "\\xff\\xc3"},
        {"", ""},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        cleanup(buffer_done) struct buffer out = BUFFER_INIT(0);

        assert_int_equal(display_append(&out, cases[i].text), 0);
        assert_string_equal(buffer_text(&out), cases[i].shown);
    }
}

static void widths_are_columns(void **state)
{
    assert_int_equal(display_width(""), 0);
    assert_int_equal(display_width("abc"), 3);
    assert_int_equal(display_width("é"), 1);
    assert_int_equal(display_width("e\xcc\x81"), 1);
    assert_int_equal(display_width("漢字"), 4);
    assert_int_equal(display_width("…"), 1);
}

static void cells_have_their_width(void **state)
{
    static const char *const texts[] = {"",
                                        "a",
                                        "漢字漢字漢字",
                                        "/var/lib/kubelet/pods/1/mount",
                                        "\x1b\x1b\x1b\x1b",
                                        "ééééééééééééé"};

    for (size_t i = 0; i < array_length(texts); i++)
        for (unsigned width = 1; width < 30; width++) {
            cleanup(buffer_done) struct buffer left = BUFFER_INIT(0), right = BUFFER_INIT(0);

            assert_int_equal(display_append_cell(&left, texts[i], width, DISPLAY_LEFT), 0);
            assert_int_equal(display_append_cell(&right, texts[i], width, DISPLAY_RIGHT), 0);
            assert_int_equal(display_width(buffer_text(&left)), width);
            assert_int_equal(display_width(buffer_text(&right)), width);
        }
}

static void names_are_shortened_in_the_middle(void **state)
{
    cleanup(buffer_done) struct buffer out = BUFFER_INIT(0);

    assert_int_equal(display_append_cell(&out, "/var/lib/kubelet/pods/1/mount", 14, DISPLAY_SHORT),
                     0);
    assert_string_equal(buffer_text(&out), "/var…s/1/mount");
}

static void prose_is_wrapped(void **state)
{
    cleanup(buffer_done) struct buffer out = BUFFER_INIT(0), plain = BUFFER_INIT(0);

    assert_int_equal(display_append_wrapped(&out, "one two three four five", "  - ", 4, 13), 0);
    assert_string_equal(buffer_text(&out), "  - one two\n    three\n    four five\n");
    assert_int_equal(display_append_wrapped(&plain, "word unbreakablelongword x", NULL, 0, 10), 0);
    assert_string_equal(buffer_text(&plain), "word\nunbreakablelongword\nx\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terminal_control_characters_are_escaped),
        cmocka_unit_test(widths_are_columns),
        cmocka_unit_test(cells_have_their_width),
        cmocka_unit_test(names_are_shortened_in_the_middle),
        cmocka_unit_test(prose_is_wrapped),
    };

    return cmocka_run_group_tests(tests, set_up, NULL);
}
