/* SPDX-License-Identifier: Apache-2.0 */
/* kata_version_test.c - releases of Kata as their file tells them. */
#include "tests/unit/test.h"

#include "doctor/checks.h"

static void a_version_is_read(void **state)
{
    struct kata_version version;

    (void)state;
    assert_true(kata_version_parse("4.1.0\n", &version));
    assert_int_equal(version.major, 4);
    assert_int_equal(version.minor, 1);
    assert_true(kata_version_parse("3.26.0-rc0", &version));
    assert_int_equal(version.minor, 26);
    assert_true(kata_version_parse("3.2.0-113-gb9aee8b6f\n", &version)); /* git describe */
}

static void text_without_a_version_is_refused(void **state)
{
    static const char *const texts[] = {"",       "4",     "4.1",    "v4.1.0",
                                        "4.1.x",  "4..0",  "-4.1.0", "99999999999999999999.1.0",
                                        "4.1.0x", " 4.1.0"};
    struct kata_version version;

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_false(kata_version_parse(texts[i], &version));
}

static void direct_volumes_came_with_2_4(void **state)
{
    (void)state;
    assert_false(kata_version_has_direct_volumes(&(struct kata_version){1, 13}));
    assert_false(kata_version_has_direct_volumes(&(struct kata_version){2, 3}));
    assert_true(kata_version_has_direct_volumes(&(struct kata_version){2, 4}));
    assert_true(kata_version_has_direct_volumes(&(struct kata_version){3, 0}));
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
