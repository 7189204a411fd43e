/* SPDX-License-Identifier: Apache-2.0 */
/* kata_version_test.c - releases of Kata as their file tells them. */
#include "doctor/checks.h"
#include "tests/unit/doctor/findings.h"

static void expect(const char *text, const char *level)
{
    struct written written;

    written_begin(&written);
    kata_version_judge(text, &written.findings);
    written_end(&written);
    written_expect(&written, "kata_version", "", level);
    written_done(&written);
}

static void a_version_is_read(void **state)
{
    expect("4.1.0\n", "ok");
    expect("3.26.0-rc0", "ok");
    expect("3.2.0-113-gb9aee8b6f\n", "ok"); /* git describe */
}

static void text_without_a_version_is_refused(void **state)
{
    static const char *const texts[] = {"",       "4",      "4.1",    "v4.1.0",
                                        "4.1.x",  "4..0",   "-4.1.0", "99999999999999999999.1.0",
                                        "4.1.0x", " 4.1.0", "4. 1.0", "4.-1.0",
                                        "4.1.+0"};

    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        expect(texts[i], "warning");
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
