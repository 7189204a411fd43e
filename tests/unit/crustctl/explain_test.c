/* explain_test.c - every state and reason has a text, and no text is for nothing. */
#include "lib/explain.h"

#include <string.h>

#include "crustctl/states.h"
#include "reconciler/decide/state.h"
#include "tests/unit/test.h"

static void every_state_and_reason_is_explained(void **state)
{
    (void)state;
    for (const struct state_reason *row = state_reasons; row->state; row++) {
        const struct explanation *reason = explain_reason(row->state, row->reason);

        if (!explain_state(row->state))
            fail_msg("%s is not explained", row->state);
        if (strcmp(row->reason, "none") != 0 && !reason)
            fail_msg("%s/%s is not explained", row->state, row->reason);
        if (strcmp(row->reason, "none") != 0 && !reason->remedy[0])
            fail_msg("%s/%s: nothing to do?", row->state, row->reason);
    }
}

/* What is only a remark on a volume that is in sync, and what nobody is told. */
static bool is_no_obstacle(enum volume_reason reason)
{
    return reason == REASON_NONE || reason == REASON_HOST_STALE ||
           reason == REASON_HOST_LAYER_PENDING;
}

static void every_reason_not_to_be_resizable_is_explained(void **state)
{
    (void)state;
    for (unsigned i = 0; i < REASONS; i++) {
        const struct explanation *text = explain_resizable(reason_name(i));

        if (is_no_obstacle(i))
            continue;
        if (!text)
            fail_msg("resizable: %s is not explained", reason_name(i));
        if (i != REASON_DETACHED && !text->remedy[0])
            fail_msg("resizable: %s: nothing to do?", reason_name(i));
    }
    assert_null(explain_resizable("none"));
    assert_null(explain_resizable(""));
    assert_null(explain_resizable("asleep"));
}

/* Of those that are no state's. */
static bool is_about_resizable(const struct explanation *text)
{
    return text->state && strcmp(text->state, "resizable") == 0 &&
           explain_resizable(text->reason) == text;
}

static void no_explanation_is_left_over(void **state)
{
    (void)state;
    for (const struct explanation *text = explanations; text->meaning; text++) {
        const struct state_reason *row = state_reasons;

        if (is_about_resizable(text))
            continue;
        while (row->state && explain_state(row->state) != text &&
               explain_reason(row->state, row->reason) != text)
            row++;
        if (!row->state)
            fail_msg("nothing has the state %s and the reason %s", text->state, text->reason);
    }
}

static void what_is_not_known_is_not_explained(void **state)
{
    (void)state;
    assert_null(explain_state("asleep"));
    assert_null(explain_reason("blocked", "asleep"));
    assert_null(explain_reason("in_sync", "none"));
}

static void states_are_selected(void **state)
{
    (void)state;
    assert_true(states_is_selector("in_sync"));
    assert_true(states_is_selector("in_sync/none"));
    assert_true(states_is_selector("blocked/read_only"));
    assert_false(states_is_selector("in_sync/read_only"));
    assert_false(states_is_selector("in_syn"));
    assert_false(states_is_selector("in_sync_"));
    assert_false(states_is_selector("blocked/"));
    assert_false(states_is_selector(""));
    assert_true(states_match("blocked", "blocked", "read_only"));
    assert_true(states_match("blocked/read_only", "blocked", "read_only"));
    assert_false(states_match("blocked/read_only", "blocked", "no_device"));
    assert_false(states_match("block", "blocked", "none"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_state_and_reason_is_explained),
        cmocka_unit_test(every_reason_not_to_be_resizable_is_explained),
        cmocka_unit_test(no_explanation_is_left_over),
        cmocka_unit_test(what_is_not_known_is_not_explained),
        cmocka_unit_test(states_are_selected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
