/* SPDX-License-Identifier: Apache-2.0 */
/* http2_memory_test.c - blocks, and the bound on them. */
#include "tests/unit/test.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "api/http2.h"

static void returned_memory_can_be_taken_again(void **state)
{
    struct http2_memory memory = {.limit = 10000};
    nghttp2_mem from = http2_memory_use(&memory);

    for (unsigned i = 0; i < 100; i++) {
        char *block = from.malloc(5000, from.mem_user_data);

        assert_non_null(block);
        memset(block, 1, 5000);
        assert_in_range(memory.used, 5000, 10000);
        from.free(block, from.mem_user_data);
        assert_int_equal(memory.used, 0);
    }
    from.free(NULL, from.mem_user_data);
    assert_int_equal(memory.used, 0);
}

static void beyond_the_limit_there_is_nothing(void **state)
{
    struct http2_memory memory = {.limit = 10000};
    nghttp2_mem from = http2_memory_use(&memory);
    void *block = from.malloc(6000, from.mem_user_data);
    size_t used = memory.used;

    assert_non_null(block);
    assert_null(from.malloc(6000, from.mem_user_data));
    assert_null(from.malloc(10001, from.mem_user_data));
    assert_null(from.malloc(SIZE_MAX - 8, from.mem_user_data));
    assert_null(from.calloc(SIZE_MAX / 2, 4, from.mem_user_data));
    assert_null(from.realloc(block, 10000, from.mem_user_data));
    assert_int_equal(memory.used, used);
    from.free(block, from.mem_user_data);
    assert_int_equal(memory.used, 0);
}

/* Small blocks cost what they are preceded by, too. */
static void many_small_ones_are_bounded(void **state)
{
    struct http2_memory memory = {.limit = 10000};
    nghttp2_mem from = http2_memory_use(&memory);
    void *blocks[1000];
    unsigned count = 0;

    while (count < 1000 && (blocks[count] = from.malloc(1, from.mem_user_data)))
        count++;
    assert_in_range(count, 100, 10000 / (1 + sizeof(max_align_t)));
    while (count > 0)
        from.free(blocks[--count], from.mem_user_data);
    assert_int_equal(memory.used, 0);
}

static void a_block_grows_and_shrinks(void **state)
{
    struct http2_memory memory = {.limit = 10000};
    nghttp2_mem from = http2_memory_use(&memory);
    char *block = from.calloc(10, 10, from.mem_user_data);
    size_t used = memory.used;

    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(block[i], 0);
    (void)snprintf(block, 100, "kept");
    block = from.realloc(block, 9000, from.mem_user_data);
    assert_non_null(block);
    assert_string_equal(block, "kept");
    assert_int_equal(memory.used, used + 8900);
    block = from.realloc(block, 100, from.mem_user_data);
    assert_string_equal(block, "kept");
    assert_int_equal(memory.used, used);
    from.free(block, from.mem_user_data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(returned_memory_can_be_taken_again),
        cmocka_unit_test(beyond_the_limit_there_is_nothing),
        cmocka_unit_test(many_small_ones_are_bounded),
        cmocka_unit_test(a_block_grows_and_shrinks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
