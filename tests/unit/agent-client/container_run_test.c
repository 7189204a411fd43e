/* SPDX-License-Identifier: Apache-2.0 */
/* container_run_test.c - a program run in a container, and each call that may go wrong; requests
 * that are not sent; a container that stays, and the removal of what an earlier run has left. */
#include "tests/unit/agent-client/container_agent.h"

static void program_runs_on_one_connection(void **state)
{
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
    script.old = true;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_string_equal(agent.log, "|" FIRST_HALF "RemoveContainer ");
    assert_string_equal(seen.output, "{}\n");
    refuse("ReadStdout", STATUS_INTERNAL, "eof");
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
}

static void hidden_output_is_empty(void **state)
{
    script.output = "";
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_int_equal(seen.reply.output_length, 0);
    assert_clean();
}

static void program_of_another_architecture_is_reported(void **state)
{
    static const int statuses[] = {ENOEXEC, ENOENT, EACCES};

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

    memset(errors, 'e', sizeof(errors) - 1);
    script.errors = errors;
    script.answer_bytes = 1000;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_int_equal(seen.reply.errors_length, CONTAINER_ERRORS_BYTES);
    assert_string_equal(seen.output, "{}\n");
}

static void stale_replies_to_one_call_are_not_held_against_the_next(void **state)
{
    go_wrong("RemoveContainer", HANG);
    script.stale = true;
    run_hurried();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_left("no reply to this call");
    go_wrong("RemoveContainer", HANG);
    script.stale_before = true;
    run_hurried();
    assert_left("no answer within 0.4 s");
    assert_null(strstr(seen.reply.removal_error.text, "no reply to this call"));
}

static void denial_is_reported_for_each_call(void **state)
{
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
    for (size_t i = 0; i < array_length(calls); i++) {
        bool runs = calls[i].step == CONTAINER_READ || calls[i].step == CONTAINER_WAIT;

        go_wrong(calls[i].method, HANG);
        run_hurried();
        assert_kind(CONTAINER_TIMED_OUT, calls[i].step,
                    runs ? "the program has not ended within 0.4 s" : "no answer within 0.4");
        assert_killed(i);
        if (i)
            assert_clean();
    }
}

static void agent_that_closes_is_asked_again_to_remove(void **state)
{
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
    for (size_t i = 2; i < array_length(calls); i++) {
        go_wrong(calls[i].method, NONSENSE);
        run_one();
        assert_kind(CONTAINER_UNREACHABLE, calls[i].step, "cannot be understood");
        assert_clean();
    }
}

static void creation_without_an_answer_may_have_left_something(void **state)
{
    go_wrong("CreateContainer", CLOSE);
    run_one();
    assert_left("CreateContainer was not answered");
    go_wrong("CreateContainer", HANG);
    agent.exists = true; /* it was made all the same */
    run_hurried();
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_CREATE, "no answer");
    assert_clean();
}

static void killed_worker_may_have_left_something(void **state)
{
    go_wrong("StartContainer", KILL);
    run_one();
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "worker process that asked has died");
    assert_left("worker process that asked has died");
    assert_string_equal(seen.output, "");
    go_wrong("SignalProcess", KILL);
    clean_up_with(true);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "worker process that asked has died");
    assert_left("worker process that asked has died");
}

static void failed_removal_is_reported_beside_the_result(void **state)
{
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
    go_wrong("RemoveContainer", CLOSE);
    script.times = 1;
    run_one();
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_clean();
}

static void kill_that_fails_does_not_keep_from_removing(void **state)
{
    static const enum misdeed misdeeds[] = {REFUSE, HANG, CLOSE};

    for (size_t i = 0; i < array_length(misdeeds); i++) {
        struct container_request request;

        go_wrong("SignalProcess", misdeeds[i]);
        script.code = STATUS_NOT_FOUND;
        script.message = "InitProcessNotFound";
        script.output = NULL;
        script.endless = CONTAINER_OUTPUT_BYTES + 1;
        request = ordinary();
        request.step_ns = SHORT_TIME;
        run_with(&request);
        assert_kind(CONTAINER_FAILED, CONTAINER_READ, "wrote more");
        assert_clean();
    }
}

static void whole_run_has_a_deadline(void **state)
{
    struct container_request request = ordinary();

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

static void port_that_never_answers_leaves_nothing(void **state)
{
    struct container_request request;

    script.handshake = true;
    request = ordinary();
    request.step_ns = SHORT_TIME;
    agent.shaken = true;
    loop_io_stop(&listening.accepting); /* it connects, and nobody says OK */
    run_with(&request);
    loop_io_start(&loop, &listening.accepting, listening.listener, LOOP_READ, on_accept);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_CONNECT, "no answer within");
    assert_clean();
}

static void run_can_be_given_up_at_any_time(void **state)
{
    for (unsigned turns = 0; turns < 24; turns++) {
        struct container_request request;
        struct container_run *run;

        reset();
        seen.calls = 0;
        script.misdeed = HANG; /* so that it is not done before */
        script.method = "RemoveContainer";
        request = ordinary();
        assert_int_equal(container_run_new(&request, on_done, &seen, &run), 0);
        for (unsigned i = 0; i < turns && !strstr(agent.log, "Remove"); i++)
            loop_run_once(&loop);
        run = container_run_free(run);
        assert_null(run);
        assert_int_equal(seen.calls, 0);
        hang_up();
    }
}

/* What the agent's statuses and words are taken for, beside those of the tests above. */
static void answers_have_kinds(void **state)
{
    static const struct {
        const char *method;
        enum container_step step;
        int code;
        const char *message;
        enum container_kind kind;
    } rows[] = {
        {"CreateContainer", CONTAINER_CREATE, STATUS_UNIMPLEMENTED, "", CONTAINER_UNSUPPORTED},
        {"CreateContainer", CONTAINER_CREATE, STATUS_NOT_FOUND, "", CONTAINER_UNSUPPORTED},
        {"CreateContainer", CONTAINER_CREATE, STATUS_INVALID_ARGUMENT,
         "/grpc.AgentService/X does not exist", CONTAINER_UNSUPPORTED},
        {"CreateContainer", CONTAINER_CREATE, STATUS_FAILED_PRECONDITION, "", CONTAINER_FAILED},
        {"CreateContainer", CONTAINER_CREATE, STATUS_INTERNAL, "Create cgroupfs manager",
         CONTAINER_NO_CGROUPS},
        {"StartContainer", CONTAINER_START, STATUS_INTERNAL, "no Cgroup", CONTAINER_NO_CGROUPS},
        {"ReadStdout", CONTAINER_READ, STATUS_NOT_FOUND, "InvalidExecId", CONTAINER_FAILED},
        {"ReadStdout", CONTAINER_READ, STATUS_UNIMPLEMENTED, "", CONTAINER_UNSUPPORTED},
        {"ReadStdout", CONTAINER_READ, STATUS_INTERNAL, "cannot get stream reader",
         CONTAINER_FAILED},
        {"WaitProcess", CONTAINER_WAIT, STATUS_INTERNAL, "cgroup", CONTAINER_FAILED},
    };

    for (size_t i = 0; i < array_length(rows); i++) {
        refuse(rows[i].method, rows[i].code, rows[i].message);
        run_one();
        assert_kind(rows[i].kind, rows[i].step, rows[i].message);
        assert_clean();
    }
}

/* ---- requests ---- */

static void longest_request_is_sent(void **state)
{
    static char path[4096];
    struct container_request request = ordinary();

    memset(path, 'p', sizeof(path) - 1);
    path[0] = '/';
    for (size_t i = 0; i < CONTAINER_ARGUMENTS; i++)
        request.arguments[i] = path;
    run_with(&request);
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_true(agent.created.length > CONTAINER_ARGUMENTS * (sizeof(path) - 1));
}

/* ---- a container that stays ---- */

static void hold(uint64_t program_ns)
{
    struct container_request request = ordinary();

    request.act = CONTAINER_HOLD;
    request.program_ns = program_ns;
    run_with(&request);
}

static void the_container_stays_once_a_line_has_come(void **state)
{
    script.output = "{\"version\":1}\n";
    script.answer_bytes = 10; /* the first answer has no whole line */
    hold(LONG_TIME);
    assert_kind(CONTAINER_DONE, CONTAINER_READ, "");
    assert_true(seen.reply.held);
    assert_false(seen.reply.left);
    assert_true(agent.exists);
    assert_string_equal(seen.output, "{\"version\":1}\n");
    assert_string_equal(agent.log, "|CreateContainer StartContainer ReadStdout ReadStdout ");
}

static void a_program_that_ends_is_removed_with_its_container(void **state)
{
    script.output = "no line";
    script.exit_status = 2;
    hold(LONG_TIME);
    assert_kind(CONTAINER_DONE, CONTAINER_WAIT, "");
    assert_false(seen.reply.held);
    assert_int_equal(seen.reply.exit_status, 2);
    assert_clean();
}

static void a_container_that_cannot_be_created_leaves_nothing(void **state)
{
    refuse("CreateContainer", STATUS_INTERNAL, "\"EROFS: Read-only file system\"");
    hold(LONG_TIME);
    assert_kind(CONTAINER_FAILED, CONTAINER_CREATE, "EROFS");
    assert_clean();
}

static void a_silent_program_is_removed(void **state)
{
    go_wrong("ReadStdout", HANG);
    hold(SHORT_TIME);
    assert_kind(CONTAINER_TIMED_OUT, CONTAINER_READ, "has not ended");
    assert_clean();
}

/* ---- what an earlier run has left ---- */

static void leftovers_are_removed(void **state)
{
    agent.exists = true;
    clean_up_with(true);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_true(agent.killed);
    assert_string_equal(agent.log, KILLED);
}

static void leftover_that_is_not_there_is_success(void **state)
{
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    assert_string_equal(agent.log, ABSENT);
    refuse("RemoveContainer", STATUS_NOT_FOUND, "");
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
    assert_clean();
    refuse("RemoveContainer", STATUS_INVALID_ARGUMENT, "InvalidContainerId");
    clean_up_with(false);
    assert_kind(CONTAINER_DONE, CONTAINER_REMOVE, "");
}

static void half_a_container_is_created_again_to_be_removed(void **state)
{
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

    request.act = CONTAINER_CLEAN_UP;
    request.address = "unix:///nothing.sock";
    run_with(&request);
    assert_kind(CONTAINER_UNREACHABLE, CONTAINER_CONNECT, "cannot connect");
    assert_left("cannot connect");
}

static void clean_up_that_fails_leaves_it_to_the_next(void **state)
{
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
        AGENT(program_runs_on_one_connection),
        AGENT(output_comes_in_any_pieces),
        AGENT(old_agents_end_output_with_an_error),
        AGENT(hidden_output_is_empty),
        AGENT(program_of_another_architecture_is_reported),
        AGENT(output_has_a_bound),
        AGENT(standard_error_is_cut),
        AGENT(stale_replies_to_one_call_are_not_held_against_the_next),
        AGENT(denial_is_reported_for_each_call),
        AGENT(failure_is_cleaned_up_at_each_call),
        AGENT(hang_is_cleaned_up_at_each_call),
        AGENT(agent_that_closes_is_asked_again_to_remove),
        AGENT(a_malformed_answer_is_refused),
        AGENT(creation_without_an_answer_may_have_left_something),
        AGENT(killed_worker_may_have_left_something),
        AGENT(failed_removal_is_reported_beside_the_result),
        AGENT(removal_is_tried_on_a_second_connection),
        AGENT(kill_that_fails_does_not_keep_from_removing),
        AGENT(whole_run_has_a_deadline),
        AGENT(hypervisor_socket_is_asked_for_the_port),
        AGENT(without_an_agent_nothing_is_left),
        AGENT(port_that_never_answers_leaves_nothing),
        AGENT(run_can_be_given_up_at_any_time),
        AGENT(answers_have_kinds),
        AGENT(longest_request_is_sent),
        AGENT(the_container_stays_once_a_line_has_come),
        AGENT(a_program_that_ends_is_removed_with_its_container),
        AGENT(a_container_that_cannot_be_created_leaves_nothing),
        AGENT(a_silent_program_is_removed),
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
