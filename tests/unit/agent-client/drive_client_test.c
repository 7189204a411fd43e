/* SPDX-License-Identifier: Apache-2.0 */
/* drive_client_test.c - calls of Drives against an agent on the same loop that answers as each test
 * has it. */
#include "tests/unit/test.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "agent-client/drive_client.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "tests/unit/scratch.h"

#define LONG_TIME  (3600 * NSEC_PER_SEC)
#define SHORT_TIME (30 * NSEC_PER_MSEC)

static const char serial[] = "crust-abcdefghijk237";

static struct loop loop;
static int root;
static char scratch[SCRATCH_BYTES];

static struct {
    struct ttrpc_status status;
    struct buffer answer;
    bool silent, closes;
} script;

static struct {
    int listener, connection;
    unsigned connections; /* so far */
    struct loop_io accepting, receiving;
    struct buffer input;
    struct ttrpc_request request;
    struct buffer payload;
} agent;

static struct {
    unsigned calls;
    struct drive_client_reply reply; /* without the list */
    size_t listed;
    char listed_path[DRIVE_PATH_BYTES];
} seen;

static void hang_up(void)
{
    loop_io_stop(&agent.receiving);
    fd_close(take_fd(&agent.connection));
}

static void answer(uint32_t stream)
{
    cleanup(buffer_done) struct buffer frame = BUFFER_INIT(0);

    assert_int_equal(ttrpc_append_response(&frame, stream, &script.status,
                                           buffer_text(&script.answer), script.answer.length),
                     0);
    assert_int_equal(send(agent.connection, frame.data, frame.length, MSG_NOSIGNAL), frame.length);
}

static void on_receive(struct loop_io *io, int events)
{
    char bytes[4096];
    ssize_t count = read(agent.connection, bytes, sizeof(bytes));
    struct ttrpc_frame frame;

    (void)io;
    (void)events;
    if (count <= 0 || script.closes) {
        hang_up();
        return;
    }
    assert_int_equal(buffer_append(&agent.input, bytes, (size_t)count), 0);
    if (ttrpc_next_frame(buffer_text(&agent.input), agent.input.length, 65536, &frame) !=
        TTRPC_FRAME)
        return;
    assert_int_equal(ttrpc_parse_request(&frame, &agent.request, &agent.payload), 0);
    if (!script.silent)
        answer(frame.header.stream);
    buffer_consume(&agent.input, frame.size);
}

static void on_accept(struct loop_io *io, int events)
{
    (void)io;
    (void)events;
    agent.connection = accept4(agent.listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(agent.connection >= 0);
    agent.connections++;
    loop_io_start(&loop, &agent.receiving, agent.connection, LOOP_READ, on_receive);
}

static int set_up(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};

    (void)state;
    memset(&script, 0, sizeof(script));
    memset(&agent, 0, sizeof(agent));
    memset(&seen, 0, sizeof(seen));
    agent.connection = -1;
    if (scratch_directory_make(scratch) < 0)
        return -1;
    root = open(scratch, O_PATH | O_DIRECTORY | O_CLOEXEC);
    (void)snprintf(name.sun_path, sizeof(name.sun_path), "%s/agent.sock", scratch);
    agent.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(agent.listener, (struct sockaddr *)&name, sizeof(name)) < 0 ||
        listen(agent.listener, 1) < 0 || loop_init(&loop) < 0)
        return -1;
    loop_io_start(&loop, &agent.accepting, agent.listener, LOOP_READ, on_accept);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hang_up();
    loop_io_stop(&agent.accepting);
    fd_close(agent.listener);
    fd_close(root);
    buffer_done(&agent.input);
    buffer_done(&agent.payload);
    buffer_done(&script.answer);
    loop_done(&loop);
    return scratch_directory_remove(scratch);
}

static void on_done(struct drive_client *client, const struct drive_client_reply *reply,
                    void *userdata)
{
    assert_ptr_equal(userdata, &seen);
    seen.calls++;
    seen.reply = *reply;
    seen.listed = reply->list.count;
    if (reply->list.count)
        (void)snprintf(seen.listed_path, sizeof(seen.listed_path), "%s",
                       reply->list.entries[0].vm_path);
    (void)drive_client_free(client);
    loop_stop(&loop);
}

/* The sandbox's VMM; 0: anybody may listen. */
static pid_t vmm;

static void call_at(const char *address, enum drive_client_act act, uint64_t deadline_ns)
{
    struct drive_mount_request mount = {
        .drive_id = "d1",
        .bytes = 4096,
        .vm_path = "/data",
        .filesystem_type = "ext4",
    };
    struct drive_unmount_request unmount = {.drive_id = "d1"};
    struct drive_client_request request = {
        .act = act,
        .root = root,
        .address = address,
        .listener = {.vmm = vmm},
        .mount = &mount,
        .unmount = &unmount,
        .deadline_ns = deadline_ns,
    };
    struct drive_client *client;

    strcpy(mount.serial, serial);
    strcpy(unmount.serial, serial);
    assert_int_equal(drive_client_new(&loop, &request, on_done, &seen, &client), 0);
    assert_int_equal(seen.calls, 0);
    loop_run(&loop);
    assert_int_equal(seen.calls, 1);
}

static void call(enum drive_client_act act)
{
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

    (void)state;
    assert_int_equal(drive_append_mount_answer(&script.answer, &sent), 0);
    call(DRIVE_CLIENT_MOUNT);
    expect(DRIVE_CLIENT_ANSWERED, STATUS_OK, "");
    assert_string_equal(seen.reply.mount.device, "sda");
    assert_int_equal(seen.reply.mount.walk.failed, 3);
    assert_string_equal(agent.request.service, DRIVE_SERVICE);
    assert_string_equal(agent.request.method, DRIVE_METHOD_MOUNT);
    assert_int_equal(
        drive_parse_mount_request(agent.payload.data, agent.payload.length, &asked, &wrong), 0);
    assert_string_equal(asked.vm_path, "/data");
    assert_int_equal(asked.timeout_ms, 3600 * 1000);
}

static void an_unmount_is_asked_for_and_answered(void **state)
{
    struct drive_unmount_answer sent = {.was_mounted = true, .disk_removed = true};
    struct drive_unmount_request asked;
    const char *wrong;

    (void)state;
    assert_int_equal(drive_append_unmount_answer(&script.answer, &sent), 0);
    call(DRIVE_CLIENT_UNMOUNT);
    expect(DRIVE_CLIENT_ANSWERED, STATUS_OK, "");
    assert_true(seen.reply.unmount.was_mounted && seen.reply.unmount.disk_removed);
    assert_string_equal(agent.request.method, DRIVE_METHOD_UNMOUNT);
    assert_int_equal(
        drive_parse_unmount_request(agent.payload.data, agent.payload.length, &asked, &wrong), 0);
    assert_string_equal(asked.serial, serial);
}

static void a_list_is_lent_to_the_callback(void **state)
{
    struct drive_guest_entry entry = {
        .state = DRIVE_GUEST_MOUNTED, .device = "sda", .vm_path = "/data"};
    struct drive_guest_list list = {.count = 1, .entries = &entry};

    (void)state;
    strcpy(entry.serial, serial);
    assert_int_equal(drive_append_list(&script.answer, &list), 0);
    call(DRIVE_CLIENT_LIST);
    expect(DRIVE_CLIENT_ANSWERED, STATUS_OK, "");
    assert_int_equal(seen.listed, 1);
    assert_string_equal(seen.listed_path, "/data");
}

static void a_refusal_keeps_its_status_and_text(void **state)
{
    (void)state;
    script.status = (struct ttrpc_status){STATUS_FAILED_PRECONDITION, "in use by 12 (sleep)"};
    call(DRIVE_CLIENT_UNMOUNT);
    expect(DRIVE_CLIENT_ANSWERED, STATUS_FAILED_PRECONDITION, "12 (sleep)");
}

static void a_status_that_no_agent_of_ours_gives_is_internal(void **state)
{
    (void)state;
    script.status = (struct ttrpc_status){STATUS_OUT_OF_RANGE, ""};
    call(DRIVE_CLIENT_MOUNT);
    expect(DRIVE_CLIENT_ANSWERED, STATUS_INTERNAL, "OUT_OF_RANGE");
}

static void agent_without_the_drive_service_is_unsupported(void **state)
{
    static const struct ttrpc_status answers[] = {
        {STATUS_UNIMPLEMENTED, ""},
        {STATUS_NOT_FOUND, "/crust.guest.v1.Drives/MountDrive is not supported"},
        {STATUS_INVALID_ARGUMENT, "/crust.guest.v1.Drives/MountDrive does not exist"},
    };

    (void)state;
    for (size_t i = 0; i < array_length(answers); i++) {
        script.status = answers[i];
        call(DRIVE_CLIENT_MOUNT);
        expect(DRIVE_CLIENT_UNSUPPORTED, STATUS_FAILED_PRECONDITION, "does not know drives");
        seen.calls = 0;
        hang_up();
    }
}

/* Who listens is this process, and not the VMM. */
static void another_process_is_not_asked(void **state)
{
    (void)state;
    script.closes = true;
    vmm = getppid();
    call(DRIVE_CLIENT_MOUNT);
    vmm = 0;
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "neither the sandbox's VMM nor its shim");
    assert_int_equal(agent.payload.length, 0);
}

static void socket_behind_a_link_is_not_taken_for_an_absent_agent(void **state)
{
    (void)state;
    assert_int_equal(symlinkat("agent.sock", root, "linked.sock"), 0);
    vmm = getpid();
    call_at("unix:///linked.sock", DRIVE_CLIENT_MOUNT, LONG_TIME);
    vmm = 0;
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "a link is on the way");
    assert_int_equal(agent.connections, 0);
}

static void nonsense_and_a_closed_connection_are_unreachable(void **state)
{
    (void)state;
    assert_int_equal(buffer_append(&script.answer, "\xff\xff", 2), 0);
    call(DRIVE_CLIENT_MOUNT);
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "cannot be understood");
    hang_up();
    seen.calls = 0;
    script.closes = true;
    call(DRIVE_CLIENT_MOUNT);
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "closed the connection");
}

static void silent_agent_differs_from_an_absent_one(void **state)
{
    (void)state;
    script.silent = true;
    call_at("unix:///agent.sock", DRIVE_CLIENT_LIST, SHORT_TIME);
    expect(DRIVE_CLIENT_SILENT, STATUS_UNAVAILABLE, "no answer within");
    seen.calls = 0;
    call_at("unix:///nobody.sock", DRIVE_CLIENT_LIST, LONG_TIME);
    expect(DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, "cannot connect");
}

/* Its queue is full: it may well be the agent. */
static void busy_agent_is_not_taken_for_an_absent_one(void **state)
{
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int waiting[8];
    unsigned count = 0;

    (void)state;
    loop_io_stop(&agent.accepting);
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

static void without_descriptors_no_agent_is_taken_for_absent(void **state)
{
    struct rlimit before, none = {0};

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    call(DRIVE_CLIENT_LIST);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    expect(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "Too many open files");
}

static void a_bad_address_is_reported_from_the_loop(void **state)
{
    (void)state;
    call_at("vsock://2:1030", DRIVE_CLIENT_LIST, LONG_TIME);
    expect(DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, "vsock://2:1030");
}

static void a_running_call_may_be_freed(void **state)
{
    struct drive_client_request request = {
        .act = DRIVE_CLIENT_LIST,
        .root = root,
        .address = "unix:///agent.sock",
        .deadline_ns = LONG_TIME,
    };
    struct drive_client *client;

    (void)state;
    assert_int_equal(drive_client_new(&loop, &request, on_done, &seen, &client), 0);
    assert_null(drive_client_free(client));
    assert_null(drive_client_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_mount_is_asked_for_and_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unmount_is_asked_for_and_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_process_is_not_asked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(socket_behind_a_link_is_not_taken_for_an_absent_agent,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_list_is_lent_to_the_callback, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_refusal_keeps_its_status_and_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_status_that_no_agent_of_ours_gives_is_internal, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(agent_without_the_drive_service_is_unsupported, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(nonsense_and_a_closed_connection_are_unreachable, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(silent_agent_differs_from_an_absent_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(busy_agent_is_not_taken_for_an_absent_one, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(without_descriptors_no_agent_is_taken_for_absent, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_bad_address_is_reported_from_the_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_running_call_may_be_freed, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
