/* SPDX-License-Identifier: Apache-2.0 */
/* key_queue_test.c - keys in their order, none twice. */
#include "tests/unit/test.h"

#include "reconciler/core/work_queue.h"

static void names_come_in_their_order_and_never_twice(void **state)
{
    struct key_queue queue = {0};
    char name[16];

    (void)state;
    key_queue_add_name(&queue, "b");
    key_queue_add_name(&queue, "a");
    key_queue_add_name(&queue, "b");
    assert_int_equal(key_queue_count(&queue), 2);
    assert_true(key_queue_take_name(&queue, name, sizeof(name)));
    assert_string_equal(name, "b");
    key_queue_add_name(&queue, "b");
    assert_true(key_queue_take_name(&queue, name, sizeof(name)));
    assert_string_equal(name, "a");
    assert_true(key_queue_take_name(&queue, name, sizeof(name)));
    assert_string_equal(name, "b");
    assert_false(key_queue_take_name(&queue, name, sizeof(name)));
    assert_true(key_queue_is_empty(&queue));
    key_queue_done(&queue);
}

static void one_is_removed_from_among_others(void **state)
{
    struct key_queue queue = {0};
    char name[16];

    (void)state;
    key_queue_remove_name(&queue, "a"); /* there are none */
    key_queue_add_name(&queue, "a");
    key_queue_add_name(&queue, "b");
    key_queue_remove_name(&queue, "c");
    key_queue_remove_name(&queue, "a");
    assert_int_equal(key_queue_count(&queue), 1);
    key_queue_add_name(&queue, "a");
    assert_true(key_queue_take_name(&queue, name, sizeof(name)));
    assert_string_equal(name, "b");
    key_queue_done(&queue);
    assert_true(key_queue_is_empty(&queue));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_come_in_their_order_and_never_twice),
        cmocka_unit_test(one_is_removed_from_among_others),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
