/* SPDX-License-Identifier: Apache-2.0 */
/* drive_client_test.c - calls of Drives to an agent that answers as each test has it. */
#include "tests/unit/agent-client/fake_agent.h"

#include <sys/resource.h>

#include "agent-client/agent_messages.h"
#include "agent-client/drive_client.h"

static const char serial[] = "crust-abcdefghijk237";

/* What every call is answered. */
static struct ttrpc_status said;
static struct buffer payload;

static struct {
    unsigned calls;
    struct drive_client_reply reply;
} seen;

static void answer(uint32_t stream)
{
    reply_with(stream, said.code, said.message, buffer_text(&payload), payload.length);
}

static int start(void **state)
{
    said = (struct ttrpc_status){0};
    memset(&seen, 0, sizeof(seen));
    return set_up(state);
}

static int stop(void **state)
{
    buffer_done(&payload);
    return tear_down(state);
}

static void on_done(struct drive_client *client, const struct drive_client_reply *reply,
                    void *userdata)
{
    assert_ptr_equal(userdata, &seen);
    seen.calls++;
    seen.reply = *reply;
    (void)drive_client_free(client);
    loop_stop(&loop);
}

static void call_at(const char *address, enum drive_client_act act, uint64_t allowed_ns)
{
    struct drive_mount_request mount = {
        .drive_id = "d1",
        .bytes = 4096,
        .vm_path = "/data",
        .filesystem_type = "ext4",
        .timeout_ms = allowed_ns / NSEC_PER_MSEC,
    };
    struct drive_client_request request = {
        .act = act,
        .root = root,
        .address = address,
        .listener = {.vmm = vmm},
        .drive = &mount,
        .allowed_ns = allowed_ns,
    };
    struct drive_client *client;

    strcpy(mount.serial, serial);
    hang_up();
    seen.calls = 0;
    assert_int_equal(drive_client_new(&request, on_done, &seen, &client), 0);
    assert_int_equal(seen.calls, 0);
    loop_run(&loop);
    assert_int_equal(seen.calls, 1);
}

static void call(enum drive_client_act act)
{
    script.answer = answer;
    call_at("unix:///agent.sock", act, LONG_TIME);
}

static void expect(enum drive_client_outcome outcome, enum status_code status, const char *text)
{
    assert_int_equal(seen.reply.outcome, outcome);
    assert_int_equal(seen.reply.status, status);
    if (!strstr(seen.reply.error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", seen.reply.error.text, text);
}

static void a_mount_is_asked_for_and_answered(void **state)
{
    struct drive_mount_answer sent = {.device = "sda", .bytes = 4096, .walk = {1, 2, 3}};
    struct drive_mount_request asked;
    const char *wrong;

    assert_int_equal(drive_append(&payload, DRIVE_MOUNT_ANSWER, &sent), 0);
    call(DRIVE_CLIENT_MOUNT);
    expect(DRIVE_CLIENT_ANSWERED, STATUS_OK, "");
    assert_string_equal(seen.reply.mount.device, "sda");
    assert_int_equal(seen.reply.mount.walk.failed, 3);
    assert_string_equal(server.request.service, DRIVE_SERVICE);
    assert_string_equal(server.request.method, DRIVE_METHOD_MOUNT);
    assert_int_equal(drive_parse(server.payload.data, server.payload.length, DRIVE_MOUNT_REQUEST,
                                 &asked, &wrong),
                     0);
    assert_string_equal(asked.vm_path, "/data");
    assert_int_equal(asked.timeout_ms, 3600 * 1000);
}

static void an_unmount_is_asked_for_and_answered(void **state)
{
    struct drive_unmount_answer sent = {.was_mounted = true, .disk_removed = true};
    struct drive_unmount_request asked;
    const char *wrong;

    assert_int_equal(drive_append(&payload, DRIVE_UNMOUNT_ANSWER, &sent), 0);
    call(DRIVE_CLIENT_UNMOUNT);
    expect(DRIVE_CLIENT_ANSWERED, STATUS_OK, "");
    assert_true(seen.reply.unmount.was_mounted && seen.reply.unmount.disk_removed);
    assert_string_equal(server.request.method, DRIVE_METHOD_UNMOUNT);
    assert_int_equal(drive_parse(server.payload.data, server.payload.length, DRIVE_UNMOUNT_REQUEST,
                                 &asked, &wrong),
                     0);
    assert_string_equal(asked.serial, serial);
}

static void drive_is_found_in_the_list_by_its_serial(void **state)
{
    struct drive_guest_entry entries[] = {
        {.serial = "crust-aaaaaaaaaaaaaa", .state = DRIVE_GUEST_MOUNTED, .vm_path = "/other"},
        {.state = DRIVE_GUEST_MOUNTED, .device = "sda", .vm_path = "/data"}};
    struct drive_guest_list list = {.count = 1, .entries = entries, .incomplete = true};

    strcpy(entries[1].serial, serial);
    assert_int_equal(drive_append_list(&payload, &list), 0);
    call(DRIVE_CLIENT_LIST);
    expect(DRIVE_CLIENT_ANSWERED, STATUS_OK, "");
    assert_string_equal(seen.reply.entry.serial, "");
    assert_true(seen.reply.is_incomplete);
    buffer_clear(&payload);
    list = (struct drive_guest_list){.count = 2, .entries = entries};
    assert_int_equal(drive_append_list(&payload, &list), 0);
    call(DRIVE_CLIENT_LIST);
    assert_string_equal(seen.reply.entry.vm_path, "/data");
    assert_false(seen.reply.is_incomplete);
}

/* ResizeVolume has no other statuses that are told apart, but those of a policy. */
struct refusal {
    struct ttrpc_status answer;
    enum drive_client_outcome outcome;
    enum status_code status;
    const char *text;
};

static void expect_each(enum drive_client_act act, const struct refusal *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        said = rows[i].answer;
        call(act);
        expect(rows[i].outcome, rows[i].status, rows[i].text);
    }
}

static void growth_is_asked_for_and_answered(void **state)
{
    static const struct refusal rows[] = {
        {{0, ""}, DRIVE_CLIENT_ANSWERED, STATUS_OK, ""},
        {{STATUS_FAILED_PRECONDITION, AGENT_LIMIT_TEXT},
         DRIVE_CLIENT_ANSWERED,
         STATUS_FAILED_PRECONDITION,
         "FAILED_PRECONDITION: the file system cannot"},
        {{STATUS_UNAVAILABLE, AGENT_READ_ONLY_TEXT},
         DRIVE_CLIENT_ANSWERED,
         STATUS_UNAVAILABLE,
         "UNAVAILABLE: "},
        {{STATUS_DEADLINE_EXCEEDED, AGENT_GROWING_TEXT},
         DRIVE_CLIENT_ANSWERED,
         STATUS_DEADLINE_EXCEEDED,
         "growing"},
        {{STATUS_DEADLINE_EXCEEDED, ""},
         DRIVE_CLIENT_ANSWERED,
         STATUS_DEADLINE_EXCEEDED,
         "DEADLINE_EXCEEDED"},
        {{STATUS_INVALID_ARGUMENT, "no mount point"},
         DRIVE_CLIENT_ANSWERED,
         STATUS_INTERNAL,
         "INVALID_ARGUMENT: no mount point"},
        {{STATUS_INTERNAL, "policy check"},
         DRIVE_CLIENT_ANSWERED,
         STATUS_PERMISSION_DENIED,
         "INTERNAL: policy check"},
        {{STATUS_UNIMPLEMENTED, ""},
         DRIVE_CLIENT_UNSUPPORTED,
         STATUS_FAILED_PRECONDITION,
         "does not know"},
    };

    expect_each(DRIVE_CLIENT_GROW, rows, array_length(rows));
    assert_string_equal(server.request.service, AGENT_SERVICE);
    assert_string_equal(server.request.method, AGENT_METHOD_RESIZE);
    assert_memory_equal(server.payload.data, "\x0a\x05/data\x10\x80\x20", 10);
}

static void refusals_have_outcomes(void **state)
{
    static const struct refusal rows[] = {
        {{STATUS_FAILED_PRECONDITION, "in use by 12 (sleep)"},
         DRIVE_CLIENT_ANSWERED,
         STATUS_FAILED_PRECONDITION,
         "12 (sleep)"},
        /* no agent of ours gives it */
        {{STATUS_OUT_OF_RANGE, ""}, DRIVE_CLIENT_ANSWERED, STATUS_INTERNAL, "OUT_OF_RANGE"},
        {{STATUS_UNIMPLEMENTED, ""},
         DRIVE_CLIENT_UNSUPPORTED,
         STATUS_FAILED_PRECONDITION,
         "does not know drives"},
        {{STATUS_NOT_FOUND, "/crust.guest.v1.Drives/MountDrive is not supported"},
         DRIVE_CLIENT_UNSUPPORTED,
         STATUS_FAILED_PRECONDITION,
         "does not know drives"},
        {{STATUS_INVALID_ARGUMENT, "/crust.guest.v1.Drives/MountDrive does not exist"},
         DRIVE_CLIENT_UNSUPPORTED,
         STATUS_FAILED_PRECONDITION,
         "does not know drives"},
    };

    expect_each(DRIVE_CLIENT_MOUNT, rows, array_length(rows));
}

/* Who listens is this process, and not the VMM. */
static void another_process_is_not_asked(void **state)
{
    script.close_at_once = true;
    vmm = getppid();
    call(DRIVE_CLIENT_MOUNT);
    vmm = 0;
    expect(DRIVE_CLIENT_FOREIGN, STATUS_UNAVAILABLE, "neither the sandbox's VMM nor its shim");
    assert_int_equal(server.payload.length, 0);
}

static void socket_behind_a_link_is_not_taken_for_an_absent_agent(void **state)
{
    assert_int_equal(symlinkat("agent.sock", root, "linked.sock"), 0);
    vmm = getpid();
    call_at("unix:///linked.sock", DRIVE_CLIENT_MOUNT, LONG_TIME);
    vmm = 0;
    expect(DRIVE_CLIENT_FOREIGN, STATUS_UNAVAILABLE, "a link is on the way");
    assert_int_equal(server.connections, 0);
}

static void nonsense_and_a_closed_connection_are_unreachable(void **state)
{
    assert_int_equal(buffer_append(&payload, "\xff\xff", 2), 0);
    call(DRIVE_CLIENT_MOUNT);
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "cannot be understood");
    script.answer = NULL;
    script.close = true;
    call_at("unix:///agent.sock", DRIVE_CLIENT_MOUNT, LONG_TIME); /* without an answer */
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "closed the connection");
}

static void silent_agent_differs_from_an_absent_one(void **state)
{
    call_at("unix:///agent.sock", DRIVE_CLIENT_LIST, SHORT_TIME);
    expect(DRIVE_CLIENT_SILENT, STATUS_UNAVAILABLE, "no answer");
    call_at("unix:///nobody.sock", DRIVE_CLIENT_LIST, LONG_TIME);
    expect(DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, "cannot connect");
}

/* Its queue is full: it may well be the agent. */
static void busy_agent_is_not_taken_for_an_absent_one(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int waiting[8];
    unsigned count = 0;

    loop_io_stop(&listening.accepting);
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/agent.sock", scratch);
    for (int r = 0; r == 0; count++) {
        assert_true(count < array_length(waiting));
        waiting[count] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        r = connect(waiting[count], (struct sockaddr *)&name, sizeof(name));
    }
    call(DRIVE_CLIENT_LIST);
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "cannot connect");
    while (count)
        fd_close(waiting[--count]);
}

/* In this process, for a worker's limit is its own. */
static void without_descriptors_no_agent_is_taken_for_absent(void **state)
{
    const struct drive_client_request request = {
        .act = DRIVE_CLIENT_LIST,
        .root = root,
        .address = "unix:///agent.sock",
        .allowed_ns = LONG_TIME,
    };
    struct rlimit before, none = {0};

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    drive_client_run(&request, serial, &payload, clock_boottime() + LONG_TIME, &seen.reply);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "Too many open files");
}

static void killed_worker_is_not_taken_for_an_absent_agent(void **state)
{
    script.answer = kill_client;
    call_at("unix:///agent.sock", DRIVE_CLIENT_MOUNT, LONG_TIME);
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "the worker process that asked has died");
}

static void a_bad_address_is_reported_from_the_loop(void **state)
{
    call_at("vsock://2:1030", DRIVE_CLIENT_LIST, LONG_TIME);
    expect(DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, "vsock://2:1030");
}

static void a_running_call_may_be_freed(void **state)
{
    const struct drive_mount_request drive = {.drive_id = "d1"};
    struct drive_client_request request = {
        .act = DRIVE_CLIENT_LIST,
        .root = root,
        .address = "unix:///agent.sock",
        .drive = &drive,
        .allowed_ns = LONG_TIME,
    };
    struct drive_client *client;

    assert_int_equal(drive_client_new(&request, on_done, &seen, &client), 0);
    assert_null(drive_client_free(client));
    assert_null(drive_client_free(NULL));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_mount_is_asked_for_and_answered),
        TEST(an_unmount_is_asked_for_and_answered),
        TEST(another_process_is_not_asked),
        TEST(socket_behind_a_link_is_not_taken_for_an_absent_agent),
        TEST(drive_is_found_in_the_list_by_its_serial),
        TEST(growth_is_asked_for_and_answered),
        TEST(refusals_have_outcomes),
        TEST(nonsense_and_a_closed_connection_are_unreachable),
        TEST(silent_agent_differs_from_an_absent_one),
        TEST(busy_agent_is_not_taken_for_an_absent_one),
        TEST(without_descriptors_no_agent_is_taken_for_absent),
        TEST(killed_worker_is_not_taken_for_an_absent_agent),
        TEST(a_bad_address_is_reported_from_the_loop),
        TEST(a_running_call_may_be_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
