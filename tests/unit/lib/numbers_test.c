/* SPDX-License-Identifier: Apache-2.0 */
/* numbers_test.c - what the kernel writes, and texts that are nearly that. */
#include "tests/unit/test.h"

#include "lib/cleanup.h"
#include "lib/quantity.h"

static void device_number_is_read(void **state)
{
    const char text[] = "8:16\n";
    uint32_t numbers[2];

    assert_ptr_equal(numbers_read(text, ":", 10, numbers), text + 4);
    assert_int_equal(numbers[0], 8);
    assert_int_equal(numbers[1], 16);
}

static void pci_address_is_read(void **state)
{
    const char text[] = "00fF:0a:1f.7";
    uint32_t numbers[4];

    assert_ptr_equal(numbers_read(text, "::.", 16, numbers), text + sizeof(text) - 1);
    assert_int_equal(numbers[0], 0xff);
    assert_int_equal(numbers[1], 0x0a);
    assert_int_equal(numbers[2], 0x1f);
    assert_int_equal(numbers[3], 7);
}

static void space_stands_for_several(void **state)
{
    uint32_t numbers[3];

    assert_non_null(numbers_read("0          0 4294967295\n", "  ", 10, numbers));
    assert_int_equal(numbers[0], 0);
    assert_int_equal(numbers[1], 0);
    assert_int_equal(numbers[2], UINT32_MAX);
}

static void caller_sees_what_follows(void **state)
{
    uint32_t numbers[2];

    assert_string_equal(numbers_read("1:2:3", ":", 10, numbers), ":3");
    assert_string_equal(numbers_read("1:0x2", ":", 16, numbers), "x2");
    assert_string_equal(numbers_read("7f", "", 10, numbers), "f");
}

static void other_texts_are_refused(void **state)
{
    static const char *const texts[] = {
        "",     ":",    "1",    "1:",   ":1",           "1:-2",         "-1:2",
        "+1:2", " 1:2", "1: 2", "1 :2", "4294967296:1", "1:4294967296", "99999999999999999999999:1",
        "1::2", "a:1",  "1;2",
    };
    uint32_t numbers[2];

    for (size_t i = 0; i < array_length(texts); i++)
        if (numbers_read(texts[i], ":", 10, numbers))
            fail_msg("\"%s\" was read", texts[i]);
    assert_null(numbers_read("1", " ", 10, numbers));
    assert_null(numbers_read("1 ", " ", 10, numbers));
    assert_null(numbers_read("g", "", 16, numbers));
    assert_null(numbers_read("100000000", "", 16, numbers));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(device_number_is_read),    cmocka_unit_test(pci_address_is_read),
        cmocka_unit_test(space_stands_for_several), cmocka_unit_test(caller_sees_what_follows),
        cmocka_unit_test(other_texts_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
