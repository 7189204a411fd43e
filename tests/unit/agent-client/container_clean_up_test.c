/* SPDX-License-Identifier: Apache-2.0 */
/* container_clean_up_test.c - what an earlier run may have left is killed and removed. */
#include "tests/unit/agent-client/container_agent.h"

static void leftovers_are_removed(void **state)
{
    (void)state;
    agent.exists = true;
    clean_up_with(true);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_true(agent.killed);
    assert_string_equal(agent.log, KILLED);
}

static void leftover_that_is_not_there_is_success(void **state)
{
    (void)state;
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_string_equal(agent.log, ABSENT);
    refuse("RemoveContainer", STATUS_NOT_FOUND, "");
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
}

static void half_a_container_is_created_again_to_be_removed(void **state)
{
    (void)state;
    agent.half = true;
    clean_up_with(true);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_false(agent.half);
    assert_string_equal(agent.log, ABSENT "CreateContainer SignalProcess RemoveContainer ");
    reset();
    clean_up_with(true); /* there was none: the one that is created goes again */
    assert_clean();
    assert_string_equal(agent.log,
                        ABSENT "CreateContainer SignalProcess WaitProcess RemoveContainer ");
}

static void old_agents_have_another_word_for_absent(void **state)
{
    (void)state;
    script.old = true;
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_string_equal(agent.log, ABSENT);
}

static void clean_up_removes_whatever_killing_comes_to(void **state)
{
    static const char *const methods[] = {"SignalProcess", "WaitProcess"};
    static const enum misdeed misdeeds[] = {HANG, CLOSE, NONSENSE};

    (void)state;
    for (size_t i = 0; i < array_length(methods) * array_length(misdeeds); i++) {
        struct container_request request;

        go_wrong(methods[i % 2], misdeeds[i / 2]);
        agent.exists = true;
        request = ordinary();
        request.act = CONTAINER_CLEAN_UP;
        request.step_ns = SHORT_TIME;
        run_with(&request);
        assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
        assert_clean();
    }
}

static void clean_up_without_an_agent_is_unreachable(void **state)
{
    struct container_request request = ordinary();

    (void)state;
    request.act = CONTAINER_CLEAN_UP;
    request.address = "unix:///nothing.sock";
    run_with(&request);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "cannot connect");
    assert_left("cannot connect");
}

static void clean_up_that_fails_leaves_it_to_the_next(void **state)
{
    (void)state;
    refuse("RemoveContainer", STATUS_INTERNAL, "destroy cgroups");
    clean_up_with(true);
    assert_kind(CONTAINER_FAILED, CONTAINER_REMOVE, "destroy cgroups");
    assert_left("destroy cgroups");
    refuse("RemoveContainer", STATUS_PERMISSION_DENIED, "blocked by policy");
    clean_up_with(true);
    assert_kind(CONTAINER_DENIED, CONTAINER_REMOVE, "blocked by policy");
    assert_left("blocked by policy");
    go_wrong("CreateContainer", CLOSE);
    clean_up_with(true);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CREATE, "closed");
    assert_left("closed");
    refuse("CreateContainer", STATUS_PERMISSION_DENIED, "blocked by policy");
    clean_up_with(true);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_string_equal(agent.log, ABSENT "CreateContainer ");
    refuse("RemoveContainer", STATUS_UNIMPLEMENTED, "");
    clean_up_with(true);
    assert_kind(CONTAINER_UNSUPPORTED, CONTAINER_REMOVE, "UNIMPLEMENTED");
    assert_false(seen.reply.left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AGENT(leftovers_are_removed),
        AGENT(leftover_that_is_not_there_is_success),
        AGENT(half_a_container_is_created_again_to_be_removed),
        AGENT(old_agents_have_another_word_for_absent),
        AGENT(clean_up_removes_whatever_killing_comes_to),
        AGENT(clean_up_without_an_agent_is_unreachable),
        AGENT(clean_up_that_fails_leaves_it_to_the_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
