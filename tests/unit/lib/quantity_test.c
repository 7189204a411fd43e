/* SPDX-License-Identifier: Apache-2.0 */
/* quantity_test.c - every suffix, exact fractions, and what is refused. */
#include "tests/unit/test.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/quantity.h"

static void expect(const char *text, uint64_t bytes)
{
    uint64_t number = 1;
    int r = quantity_parse(text, &number);

    if (r != 0 || number != bytes)
        fail_msg("\"%s\" is %d, %" PRIu64 ", not %" PRIu64, text, r, number, bytes);
}

static void expect_error(const char *text, int error)
{
    uint64_t number = 1;
    int r = quantity_parse(text, &number);

    if (r != error)
        fail_msg("\"%s\" is %d, not %d", text, r, error);
    assert_int_equal(number, 1);
    assert_non_null(quantity_error(r));
}

static void plain_numbers_are_bytes(void **state)
{
    expect("0", 0);
    expect("1", 1);
    expect("0012", 12);
    expect("+12", 12);
    expect("9223372036854775807", INT64_MAX);
    expect("12.", 12);
    expect("12.0", 12);
    expect("100000000000000000.000000000000000000", 100000000000000000);
}

static void binary_suffixes_are_powers_of_two(void **state)
{
    expect("8Gi", UINT64_C(8) << 30);
    expect("1Ki", 1024);
    expect("3Mi", 3 << 20);
    expect("2Ti", UINT64_C(2) << 40);
    expect("4Pi", UINT64_C(4) << 50);
    expect("7Ei", UINT64_C(7) << 60);
}

static void decimal_suffixes_are_powers_of_ten(void **state)
{
    expect("5k", 5000);
    expect("500M", 500000000);
    expect("8G", UINT64_C(8000000000));
    expect("1T", UINT64_C(1000000000000));
    expect("2P", UINT64_C(2000000000000000));
    expect("9E", UINT64_C(9000000000000000000));
    expect("3000m", 3);
    expect("4000000u", 4);
    expect("5000000000n", 5);
}

static void exponents_are_powers_of_ten(void **state)
{
    expect("1e3", 1000);
    expect("1E3", 1000);
    expect("1e+3", 1000);
    expect("12e0", 12);
    expect("1500e-2", 15);
    expect("0.000001e9", 1000);
    expect("0e9999", 0);
}

static void fractions_are_taken_where_they_are_exact(void **state)
{
    expect("0.5Gi", UINT64_C(1) << 29);
    expect(".5Ki", 512);
    expect("1.5Ti", UINT64_C(3) << 39);
    expect("1.25k", 1250);
    expect("0.1k", 100);
    expect("2.5E", UINT64_C(2500000000000000000));
    expect("0.0009765625Ki", 1);
    expect_error("0.5", -EDOM);
    expect_error("1.0001k", -EDOM);
    expect_error("0.1Ki", -EDOM);
    expect_error("1m", -EDOM);
    expect_error("1e-1", -EDOM);
    expect_error("1e-99999", -EDOM);
    expect_error("1.00000000000000000000001", -EDOM);
}

static void impossible_sizes_are_refused(void **state)
{
    expect_error("9223372036854775808", -ERANGE);
    expect_error("8Ei", -ERANGE);
    expect_error("10E", -ERANGE);
    expect_error("1e19", -ERANGE);
    expect_error("1e9999", -ERANGE);
    expect_error("1e99999", -ERANGE);
    expect_error("99999999999999999999999999999999", -ERANGE);
}

static void other_texts_are_refused(void **state)
{
    static const char *const texts[] = {
        "",    " ",     "Gi",  "-1",   "-0",   "+",     "+-1",  "1 Gi",  "8gi", "8GiB",
        "8GB", "8KI",   "1K",  "1e",   "1e+",  "1e1.5", "1Ee",  "1.2.3", ".",   "0x10",
        "1,5", "1_000", "1\n", "8Gi ", " 8Gi", "1e3k",  "1Kii", "inf",   "nan"};
    char longest[80];

    for (size_t i = 0; i < array_length(texts); i++)
        expect_error(texts[i], -EINVAL);
    memset(longest, '0', sizeof(longest) - 1);
    longest[sizeof(longest) - 1] = '\0';
    expect_error(longest, -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_numbers_are_bytes),
        cmocka_unit_test(binary_suffixes_are_powers_of_two),
        cmocka_unit_test(decimal_suffixes_are_powers_of_ten),
        cmocka_unit_test(exponents_are_powers_of_ten),
        cmocka_unit_test(fractions_are_taken_where_they_are_exact),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(other_texts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
