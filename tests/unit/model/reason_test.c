/* SPDX-License-Identifier: Apache-2.0 */
/* reason_test.c - every state and reason has a text. Which pairs of them there are is held against
 * the decisions (tests/unit/reconciler/decide/decide_test.c). */
#include "model/reason.h"

#include <string.h>

#include "tests/unit/test.h"

static void every_state_and_reason_has_a_name(void **state)
{
    for (unsigned i = 0; i < STATES; i++)
        if (!state_name(i))
            fail_msg("state %u has no row", i);
    for (unsigned i = 0; i < REASONS; i++)
        if (!reason_name(i))
            fail_msg("reason %u has no row", i);
}

static void every_state_and_reason_is_explained(void **state)
{
    for (unsigned pair = 0; pair < STATES * REASONS; pair++) {
        const enum volume_state of = pair / REASONS;
        const enum volume_reason reason = pair % REASONS;
        const struct explanation *text = reason_explain(reason, of);

        if (!state_explain(of)->meaning)
            fail_msg("%s is not explained", state_name(of));
        if (reason == REASON_NONE || !reason_is_of(reason, of)) {
            assert_null(text);
            continue;
        }
        if (!text || !text->meaning)
            fail_msg("%s/%s is not explained", state_name(of), reason_name(reason));
        if (!text->remedy[0])
            fail_msg("%s/%s: nothing to do?", state_name(of), reason_name(reason));
    }
}

/* These reasons never keep a volume from being resized: remarks on a volume that is in sync or
 * unbound, a growth under way, and a volume without metadata. */
static bool is_no_obstacle(enum volume_reason reason)
{
    return reason == REASON_NONE || reason == REASON_UNSTAGED ||
           reason == REASON_BUNDLE_UNREADABLE || reason == REASON_HOST_STALE ||
           reason == REASON_HOST_LAYER_PENDING || reason == REASON_UNVERIFIED ||
           reason == REASON_GROWING;
}

static void every_reason_not_to_be_resizable_is_explained(void **state)
{
    for (unsigned i = 0; i < REASONS; i++) {
        const struct explanation *text = reason_explain_resizable(i);

        if (is_no_obstacle(i)) {
            assert_null(text);
            continue;
        }
        if (!text || !text->meaning)
            fail_msg("resizable: %s is not explained", reason_name(i));
        if (i != REASON_DETACHED && !text->remedy[0])
            fail_msg("resizable: %s: nothing to do?", reason_name(i));
    }
}

static void an_unknown_name_has_no_explanation(void **state)
{
    assert_int_equal(state_from_name("asleep"), STATES);
    assert_null(state_explain(STATES));
    assert_null(reason_explain(reason_from_name("asleep"), STATE_BLOCKED));
    assert_null(reason_explain(REASON_NONE, STATE_IN_SYNC));
    assert_null(reason_explain_resizable(reason_from_name("asleep")));
    for (unsigned i = 0; i < REASONS; i++)
        assert_null(reason_explain(i, STATES));
}

/* What the kubelet makes of it: a reader's pod starts, and a volume that the guest may remount is
 * asked for again. */
static void a_read_only_mount_in_the_guest_heals(void **state)
{
    for (unsigned i = 0; i < STATES; i++) {
        bool heals = i == STATE_BLOCK_GROWN;

        assert_int_equal(reason_heals(REASON_READ_ONLY, i), heals);
        assert_int_equal(reason_code(REASON_READ_ONLY, i),
                         heals ? STATUS_UNAVAILABLE : STATUS_FAILED_PRECONDITION);
        assert_int_equal(reason_code(REASON_AGENT_DENIED, i), STATUS_FAILED_PRECONDITION);
    }
    assert_true(reason_heals(REASON_FILE_SYSTEM_SHUT_DOWN, STATE_BLOCK_GROWN));
    assert_int_equal(reason_code(REASON_FILE_SYSTEM_SHUT_DOWN, STATE_BLOCK_GROWN),
                     STATUS_UNAVAILABLE);
}

static void every_name_leads_back(void **state)
{
    for (unsigned i = 0; i < STATES; i++)
        assert_int_equal(state_from_name(state_name(i)), i);
    for (unsigned i = 0; i < REASONS; i++)
        assert_int_equal(reason_from_name(reason_name(i)), i);
    assert_int_equal(reason_from_name(""), REASON_NONE);
    assert_int_equal(reason_from_name("no such reason"), REASON_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_and_reason_has_a_name),
        cmocka_unit_test(every_state_and_reason_is_explained),
        cmocka_unit_test(every_reason_not_to_be_resizable_is_explained),
        cmocka_unit_test(an_unknown_name_has_no_explanation),
        cmocka_unit_test(a_read_only_mount_in_the_guest_heals),
        cmocka_unit_test(every_name_leads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
