/* SPDX-License-Identifier: Apache-2.0 */
/* guest_line_test.c - what a helper in the guest prints about a drive, and what a hostile guest may
 * print in its place. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "reconciler/drive/guest_line.h"

static struct drive_guest_line line;
static struct error error;

static int parse(const char *text)
{
    return drive_guest_line_parse(text, strlen(text), &line, &error);
}

static void a_drive_that_is_mounted(void **state)
{
    (void)state;
    assert_int_equal(parse("{\"version\":1,\"drive\":{\"status\":\"OK\",\"text\":\"\",\"device\":"
                           "\"sda\",\"mounted\":true,\"changed\":3,\"skipped\":2,\"failed\":1}}\n"),
                     0);
    assert_int_equal(line.status, STATUS_OK);
    assert_true(line.is_mounted);
    assert_string_equal(line.device, "sda");
    assert_int_equal(line.walk.changed, 3);
    assert_int_equal(line.walk.skipped, 2);
    assert_int_equal(line.walk.failed, 1);
}

static void expect_failure(const char *members, enum status_code status, const char *why)
{
    char text[512];

    (void)snprintf(text, sizeof(text), "{\"version\":1,\"drive\":{%s}}", members);
    assert_int_equal(parse(text), 0);
    assert_int_equal(line.status, status);
    assert_string_equal(line.error.text, why);
}

/* Whichever member it is taken from, it can be shown. */
static void why_it_failed_is_text(void **state)
{
    (void)state;
    expect_failure("\"status\":\"UNAVAILABLE\",\"text\":\"not\\nyet\"", STATUS_UNAVAILABLE,
                   "not\\nyet");
    expect_failure("\"status\":\"ALREADY_EXISTS\"", STATUS_ALREADY_EXISTS, "ALREADY_EXISTS");
    expect_failure("\"status\":\"\\u001b[1mOK\\n\"", STATUS_INTERNAL, "\\u001b[1mOK\\n");
    expect_failure("\"status\":\"\"", STATUS_INTERNAL, "without a reason");
}

#define LONG_NAME "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"

static void anything_else_is_no_line(void **state)
{
    static const char too_long[] =
        "{\"version\":1,\"drive\":{\"status\":\"OK\",\"device\":\"" LONG_NAME "\"}}";
    static const char *const texts[] = {
        "",
        "sda",
        "{\"version\":1,\"drive\":{\"status\":\"OK\",\"dev",
        "{\"version\":2,\"drive\":{\"status\":\"OK\"}}",
        "{\"drive\":{\"status\":\"OK\"}}",
        "{\"version\":1,\"drive\":{}}",
        "{\"version\":1,\"drive\":\"OK\"}",
        "{\"version\":1,\"drive\":{\"status\":\"OK\",\"device\":\"../sda\"}}",
        "{\"version\":1,\"drive\":{\"status\":\"OK\",\"device\":\"..\"}}",
        too_long,
    };

    (void)state;
    for (size_t i = 0; i < array_length(texts); i++) {
        assert_int_equal(parse(texts[i]), -EBADMSG);
        assert_non_null(strstr(error.text, "the helper's line"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_drive_that_is_mounted),
        cmocka_unit_test(why_it_failed_is_text),
        cmocka_unit_test(anything_else_is_no_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
