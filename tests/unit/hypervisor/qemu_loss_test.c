/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_loss_test.c - monitors that are none, say nothing, hang up or never end. */
#include "hypervisor/drive.h"
#include "tests/unit/hypervisor/qemu_monitor.h"

#include "hypervisor/drive.h"

static void nonsense_is_unreachable(void **state)
{
    static const char *const answers[] = {
        "garbage",
        "{\"return\": [}, \"id\": \"$ID\"}",
        "{\"return\": {}, \"id\": \"$ID\"}",
        "{\"return\": [{\"inserted\": {}}], \"id\": \"$ID\"}",
        "{\"return\": \"\\u0000\", \"id\": \"$ID\"}",
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    for (size_t i = 0; i < array_length(answers); i++) {
        const struct exchange script[] = {
            {"", GREETING},
            {"\"qmp_capabilities\"", OK},
            {"query-block", answers[i]},
            {"query-named-block-nodes", LIST("")},
            {"query-fdsets", LIST("")},
        };

        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
        assert_true(monitor->reply.error.text[0]);
    }
}

static void other_listeners_are_unreachable(void **state)
{
    static const char *const greetings[] = {
        "SSH-2.0-x\r\n",
        "{\"return\": {}}\r\n",
        "{\"event\": \"STOP\"}\r\n",
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    for (size_t i = 0; i < array_length(greetings); i++) {
        const struct exchange script[] = {{"", greetings[i]}};

        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
    }
}

static void on_drive_outcome(struct hypervisor_drive_call *made,
                             const struct hypervisor_drive_reply *reply, void *userdata)
{
    struct monitor *monitor = userdata;

    monitor->done++;
    assert_int_equal(reply->outcome, HYPERVISOR_DRIVE_MONITOR_MISSING);
    monitor->reply.error = reply->error;
    (void)hypervisor_drive_call_free(made);
    loop_stop(&monitor->loop);
}

/* Nothing is asked of it, neither about a size nor for a drive. */
static void a_human_monitor_is_none(void **state)
{
    static const struct exchange script[] = {{"", HMP_GREETING}};
    static const char why[] =
        "this is a human monitor (HMP), which crustd does not use: crust-qemu";
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);
    const struct hypervisor_drive_request drive = {.act = HYPERVISOR_DRIVE_LIST,
                                                   .root = monitor->root,
                                                   .control_socket = monitor->path,
                                                   .vmm_pid = getpid(),
                                                   .descriptor = -1,
                                                   .deadline_ns = 60 * NSEC_PER_SEC};
    struct hypervisor_drive_call *made;
    struct error error;

    for (unsigned bytewise = 0; bytewise < 2; bytewise++) {
        monitor->bytewise = bytewise;
        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_MONITOR_MISSING);
        assert_non_null(strstr(monitor->reply.error.text, why));
        assert_int_equal(monitor->reply.list, HYPERVISOR_LIST_UNREAD);
        monitor->done = 0;
        monitor->position = 0;
        assert_int_equal(hypervisor_drive_call_new(&monitor->loop, HYPERVISOR_QEMU, &drive,
                                                   on_drive_outcome, monitor, &made, &error),
                         0);
        loop_run(&monitor->loop);
        assert_int_equal(monitor->done, 1);
        assert_non_null(strstr(monitor->reply.error.text, why));
        hang_up(monitor);
    }
}

static void on_drive_done(struct hypervisor_drive_call *made,
                          const struct hypervisor_drive_reply *reply, void *userdata)
{
    struct monitor *monitor = userdata;

    monitor->done++;
    monitor->reply.error = reply->error;
    (void)hypervisor_drive_call_free(made);
    loop_stop(&monitor->loop);
}

/* Who listens is this process, and neither the VMM nor its shim. */
static void another_process_is_not_asked(void **state)
{
    static const struct exchange script[] = {{"", GREETING}};
    static const char refusal[] = "neither the sandbox's VMM nor its shim";
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);
    struct hypervisor_drive_request drive = {.act = HYPERVISOR_DRIVE_LIST,
                                             .root = monitor->root,
                                             .control_socket = monitor->path,
                                             .vmm_pid = getppid(),
                                             .descriptor = -1,
                                             .deadline_ns = NSEC_PER_SEC};
    struct hypervisor_drive_call *made;
    struct error error;

    serve(monitor, script, array_length(script));
    monitor->close_at = 0;
    request.vmm_pid = getppid();
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
    assert_non_null(strstr(monitor->reply.error.text, refusal));
    monitor->done = 0;
    assert_int_equal(hypervisor_drive_call_new(&monitor->loop, HYPERVISOR_QEMU, &drive,
                                               on_drive_done, monitor, &made, &error),
                     0);
    loop_run(&monitor->loop);
    assert_int_equal(monitor->done, 1);
    assert_non_null(strstr(monitor->reply.error.text, refusal));
}

static void hanging_up_is_unreachable(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    serve(monitor, qmp_resize, array_length(qmp_resize));
    for (monitor->close_at = 0; monitor->close_at < array_length(qmp_resize); monitor->close_at++)
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
}

static void silence_ends_with_the_deadline(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    request.deadline_ns = 100 * NSEC_PER_MSEC;
    serve(monitor, qmp_resize, array_length(qmp_resize));
    monitor->silent_at = 0;
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_BUSY);
    request.deadline_ns = NSEC_PER_SEC;
    monitor->silent_at = 1;
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
}

static void endless_replies_are_unreachable(void **state)
{
    cleanup(buffer_done) struct buffer endless = BUFFER_INIT(8 * 1024 * 1024);
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    assert_int_equal(buffer_append_text(&endless, "{\"return\": \""), 0);
    while (endless.length < 5 * 1024 * 1024)
        assert_int_equal(buffer_append_format(&endless, "%4096d", 1), 0);
    {
        const struct exchange script[] = {
            {"", GREETING},
            {"\"qmp_capabilities\"", OK},
            {"query-block", buffer_text(&endless)},
            {"query-named-block-nodes", LIST("")},
            {"query-fdsets", LIST("")},
        };

        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
        assert_non_null(strstr(monitor->reply.error.text, "beyond 2097152 bytes"));
    }
}

/* As many events as a conversation never has, before the first answer. */
static void a_flood_of_events_is_unreachable(void **state)
{
    cleanup(buffer_done) struct buffer flood = BUFFER_INIT(1024 * 1024);
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(buffer_append_text(&flood, "{\"event\": \"STOP\"}\r\n"), 0);
    {
        const struct exchange script[] = {
            {"", GREETING},
            {"\"qmp_capabilities\"", buffer_text(&flood)},
            {"query-block", LIST("")},
            {"query-named-block-nodes", LIST("")},
            {"query-fdsets", LIST("")},
        };

        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
        assert_non_null(strstr(monitor->reply.error.text, "more than it was asked for"));
    }
}

/* Few events, each as large as an answer may be. */
static void large_events_have_a_bound_together(void **state)
{
    enum { EVENT_BYTES = 1024 * 1024, EVENTS = 10 };
    cleanup(buffer_done) struct buffer flood = BUFFER_INIT(2 * EVENTS * EVENT_BYTES);
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    for (unsigned i = 0; i < EVENTS; i++)
        assert_int_equal(buffer_append_format(&flood, "{\"event\": \"%*s\"}\r\n", EVENT_BYTES, "x"),
                         0);
    assert_int_equal(buffer_append_text(&flood, OK), 0);
    {
        const struct exchange script[] = {
            {"", GREETING},
            {"\"qmp_capabilities\"", buffer_text(&flood)},
            {"query-block", LIST("")},
            {"query-named-block-nodes", LIST("")},
            {"query-fdsets", LIST("")},
        };

        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
        assert_non_null(strstr(monitor->reply.error.text, "more than it was asked for"));
    }
}

static void connect_errors_have_their_outcomes(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);
    struct sockaddr_un address = address_of(monitor);
    int waiting[16];
    size_t count = 0;

    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
    assert_int_equal(listen(monitor->listener, 0), 0);
    do {
        assert_true(count < array_length(waiting));
        waiting[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    } while (connect(waiting[count++], (struct sockaddr *)&address, sizeof(address)) == 0);
    assert_int_equal(errno, EAGAIN);
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_BUSY);
    while (count)
        fd_close(waiting[--count]);
    assert_int_equal(unlink(monitor->path), 0);
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_MONITOR_MISSING);
}

static void a_vmm_that_is_gone_is_unreachable(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    request.vmm_pid = 0x7ffffff0; /* beyond any pid_max */
    serve(monitor, qmp_resize, array_length(qmp_resize));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNREACHABLE);
}

/* Freeing a call ends the conversation wherever it is: the monitor sees the end, nobody is told. */
static void can_be_freed_at_any_time(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    serve(monitor, qmp_resize, array_length(qmp_resize));
    for (size_t turns = 0; turns < 8; turns++) {
        struct hypervisor_call *made;

        monitor->position = 0;
        assert_int_equal(
            hypervisor_call_new(&monitor->loop, HYPERVISOR_QEMU, &request, on_done, monitor, &made),
            0);
        for (size_t turn = 0; turn < turns; turn++)
            loop_run_once(&monitor->loop);
        (void)hypervisor_call_free(made);
        do
            loop_run_once(&monitor->loop);
        while (monitor->client >= 0);
        buffer_clear(&monitor->input);
    }
    assert_int_equal(monitor->done, 0);
}

static void on_looked(struct hypervisor_drive_call *call,
                      const struct hypervisor_drive_reply *reply, void *userdata)
{
    struct monitor *monitor = userdata;

    (void)call;
    monitor->done++;
    assert_int_equal(reply->outcome, HYPERVISOR_DRIVE_DONE);
    assert_int_equal(reply->state, HYPERVISOR_DRIVE_ABSENT);
    loop_stop(&monitor->loop);
}

static struct hypervisor_drive_request look_request(const struct monitor *monitor)
{
    return (struct hypervisor_drive_request){
        .act = HYPERVISOR_DRIVE_LOOK,
        .root = monitor->root,
        .control_socket = monitor->path,
        .vmm_pid = getpid(),
        .drive_id = "data-1",
        .descriptor = -1,
        .removal_ns = NSEC_PER_SEC,
        .deadline_ns = 60 * NSEC_PER_SEC,
    };
}

static void on_flooded(struct hypervisor_drive_call *call,
                       const struct hypervisor_drive_reply *reply, void *userdata)
{
    struct monitor *monitor = userdata;

    (void)call;
    monitor->done++;
    assert_int_equal(reply->outcome, HYPERVISOR_DRIVE_UNREACHABLE);
    assert_non_null(strstr(reply->error.text, "more than it was asked for"));
    loop_stop(&monitor->loop);
}

/* So many events in front of the first answer. */
static void flood_a_look(struct monitor *monitor, unsigned events, int bytes)
{
    cleanup(buffer_done) struct buffer flood = BUFFER_INIT(0);
    const struct hypervisor_drive_request request = look_request(monitor);
    struct hypervisor_drive_call *look;
    struct error error;

    for (unsigned i = 0; i < events; i++)
        assert_int_equal(buffer_append_format(&flood, "{\"event\": \"%*s\"}\r\n", bytes, "x"), 0);
    assert_int_equal(buffer_append_text(&flood, LIST("")), 0);
    {
        const struct exchange script[] = {
            {"", GREETING},
            {"\"qmp_capabilities\"", OK},
            {"\"query-fdsets\"", buffer_text(&flood)},
            {"\"qom-list\"", LIST("")},
            {"\"query-named-block-nodes\"", LIST("")},
            {"\"qom-list\"", LIST("")},
        };

        serve(monitor, script, array_length(script));
        monitor->done = 0;
        assert_int_equal(hypervisor_drive_call_new(&monitor->loop, HYPERVISOR_QEMU, &request,
                                                   on_flooded, monitor, &look, &error),
                         0);
        loop_run(&monitor->loop);
        assert_int_equal(monitor->done, 1);
        (void)hypervisor_drive_call_free(look);
    }
}

static void a_flood_ends_a_look_for_a_drive(void **state)
{
    flood_a_look(*state, 5000, 8);
}

static void large_events_end_a_look_for_a_drive(void **state)
{
    flood_a_look(*state, 10, 1024 * 1024);
}

/* The ids of commands can be guessed. */
static void an_answer_to_a_command_that_was_not_sent_is_ignored(void **state)
{
    static const struct exchange script[] = {
        {"", GREETING},
        {"\"qmp_capabilities\"", OK},
        {"\"query-fdsets\"", LIST("") "{\"id\": \"6\", \"return\": []}\r\n"},
        {"\"qom-list\"", LIST("")},
        {"\"query-named-block-nodes\"", LIST("")},
        {"\"qom-list\"", LIST("")},
    };
    struct monitor *monitor = *state;
    const struct hypervisor_drive_request request = look_request(monitor);
    struct hypervisor_drive_call *look;
    struct error error;

    serve(monitor, script, array_length(script));
    assert_int_equal(hypervisor_drive_call_new(&monitor->loop, HYPERVISOR_QEMU, &request, on_looked,
                                               monitor, &look, &error),
                     0);
    loop_run(&monitor->loop);
    assert_int_equal(monitor->done, 1);
    (void)hypervisor_drive_call_free(look);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scripted(an_answer_to_a_command_that_was_not_sent_is_ignored),
        scripted(nonsense_is_unreachable),
        scripted(other_listeners_are_unreachable),
        scripted(a_human_monitor_is_none),
        scripted(another_process_is_not_asked),
        scripted(hanging_up_is_unreachable),
        scripted(silence_ends_with_the_deadline),
        scripted(endless_replies_are_unreachable),
        scripted(a_flood_of_events_is_unreachable),
        scripted(large_events_have_a_bound_together),
        scripted(a_flood_ends_a_look_for_a_drive),
        scripted(large_events_end_a_look_for_a_drive),
        scripted(connect_errors_have_their_outcomes),
        scripted(a_vmm_that_is_gone_is_unreachable),
        scripted(can_be_freed_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
