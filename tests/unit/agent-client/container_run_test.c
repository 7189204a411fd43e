/* SPDX-License-Identifier: Apache-2.0 */
/* container_run_test.c - a program run in a container, and each call that may go wrong. */
#include "tests/unit/agent-client/container_agent.h"

static void program_runs_on_one_connection(void **state)
{
    (void)state;
    script.output = "{\"version\":1}\n";
    script.errors = "a word\n";
    script.exit_status = 1;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_clean();
    assert_string_equal(agent.log, "|CreateContainer StartContainer ReadStdout ReadStdout "
                                   "ReadStderr ReadStderr WaitProcess RemoveContainer ");
    assert_string_equal(seen.output, script.output);
    assert_string_equal(seen.errors, script.errors);
    assert_int_equal(seen.reply.exit_status, 1);
    assert_false(agent.killed);
}

static void output_comes_in_any_pieces(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < 6; bytes += 2) {
        reset();
        script.output = "a longer line of output\n";
        script.answer_bytes = bytes;
        script.old = bytes == 3;
        run_one();
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_string_equal(seen.output, "a longer line of output\n");
    }
}

static void old_agents_end_output_with_an_error(void **state)
{
    (void)state;
    script.old = true;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_string_equal(agent.log, "|" FIRST_HALF "RemoveContainer ");
    assert_string_equal(seen.output, "{}\n");
}

static void hidden_output_is_empty(void **state)
{
    (void)state;
    script.output = "";
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_int_equal(seen.reply.output_length, 0);
    assert_clean();
}

static void program_of_another_architecture_is_reported(void **state)
{
    static const int statuses[] = {ENOEXEC, ENOENT, EACCES};

    (void)state;
    for (size_t i = 0; i < array_length(statuses); i++) {
        reset();
        script.output = "";
        script.exit_status = statuses[i];
        run_one();
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_true(seen.reply.not_executed);
        reset();
        script.output = "";
        script.errors = "usage\n"; /* the program's own words */
        script.exit_status = statuses[i];
        run_one();
        assert_false(seen.reply.not_executed);
    }
    reset();
    script.output = "";
    script.exit_status = 1;
    run_one();
    assert_false(seen.reply.not_executed);
    reset();
    script.exit_status = ENOENT;
    run_one();
    assert_false(seen.reply.not_executed);
}

static void output_has_a_bound(void **state)
{
    (void)state;
    script.output = NULL;
    script.endless = CONTAINER_OUTPUT_BYTES;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_int_equal(seen.reply.output_length, CONTAINER_OUTPUT_BYTES);
    reset();
    script.output = NULL;
    script.endless = CONTAINER_OUTPUT_BYTES + 1;
    run_one();
    assert_kind(CONTAINER_FAILED, CONTAINER_READ, "wrote more than");
    assert_true(agent.killed);
    assert_clean();
}

static void standard_error_is_cut(void **state)
{
    static char errors[3 * CONTAINER_ERRORS_BYTES];

    (void)state;
    memset(errors, 'e', sizeof(errors) - 1);
    script.errors = errors;
    script.answer_bytes = 1000;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_int_equal(seen.reply.errors_length, CONTAINER_ERRORS_BYTES);
    assert_string_equal(seen.output, "{}\n");
}

static void stale_replies_are_dropped_at_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        go_wrong(calls[i].method, STALE);
        run_one();
        assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
        assert_clean();
    }
}

static void stale_replies_to_one_call_are_not_held_against_the_next(void **state)
{
    (void)state;
    go_wrong("RemoveContainer", HANG);
    script.stale = true;
    run_hurried();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_left("no reply to this call");
    go_wrong("RemoveContainer", HANG);
    script.stale_before = true;
    run_hurried();
    assert_left("no answer within 0.03 s");
    assert_null(strstr(seen.reply.removal_error.text, "no reply to this call"));
}

static void denial_is_reported_for_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        refuse(calls[i].method, STATUS_PERMISSION_DENIED, "\"XRequest is blocked by policy: eof\"");
        run_one();
        assert_kind(CONTAINER_DENIED, calls[i].step, "blocked by policy");
        assert_clean();
        assert_calls(i, i ? KILLED : "");
        refuse(calls[i].method, STATUS_INTERNAL, "internal error policy check: no rule");
        run_one();
        assert_kind(CONTAINER_DENIED, calls[i].step, calls[i].method);
    }
}

static void failure_is_cleaned_up_at_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        refuse(calls[i].method, STATUS_INTERNAL, "\"ENOENT: No such file or directory\"");
        run_one();
        assert_kind(CONTAINER_FAILED, calls[i].step, "INTERNAL: ENOENT: No such file");
        assert_clean();
        assert_killed(i);
    }
}

static void hang_is_cleaned_up_at_each_call(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        bool runs = calls[i].step == CONTAINER_READ || calls[i].step == CONTAINER_WAIT;

        go_wrong(calls[i].method, HANG);
        run_hurried();
        assert_kind(CONTAINER_TIMED_OUT, calls[i].step,
                    runs ? "the program has not ended within 0.03 s" : "no answer within 0.0");
        assert_killed(i);
        if (i)
            assert_clean();
    }
}

static void agent_that_closes_is_asked_again_to_remove(void **state)
{
    (void)state;
    for (size_t i = 0; i < array_length(calls); i++) {
        go_wrong(calls[i].method, CLOSE);
        run_one();
        assert_kind(CONTAINER_UNREACHABLE, calls[i].step, "closed the connection");
        assert_killed(i);
        if (i)
            assert_clean();
    }
}

static void a_malformed_answer_is_refused(void **state)
{
    (void)state;
    for (size_t i = 2; i < array_length(calls); i++) {
        go_wrong(calls[i].method, NONSENSE);
        run_one();
        assert_kind(CONTAINER_UNREACHABLE, calls[i].step, "cannot be understood");
        assert_clean();
    }
}

static void creation_without_an_answer_may_have_left_something(void **state)
{
    (void)state;
    go_wrong("CreateContainer", CLOSE);
    run_one();
    assert_left("CreateContainer was not answered");
    go_wrong("CreateContainer", HANG);
    agent.exists = true; /* it was made all the same */
    run_hurried();
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_CREATE, "no answer");
    assert_clean();
}

static void agent_without_containers_is_unsupported(void **state)
{
    (void)state;
    refuse("CreateContainer", STATUS_UNIMPLEMENTED, "");
    run_one();
    assert_kind(CONTAINER_UNSUPPORTED, CONTAINER_CREATE, "UNIMPLEMENTED");
    assert_clean();
    assert_string_equal(agent.log, "|CreateContainer ");
    refuse("CreateContainer", STATUS_INVALID_ARGUMENT, "/grpc.AgentService/X does not exist");
    run_one();
    assert_kind(CONTAINER_UNSUPPORTED, CONTAINER_CREATE, "does not exist");
    refuse("ReadStdout", STATUS_NOT_FOUND, "InvalidExecId");
    run_one();
    assert_kind(CONTAINER_FAILED, CONTAINER_READ, "InvalidExecId");
    assert_clean();
}

static void guest_without_cgroups_is_reported(void **state)
{
    (void)state;
    refuse("CreateContainer", STATUS_INTERNAL,
           "\"Create cgroupfs manager\n\nCaused by:\n    0: Get paths and mounts\"");
    run_one();
    assert_kind(CONTAINER_NO_CGROUPS, CONTAINER_CREATE, "cgroupfs manager");
    assert_clean();
    refuse("WaitProcess", STATUS_INTERNAL, "cgroup");
    run_one();
    assert_kind(CONTAINER_FAILED, CONTAINER_WAIT, "cgroup");
}

static void failed_removal_is_reported_beside_the_result(void **state)
{
    (void)state;
    refuse("RemoveContainer", STATUS_INTERNAL, "destroy cgroups");
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_string_equal(seen.output, "{}\n");
    assert_left("RemoveContainer: INTERNAL: destroy cgroups");
    go_wrong("RemoveContainer", HANG);
    run_hurried();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_left("RemoveContainer: no answer within");
    go_wrong("RemoveContainer", CLOSE);
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_left("closed the connection");
    assert_string_equal(agent.log, "|" FIRST_HALF "RemoveContainer |RemoveContainer ");
}

static void removal_is_tried_on_a_second_connection(void **state)
{
    (void)state;
    go_wrong("RemoveContainer", CLOSE);
    script.times = 1;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_clean();
}

static void kill_that_fails_does_not_keep_from_removing(void **state)
{
    static const enum misdeed misdeeds[] = {REFUSE, HANG, CLOSE};

    (void)state;
    for (size_t i = 0; i < array_length(misdeeds); i++) {
        struct container_request request;

        go_wrong("SignalProcess", misdeeds[i]);
        script.code = STATUS_NOT_FOUND;
        script.message = "InitProcessNotFound";
        script.output = NULL;
        script.endless = CONTAINER_OUTPUT_BYTES + 1;
        request = ordinary();
        request.step_ns = 3 * SHORT_TIME;
        run_with(&request);
        assert_kind(CONTAINER_FAILED, CONTAINER_READ, "wrote more");
        assert_clean();
    }
}

static void whole_run_has_a_deadline(void **state)
{
    struct container_request request = ordinary();

    (void)state;
    request.total_ns = SHORT_TIME;
    go_wrong("StartContainer", HANG);
    run_with(&request);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_START, "no answer");
    assert_clean();
    reset();
    request.total_ns = 0;
    run_with(&request);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_CREATE, "no time is left");
    assert_string_equal(agent.log, "");
    assert_clean();
}

static void hypervisor_socket_is_asked_for_the_port(void **state)
{
    (void)state;
    script.handshake = true;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_clean();
    refuse("StartContainer", STATUS_INTERNAL, "no");
    script.handshake = true;
    run_one();
    assert_kind(CONTAINER_FAILED, CONTAINER_START, "no");
    assert_clean();
    assert_string_equal(agent.log, "|CreateContainer StartContainer " KILLED);
}

static void without_an_agent_nothing_is_left(void **state)
{
    struct container_request request = ordinary();

    (void)state;
    request.address = "unix:///nothing.sock";
    run_with(&request);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "connecting: cannot connect");
    assert_clean();
    request.address = "nonsense";
    seen.calls = 0;
    run_with(&request);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "nonsense");
    assert_clean();
}

/* Who listens is this process, and not the VMM. */
static void another_process_is_not_asked(void **state)
{
    struct container_request request;

    (void)state;
    request = ordinary();
    request.listener.vmm = getppid();
    run_with(&request);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "neither the sandbox's VMM nor its shim");
    assert_clean();
}

static void port_that_never_answers_leaves_nothing(void **state)
{
    struct container_request request;

    (void)state;
    script.handshake = true;
    request = ordinary();
    request.step_ns = SHORT_TIME;
    agent.shaken = true;
    loop_io_stop(&agent.accepting); /* it connects, and nobody says OK */
    run_with(&request);
    loop_io_start(&loop, &agent.accepting, agent.listener, LOOP_READ, on_accept);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_CONNECT, "no answer within");
    assert_clean();
}

static void run_can_be_given_up_at_any_time(void **state)
{
    (void)state;
    for (unsigned turns = 0; turns < 24; turns++) {
        struct container_request request;
        struct container_run *run;

        reset();
        seen.calls = 0;
        script.misdeed = HANG; /* so that it is not done before */
        script.method = "RemoveContainer";
        request = ordinary();
        assert_int_equal(container_run_new(&loop, &request, on_done, &seen, &run), 0);
        for (unsigned i = 0; i < turns && !strstr(agent.log, "Remove"); i++)
            loop_run_once(&loop);
        run = container_run_free(run);
        assert_null(run);
        assert_int_equal(seen.calls, 0);
        hang_up();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AGENT(program_runs_on_one_connection),
        AGENT(output_comes_in_any_pieces),
        AGENT(old_agents_end_output_with_an_error),
        AGENT(hidden_output_is_empty),
        AGENT(program_of_another_architecture_is_reported),
        AGENT(output_has_a_bound),
        AGENT(standard_error_is_cut),
        AGENT(stale_replies_are_dropped_at_each_call),
        AGENT(stale_replies_to_one_call_are_not_held_against_the_next),
        AGENT(denial_is_reported_for_each_call),
        AGENT(failure_is_cleaned_up_at_each_call),
        AGENT(hang_is_cleaned_up_at_each_call),
        AGENT(agent_that_closes_is_asked_again_to_remove),
        AGENT(a_malformed_answer_is_refused),
        AGENT(creation_without_an_answer_may_have_left_something),
        AGENT(agent_without_containers_is_unsupported),
        AGENT(guest_without_cgroups_is_reported),
        AGENT(failed_removal_is_reported_beside_the_result),
        AGENT(removal_is_tried_on_a_second_connection),
        AGENT(kill_that_fails_does_not_keep_from_removing),
        AGENT(whole_run_has_a_deadline),
        AGENT(hypervisor_socket_is_asked_for_the_port),
        AGENT(without_an_agent_nothing_is_left),
        AGENT(another_process_is_not_asked),
        AGENT(port_that_never_answers_leaves_nothing),
        AGENT(run_can_be_given_up_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
