/* SPDX-License-Identifier: Apache-2.0 */
/* marks_test.c - keys in their order, none twice. */
#include "tests/unit/test.h"

#include "reconciler/core/marks.h"

static void names_come_in_their_order_and_never_twice(void **state)
{
    struct marks marks = {0};
    char name[16];

    (void)state;
    marks_add_name(&marks, "b");
    marks_add_name(&marks, "a");
    marks_add_name(&marks, "b");
    assert_int_equal(marks_count(&marks), 2);
    assert_true(marks_take_name(&marks, name, sizeof(name)));
    assert_string_equal(name, "b");
    marks_add_name(&marks, "b");
    assert_true(marks_take_name(&marks, name, sizeof(name)));
    assert_string_equal(name, "a");
    assert_true(marks_take_name(&marks, name, sizeof(name)));
    assert_string_equal(name, "b");
    assert_false(marks_take_name(&marks, name, sizeof(name)));
    assert_true(marks_is_empty(&marks));
    marks_done(&marks);
}

static void one_is_removed_from_among_others(void **state)
{
    struct marks marks = {0};
    char name[16];

    (void)state;
    marks_remove_name(&marks, "a"); /* there are none */
    marks_add_name(&marks, "a");
    marks_add_name(&marks, "b");
    marks_remove_name(&marks, "c");
    marks_remove_name(&marks, "a");
    assert_int_equal(marks_count(&marks), 1);
    marks_add_name(&marks, "a");
    assert_true(marks_take_name(&marks, name, sizeof(name)));
    assert_string_equal(name, "b");
    marks_done(&marks);
    assert_true(marks_is_empty(&marks));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_come_in_their_order_and_never_twice),
        cmocka_unit_test(one_is_removed_from_among_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
