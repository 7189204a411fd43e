/* SPDX-License-Identifier: Apache-2.0 */
/* kata_version_test.c - releases of Kata as their file tells them. */
#include "doctor/checks.h"
#include "tests/unit/doctor/findings.h"

static void a_version_is_read(void **state)
{
    unsigned major, minor;

    assert_true(kata_version_parse("4.1.0\n", &major, &minor));
    assert_int_equal(major, 4);
    assert_int_equal(minor, 1);
    assert_true(kata_version_parse("3.26.0-rc0", &major, &minor));
    assert_int_equal(minor, 26);
    assert_true(kata_version_parse("3.2.0-113-gb9aee8b6f\n", &major, &minor)); /* git describe */
}

static void text_without_a_version_is_refused(void **state)
{
    static const char *const texts[] = {"",       "4",      "4.1",    "v4.1.0",
                                        "4.1.x",  "4..0",   "-4.1.0", "99999999999999999999.1.0",
                                        "4.1.0x", " 4.1.0", "4. 1.0", "4.-1.0",
                                        "4.1.+0"};
    unsigned major, minor;

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (kata_version_parse(texts[i], &major, &minor))
            fail_msg("\"%s\"", texts[i]);
}

static void expect(const char *text, const char *level)
{
    struct written written;

    written_begin(&written);
    kata_version_judge(text, &written.findings);
    written_end(&written);
    written_expect(&written, "kata_version", "", level);
    written_done(&written);
}

static void direct_volumes_came_with_2_4(void **state)
{
    expect("1.13.0", "error");
    expect("2.3.1", "error");
    expect("2.4.0", "ok");
    expect("3.0.0", "ok");
    expect("master", "warning");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_version_is_read),
        cmocka_unit_test(text_without_a_version_is_refused),
        cmocka_unit_test(direct_volumes_came_with_2_4),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
