/* SPDX-License-Identifier: Apache-2.0 */
/* run_refusal_test.c - helpers that are refused before anything is made, and the removal of what an
 * earlier one left. */
#include "tests/unit/reconciler/helper/run_fixture.h"

/* ---- refusals before anything is made ---- */

static void nothing_is_brought_into_a_confidential_guest(void **state)
{
    (void)state;
    test.traits.is_confidential = true;
    grow();
    assert_ended(REASON_AGENT_UNSUPPORTED, "confidential");
    assert_int_equal(test.programs, 0);
    assert_int_equal(test.containers, 0);
    assert_ability("agent_unsupported");
    assert_nothing_is_left();
}

static void a_guest_that_is_unknown_may_be_confidential(void **state)
{
    (void)state;
    test.unobservable = -ESRCH;
    grow();
    assert_ended(REASON_AGENT_UNREACHABLE, "does not tell whether its guest is confidential");
    assert_int_equal(test.programs, 0);
    assert_ability(""); /* it may be told the next time */
}

/* Nothing will ever tell, so asking again is of no use: the guest needs an agent of its own. */
static void guest_of_unknown_traits_is_not_tried_again(void **state)
{
    (void)state;
    test.unobservable = GUEST_TRAITS_NO_SOURCE;
    grow();
    assert_ended(REASON_AGENT_UNSUPPORTED, "crustd does not know how to find out for QEMU");
    assert_int_equal(test.programs, 0);
    assert_ability("agent_unsupported");
    assert_nothing_is_left();
}

static void unusable_program_is_reported(void **state)
{
    static const struct {
        int result;
        enum volume_reason reason;
    } table[] = {
        {HELPER_PROGRAM_MISSING, REASON_HELPER_MISSING},
        {HELPER_PROGRAM_FOREIGN, REASON_HELPER_WRONG_ARCHITECTURE},
        {-EMFILE, REASON_HELPER_FAILED},
    };

    (void)state;
    for (size_t i = 0; i < array_length(table); i++) {
        test.program_result = table[i].result;
        grow();
        assert_ended(table[i].reason, "no such program");
        assert_int_equal(test.containers, 0);
        assert_nothing_is_left();
    }
}

static void sandbox_without_a_share_is_reported(void **state)
{
    (void)state;
    tree_remove(MOUNTS);
    grow();
    assert_ended(REASON_HELPER_NO_SHARE, "sandbox-1/mounts");
    assert_int_equal(records(), 0);
    assert_int_equal(lines_of(test.node.context.store, "helper_intended"), 0);
}

static void lack_of_descriptors_is_no_verdict_on_the_share(void **state)
{
    (void)state;
    test.exhausts_descriptors = true;
    grow();
    assert_ended(REASON_HELPER_FAILED, "sandbox-1/mounts");
}

static void a_helper_that_cannot_be_recorded_is_not_placed(void **state)
{
    (void)state;
    fail_writes(test.node.context.store);
    grow();
    assert_ended(REASON_HELPER_FAILED, "cannot be put on record");
    assert_int_equal(test.containers, 0);
    assert_nothing_is_left();
}

static void a_program_that_cannot_be_placed_leaves_nothing(void **state)
{
    (void)state;
    test.program_is_unreadable = true;
    grow();
    assert_ended(REASON_HELPER_NO_SHARE, "cannot place the helper");
    assert_int_equal(test.containers, 0);
    assert_nothing_is_left();
}

static void a_container_that_cannot_be_started_leaves_nothing(void **state)
{
    (void)state;
    test.refuses_container = true;
    grow();
    assert_ended(REASON_HELPER_FAILED, "cannot be started");
    assert_nothing_is_left();
}

static void a_volume_without_a_place_in_the_guest_is_not_looked_for(void **state)
{
    struct helper_task task = {.sandbox = the_sandbox()};

    (void)state;
    run_task(&task);
    assert_ended(REASON_GUEST_PATH_UNKNOWN, "nothing says where the guest has mounted this volume");
    test.ends = 0;
    task.withheld = true;
    run_task(&task);
    assert_ended(REASON_GUEST_PATH_UNKNOWN, "a volume is that must not grow");
    test.ends = 0;
    task.sandbox.is_alive = false;
    task.paths = 1;
    task.path[0] = "/run/data";
    run_task(&task);
    assert_ended(REASON_AGENT_UNREACHABLE, "the sandbox has ended");
    assert_int_equal(test.programs, 0);
}

/* ---- clean-ups ---- */

static void leftovers_of_an_earlier_run_are_removed(void **state)
{
    (void)state;
    tree_make(MOUNTS "/" EARLIER "/proc");
    clean_up(true);
    assert_int_equal(test.container->request.act, CONTAINER_CLEAN_UP);
    assert_string_equal(test.container->id, EARLIER);
    assert_string_equal(test.container->directory, IN_GUEST EARLIER);
    assert_int_equal(test.programs, 0);
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE});
    assert_ended(REASON_NONE, NULL);
    assert_nothing_is_left();
    assert_int_equal(lines_of(test.node.context.store, "helper_removed"), 1);
    assert_ability(""); /* says nothing of helpers to come */
}

static void a_directory_that_is_gone_is_not_named_to_the_agent(void **state)
{
    (void)state;
    clean_up(true);
    assert_string_equal(test.container->directory, "none");
    assert_null(test.container->request.program);
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE});
    assert_nothing_is_left();
}

static void a_guest_without_a_share_is_cleaned_up_where_programs_are_copied_to(void **state)
{
    (void)state;
    test.traits.share = GUEST_SHARE_NONE;
    clean_up(true);
    assert_true(test.container->request.copied);
    assert_string_equal(test.container->directory, IN_GUEST "crust-helper");
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE});
    assert_nothing_is_left();
}

/* The VMM may tell later whether the program was copied. */
static void a_guest_that_is_unknown_may_have_the_program(void **state)
{
    (void)state;
    test.unobservable = -ETIMEDOUT;
    clean_up(true);
    assert_int_equal(test.containers, 0);
    assert_ended(REASON_HELPER_FAILED, "whether the program was copied into the guest");
    assert_non_null(strstr(test.outcome.removal_error.text, "arguments of its process"));
    assert_true(test.outcome.left);
    assert_int_equal(records(), 1);
}

/* Where the share has the directory, the program was not copied. */
static void a_directory_of_an_unknown_guest_is_removed(void **state)
{
    (void)state;
    test.unobservable = -ETIMEDOUT;
    tree_make(MOUNTS "/" EARLIER "/proc");
    clean_up(true);
    assert_false(test.container->request.copied);
    assert_string_equal(test.container->directory, IN_GUEST EARLIER);
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE});
    assert_nothing_is_left();
}

static void an_ended_sandbox_leaves_only_the_directory(void **state)
{
    (void)state;
    tree_make(MOUNTS "/" EARLIER "/vol");
    clean_up(false);
    assert_int_equal(test.containers, 0);
    assert_ended(REASON_NONE, NULL);
    assert_nothing_is_left();
}

static void a_clean_up_that_cannot_start_is_due_again(void **state)
{
    (void)state;
    tree_make(MOUNTS "/" EARLIER);
    test.refuses_container = true;
    clean_up(true);
    assert_ended(REASON_HELPER_FAILED, "the clean-up cannot be started");
    assert_true(test.outcome.left);
    assert_true(share_has(EARLIER));
    assert_int_equal(records(), 1);
    assert_int_equal(lines_of(test.node.context.store, "helper_removed"), 0);
}

static void a_container_that_will_not_go_stays_on_record(void **state)
{
    struct container_reply left = {.kind = CONTAINER_UNREACHABLE, .left = true};

    (void)state;
    tree_make(MOUNTS "/" EARLIER);
    clean_up(true);
    container_ends(&left);
    assert_ended(REASON_AGENT_UNREACHABLE, NULL);
    assert_true(share_has(EARLIER));
    assert_int_equal(records(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_brought_into_a_confidential_guest),
        TEST(a_guest_that_is_unknown_may_be_confidential),
        TEST(guest_of_unknown_traits_is_not_tried_again),
        TEST(unusable_program_is_reported),
        TEST(sandbox_without_a_share_is_reported),
        TEST(lack_of_descriptors_is_no_verdict_on_the_share),
        TEST(a_helper_that_cannot_be_recorded_is_not_placed),
        TEST(a_program_that_cannot_be_placed_leaves_nothing),
        TEST(a_container_that_cannot_be_started_leaves_nothing),
        TEST(a_volume_without_a_place_in_the_guest_is_not_looked_for),
        TEST(leftovers_of_an_earlier_run_are_removed),
        TEST(a_directory_that_is_gone_is_not_named_to_the_agent),
        TEST(a_guest_without_a_share_is_cleaned_up_where_programs_are_copied_to),
        TEST(a_guest_that_is_unknown_may_have_the_program),
        TEST(a_directory_of_an_unknown_guest_is_removed),
        TEST(an_ended_sandbox_leaves_only_the_directory),
        TEST(a_clean_up_that_cannot_start_is_due_again),
        TEST(a_container_that_will_not_go_stays_on_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
