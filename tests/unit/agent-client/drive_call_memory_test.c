/* SPDX-License-Identifier: Apache-2.0 */
/* drive_call_memory_test.c - a list of drives, there and back, while memory runs out. */
#include "tests/unit/without_memory.h"

#include "agent-client/drive_call.h"
#include "lib/cleanup.h"

static int pass_list(const char *text, size_t length)
{
    static struct drive_guest_entry entry = {.serial = DRIVE_SERIAL_PREFIX "aaaaaaaaaaaaaa",
                                             .state = DRIVE_GUEST_PRESENT};
    const struct drive_guest_list list = {.count = 1, .entries = &entry};
    cleanup(drive_guest_list_done) struct drive_guest_list read = {.count = 0};
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(64 * 1024);
    int r = drive_append_list(&payload, &list);

    (void)text;
    (void)length;
    if (r == 0)
        r = drive_parse_list(buffer_text(&payload), payload.length, &read);
    if (r == 0)
        assert_int_equal(read.count, 1);
    return r;
}

static void failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    assert_true(fail_all(pass_list, "", 0) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_allocation_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
