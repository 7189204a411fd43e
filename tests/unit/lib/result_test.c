/* SPDX-License-Identifier: Apache-2.0 */
/* result_test.c - errors carry a code and a text, whatever is put into them. */
#include "tests/unit/test.h"

#include <errno.h>
#include <string.h>

#include "lib/result.h"
#include "lib/text.h"

static void sets_code_and_text(void **state)
{
    struct error error;

    assert_int_equal(error_set(&error, -EINVAL, "line %d: %s", 7, "bad"), -EINVAL);
    assert_int_equal(error.code, -EINVAL);
    assert_string_equal(error.text, "line 7: bad");
}

static void appends_what_errno_means(void **state)
{
    struct error error;

    assert_int_equal(error_set_errno(&error, -ENOENT, "/x"), -ENOENT);
    assert_string_equal(error.text, "/x: No such file or directory");
}

static void puts_context_first(void **state)
{
    struct error error;

    error_set(&error, 3, "too long");
    assert_int_equal(error_prefix(&error, "%s:%d: ", "f.conf", 2), 3);
    assert_string_equal(error.text, "f.conf:2: too long");
    assert_int_equal(error.code, 3);
}

static void may_quote_its_own_text(void **state)
{
    struct error error;

    error_set(&error, -EIO, "inner");
    error_set(&error, -EPROTO, "outer (%s)", error.text);
    assert_string_equal(error.text, "outer (inner)");
}

static void cuts_long_text(void **state)
{
    struct error error;
    char path[4096];

    memset(path, 'a', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    error_set(&error, 1, "%s: is a link", path);
    assert_int_equal(strlen(error.text), ERROR_TEXT_BYTES - 1);
    assert_memory_equal(error.text, path, 100);
    assert_non_null(strstr(error.text, "a...a"));
    assert_non_null(strstr(error.text, "a: is a link"));
    error_set_errno(&error, -EIO, "%s", path);
    assert_non_null(strstr(error.text, "a: Input/output error"));
    error_prefix(&error, "%s/f.conf:7: ", path);
    assert_int_equal(strlen(error.text), ERROR_TEXT_BYTES - 1);
    assert_non_null(strstr(error.text, "a: Input/output error"));
}

static void cuts_between_characters(void **state)
{
    struct error error;
    char text[3 * ERROR_TEXT_BYTES + 4];

    for (size_t shift = 0; shift < 3; shift++) {
        memset(text, 'x', shift);
        for (size_t at = shift; at < 3 * ERROR_TEXT_BYTES; at += 3)
            memcpy(text + at, "\u20ac", 4);
        error_set(&error, 1, "%s", text);
        assert_true(text_is_utf8(error.text, strlen(error.text)));
        assert_in_range(strlen(error.text), ERROR_TEXT_BYTES - 5, ERROR_TEXT_BYTES - 1);
    }
}

static void takes_no_error_at_all(void **state)
{
    assert_int_equal(error_set(NULL, -EIO, "x"), -EIO);
    assert_int_equal(error_set_errno(NULL, -EIO, "x"), -EIO);
    assert_int_equal(error_prefix(NULL, "x"), 0);
}

static void leaves_errno_alone(void **state)
{
    struct error error;

    errno = EXDEV;
    error_set_errno(&error, -ENOENT, "x");
    error_prefix(&error, "y");
    assert_int_equal(errno, EXDEV);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sets_code_and_text),    cmocka_unit_test(appends_what_errno_means),
        cmocka_unit_test(puts_context_first),    cmocka_unit_test(may_quote_its_own_text),
        cmocka_unit_test(cuts_long_text),        cmocka_unit_test(cuts_between_characters),
        cmocka_unit_test(takes_no_error_at_all), cmocka_unit_test(leaves_errno_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
