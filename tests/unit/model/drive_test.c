/* SPDX-License-Identifier: Apache-2.0 */
/* drive_test.c - the words about drives, and what belongs to them. */
#include "model/drive.h"

#include "tests/unit/test.h"

static void every_name_leads_back(void **state)
{
    for (unsigned i = 0; i < DRIVE_STATES; i++)
        assert_int_equal(drive_state_from_name(drive_state_name(i)), i);
    for (unsigned i = 0; i < DRIVE_FSCKS; i++)
        assert_int_equal(drive_fsck_from_name(drive_fsck_name(i)), i);
    for (unsigned i = 0; i < DRIVE_GROUP_POLICIES; i++)
        assert_int_equal(drive_group_policy_from_name(drive_group_policy_name(i)), i);
    assert_int_equal(drive_state_from_name("other"), DRIVE_STATES);
    assert_string_equal(drive_state_name(DRIVE_STATES), "other");
    assert_int_equal(drive_fsck_from_name("Preen"), DRIVE_FSCKS);
    assert_int_equal(drive_group_policy_from_name("always"), DRIVE_GROUP_POLICIES);
}

/* From the moment the guest may have been asked to mount, until it said that it has unmounted. */
static void a_drive_is_flushed_while_no_guest_may_have_it_mounted(void **state)
{
    for (unsigned i = 0; i < DRIVE_STATES; i++)
        assert_int_equal(drive_state_is_flushed(i),
                         i < DRIVE_SEEN || (i >= DRIVE_UNMOUNTED && i != DRIVE_LOST));
}

static void three_states_are_an_end(void **state)
{
    for (unsigned i = 0; i < DRIVE_STATES; i++)
        assert_int_equal(drive_state_is_end(i), i >= DRIVE_REMOVED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_leads_back),
        cmocka_unit_test(a_drive_is_flushed_while_no_guest_may_have_it_mounted),
        cmocka_unit_test(three_states_are_an_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
