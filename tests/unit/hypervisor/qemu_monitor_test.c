/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_monitor_test.c - a query and a resize, each one call, and what a monitor can do wrong; the
 * product's view of the same is in tests/e2e/report_failures_test.py.
 */
#include "tests/unit/hypervisor/qemu_monitor.h"

#define ROOT(name, size) NODE(name, "raw", "$DEVICE", size)
#define FRONTEND(node)   "{\"device\": \"\", \"inserted\": " node "}"
#define FRONTENDS(size)  LIST(FRONTEND(ROOT("drive-1", size)))
#define NODES(size)      LIST(ROOT("drive-1", size) ", " NODE("#b", "host_device", "$DEVICE", size))
#define QUESTIONS(size)                                                                            \
    NEGOTIATED, {"\"query-block\"", FRONTENDS(size)},                                              \
        {"\"query-named-block-nodes\",\"arguments\":{\"flat\":true}", NODES(size)},                \
    {                                                                                              \
        "\"query-fdsets\"", LIST("")                                                               \
    }
#define RESIZE                                                                                     \
    {                                                                                              \
        "\"block_resize\",\"arguments\":{\"node-name\":\"drive-1\",\"size\":2048}", OK             \
    }

static const struct exchange query[] = {QUESTIONS("1024")};
static const struct exchange resize[] = {
    QUESTIONS("1024"), RESIZE, {"\"query-block\"", FRONTENDS("2048")}};

static void need_device(const struct monitor *monitor)
{
    if (!monitor->device[0])
        skip();
}

/* ---- calls about sizes ---- */

static void a_query_reports_the_drive(void **state)
{
    struct monitor *monitor = *state;
    const struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    need_device(monitor);
    for (unsigned bytewise = 0; bytewise < 2; bytewise++) {
        monitor->bytewise = bytewise;
        assert_int_equal(CALL(&request, query)->outcome, HYPERVISOR_DONE);
        assert_string_equal(monitor->reply.version, "7.2.22");
        assert_string_equal(monitor->reply.drive_id, "drive-1");
        assert_int_equal(monitor->reply.bytes, 1024);
        assert_int_equal(monitor->reply.list, HYPERVISOR_LIST_HAS);
        assert_int_equal(monitor->reply.resize, HYPERVISOR_DONE);
        assert_int_equal(monitor->met, array_length(query));
    }
}

static void a_paused_vm_takes_the_size_and_says_why_it_is_paused(void **state)
{
    static const struct {
        const char *status, *said; /* NULL: it runs, as far as is known */
    } table[] = {
        {STATUS("running", "true"), NULL},
        {STATUS("paused", "false"), "the VM is paused: QEMU's status is paused"},
        {STATUS("io-error", "false"), "the VM is paused: QEMU's status is io-error"},
        {STATUS("\\u001b[2J", "false"), "the VM is paused: QEMU's status is \\u001b[2J"},
        {STATUS("prelaunch", "false"), NULL},
        {STATUS("paused", "0"), NULL},
        {"{\"return\": \"nonsense\", \"id\": \"$ID\"}\r\n", NULL},
        {"{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"\"}, \"id\": \"$ID\"}", NULL},
    };
    struct monitor *monitor = *state;
    const struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    need_device(monitor);
    for (size_t i = 0; i < array_length(table); i++) {
        monitor->status = table[i].status;
        assert_int_equal(CALL(&request, resize)->outcome,
                         table[i].said ? HYPERVISOR_PAUSED : HYPERVISOR_DONE);
        assert_string_equal(monitor->reply.error.text, table[i].said ? table[i].said : "");
        assert_int_equal(monitor->reply.list, HYPERVISOR_LIST_HAS);
        assert_int_equal(monitor->reply.bytes, 2048);
        assert_int_equal(monitor->met, array_length(resize));
    }
}

/* The drive was found and has its size; what the tree of devices is worth changes nothing of that.
 */
static void the_tree_of_devices_ends_nothing(void **state)
{
    static const struct exchange trees[] = {
        {"\"human-monitor-command\",\"arguments\":{\"command-line\":\"info qtree\"}",
         "{\"return\": \"dev: d\\r\\n  addr = 03.0\\r\\n  drive = \\\"drive-1\\\"\\r\\n\", \"id\": "
         "\"$ID\"}\r\n"},
        {"info qtree", "{\"return\": \"nonsense\", \"id\": \"$ID\"}\r\n"},
        {"info qtree", OK},
        {"info qtree", REFUSE("no")},
        {"info qtree", NULL},
        {"info qtree", ""},
    };
    struct exchange script[array_length(resize) + 1];
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    need_device(monitor);
    request.wants_address = true;
    memcpy(script, resize, sizeof(resize));
    for (size_t i = 0; i < array_length(trees); i++) {
        script[array_length(resize)] = trees[i];
        monitor->deadline_ms = i + 1 == array_length(trees) ? 400 : PATIENCE_MS;
        assert_int_equal(CALL(&request, script)->outcome, HYPERVISOR_DONE);
        assert_int_equal(monitor->reply.bytes, 2048);
        assert_string_equal(monitor->reply.address, i == 0 ? "pci:03" : "");
    }
}

/* The drive is larger than the device (it shrank): never less than the drive has is asked for. */
static void never_asks_for_less(void **state)
{
    static const struct exchange script[] = {
        QUESTIONS("4096"), {"\"size\":4096", OK}, {"\"query-block\"", FRONTENDS("4096")}};
    struct monitor *monitor = *state;
    const struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    need_device(monitor);
    assert_int_equal(CALL(&request, script)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 4096);
}

/* The smallest first; the list afterwards shows that another one is smaller still. */
static void every_drive_of_the_device_is_resized(void **state)
{
#define BOTH(one, two) LIST(FRONTEND(ROOT("drive-1", one)) ", " FRONTEND(ROOT("drive-2", two)))
    static const struct exchange script[] = {
        NEGOTIATED,
        {"\"query-block\"", BOTH("1024", "1536")},
        {"\"query-named-block-nodes\"", NODES("1024")},
        {"\"query-fdsets\"", LIST("")},
        RESIZE,
        {"\"query-block\"", BOTH("2048", "1536")},
        {"\"node-name\":\"drive-2\",\"size\":2048", OK},
        {"\"query-block\"", BOTH("2048", "2048")},
    };
    struct monitor *monitor = *state;
    const struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    need_device(monitor);
    assert_int_equal(CALL(&request, script)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->met, array_length(script));
    assert_int_equal(monitor->reply.bytes, 2048);
}

/* What a resize ends with that QEMU answered, or the list after it. */
static void the_size_afterwards_decides(void **state)
{
    static const struct {
        const char *resized, *listed;
        enum hypervisor_outcome outcome;
        enum hypervisor_list list;
        const char *text;
    } table[] = {
        {OK, FRONTENDS("1024"), HYPERVISOR_REFUSED, HYPERVISOR_LIST_HAS,
         "drive-1 has 1024 bytes after the resize, the device 2048"},
        {OK, LIST(""), HYPERVISOR_DRIVE_NOT_FOUND, HYPERVISOR_LIST_UNREAD,
         "drive-1 was removed in the meantime"},
        {OK, REFUSE("no list"), HYPERVISOR_REFUSED, HYPERVISOR_LIST_HAS, "drive-1: no list"},
        {OK, OK, HYPERVISOR_UNREACHABLE, HYPERVISOR_LIST_HAS, "query-block: the answer is no list"},
        {REFUSE("Device 'x' is in use"), FRONTENDS("2048"), HYPERVISOR_BUSY, HYPERVISOR_LIST_HAS,
         "drive-1: Device 'x' is in use"},
        {OK, "", HYPERVISOR_UNREACHABLE, HYPERVISOR_LIST_HAS, "the monitor: no answer in time"},
        /* It has the size, and is not found again. */
        {OK, LIST(FRONTEND(NODE("drive-1", "raw", "/nowhere", "2048"))), HYPERVISOR_DONE,
         HYPERVISOR_LIST_HAS, ""},
    };
    struct monitor *monitor = *state;
    const struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);
    struct exchange script[array_length(resize)];

    need_device(monitor);
    memcpy(script, resize, sizeof(resize));
    for (size_t i = 0; i < array_length(table); i++) {
        script[array_length(resize) - 2].answer = table[i].resized;
        script[array_length(resize) - 1].answer = table[i].listed;
        monitor->deadline_ms = table[i].listed[0] ? PATIENCE_MS : 400;
        assert_int_equal(CALL(&request, script)->outcome, table[i].outcome);
        assert_string_equal(monitor->reply.error.text, table[i].text);
        assert_int_equal(monitor->reply.list, table[i].list);
        assert_string_equal(monitor->reply.drive_id, "drive-1");
    }
}

/* ---- what a monitor can do wrong, whatever it is asked ---- */

static void expect_both(struct monitor *monitor, const struct exchange *script, size_t length,
                        enum hypervisor_outcome outcome, const char *text)
{
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);
    struct hypervisor_request look = drive_request_for(monitor, HYPERVISOR_QUERY);

    assert_int_equal(call(monitor, &request, script, length)->outcome, outcome);
    assert_non_null(strstr(monitor->reply.error.text, text));
    assert_int_equal(call(monitor, &look, script, length)->outcome, outcome);
    assert_non_null(strstr(monitor->reply.error.text, text));
    assert_int_equal(monitor->reply.state, HYPERVISOR_DRIVE_UNKNOWN);
}

#define EXPECT_BOTH(script, outcome, text)                                                         \
    expect_both(monitor, script, array_length(script), HYPERVISOR_##outcome, text)

/* Nothing is asked of it. */
static void a_human_monitor_is_none(void **state)
{
    static const struct exchange script[] = {
        {"", "QEMU 7.2.22 monitor - type 'help' for more information\r\n(qemu) "}};
    struct monitor *monitor = *state;

    for (unsigned bytewise = 0; bytewise < 2; bytewise++) {
        monitor->bytewise = bytewise;
        EXPECT_BOTH(script, MONITOR_MISSING,
                    "this is a human monitor (HMP), which crustd does not use: crust-qemu");
    }
}

static void no_greeting_is_one_that_another_client_holds(void **state)
{
    static const struct exchange silent[] = {{"", ""}}, half[] = {{"", "{\"QMP\": "}};
    struct monitor *monitor = *state;

    monitor->deadline_ms = 50;
    EXPECT_BOTH(silent, BUSY, "the monitor gives no greeting: another client holds it");
    EXPECT_BOTH(half, BUSY, "the monitor gives no greeting: another client holds it");
}

static void a_wrong_greeting_is_refused(void **state)
{
    static const struct exchange closes[] = {{"", NULL}}, other[] = {{"", "{\"hello\": 1}\r\n"}},
                                 garbage[] = {{"", "SSH-2.0\r\n"}}, event[] = {{"", EVENT}};
    struct monitor *monitor = *state;

    EXPECT_BOTH(closes, UNREACHABLE, "the monitor: the connection was closed");
    EXPECT_BOTH(garbage, UNREACHABLE, "what listens there is no QEMU monitor");
    EXPECT_BOTH(other, UNREACHABLE, "the monitor did not greet");
    EXPECT_BOTH(event, UNREACHABLE, "the monitor did not greet");
}

/* In the place of the first answer. Those that are ignored are followed by nothing more. */
static void an_answer_that_is_none_ends_the_conversation(void **state)
{
    static const struct {
        const char *answer, *next, *text; /* next: as in a script */
    } table[] = {
        {NULL, NULL, "the monitor: "},
        {"", "", "the monitor: no answer in time"},
        {REFUSE("not now"), "", "qmp_capabilities: not now"},
        {"<html>\r\n", "", "the monitor sent something that is no JSON object"},
        {"{\"return\": tru, \"id\": \"1\"}\r\n", "", "at byte"},
        {"{\"return\": {}}\r\n", NULL, "the monitor: "},
        {"{\"return\": {}, \"id\": \"7\"}\r\n", NULL, "the monitor: "},
        {"{\"return\": {}, \"id\": 1}\r\n", NULL, "the monitor: "},
        {"{\"return\": ", NULL, "the monitor: "},
        {EVENT, NULL, "the monitor: "},
    };
    struct monitor *monitor = *state;

    for (size_t i = 0; i < array_length(table); i++) {
        const struct exchange script[] = {{"", GREETING},
                                          {"\"qmp_capabilities\"", table[i].answer},
                                          {"", table[i].next},
                                          ANY,
                                          ANY,
                                          ANY};

        monitor->deadline_ms = table[i].answer && !table[i].answer[0] ? 200 : PATIENCE_MS;
        EXPECT_BOTH(script, UNREACHABLE, table[i].text);
    }
}

/* Many events, or few that are each as large as an answer may be, before the first answer. */
static void a_flood_of_events_ends_the_conversation(void **state)
{
    static const struct {
        unsigned events;
        int bytes;
    } floods[] = {{5000, 8}, {10, 1024 * 1024}};
    struct monitor *monitor = *state;

    for (size_t i = 0; i < array_length(floods); i++) {
        cleanup(buffer_done) struct buffer flood = BUFFER_INIT(0);

        for (unsigned event = 0; event < floods[i].events; event++)
            assert_int_equal(
                buffer_append_format(&flood, "{\"event\": \"%*s\"}\r\n", floods[i].bytes, "x"), 0);
        assert_int_equal(buffer_append_text(&flood, OK), 0);
        {
            const struct exchange script[] = {
                {"", GREETING}, {"\"qmp_capabilities\"", buffer_text(&flood)}, ANY, ANY, ANY, ANY};

            EXPECT_BOTH(script, UNREACHABLE, "the monitor says more than it was asked for");
        }
    }
}

static void events_and_answers_to_nothing_are_ignored(void **state)
{
    static const struct exchange script[] = {
        {"", GREETING},
        {"\"qmp_capabilities\"", EVENT OK},
        {"\"query-fdsets\"", EVENT LIST("") "{\"id\": \"6\", \"return\": []}\r\n"},
        {"\"qom-list\"", "{\"id\": \"9\", \"error\": {}}\r\n{}\r\n" LIST("") EVENT},
        {"\"query-named-block-nodes\"", GREETING LIST("")},
        {"\"qom-list\"", LIST("")},
    };
    struct monitor *monitor = *state;
    const struct hypervisor_request look = drive_request_for(monitor, HYPERVISOR_QUERY);

    assert_int_equal(call(monitor, &look, script, array_length(script))->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.state, HYPERVISOR_DRIVE_ABSENT);
}

/* Who listens is this process, and neither the VMM nor its shim. */
static void another_process_is_not_asked(void **state)
{
    static const struct exchange script[] = {{"", ""}};
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    request.vmm_pid = getppid();
    assert_int_equal(CALL(&request, script)->outcome, HYPERVISOR_UNREACHABLE);
    assert_non_null(strstr(monitor->reply.error.text, "neither the sandbox's VMM nor its shim"));
}

static void a_missing_or_a_full_socket_is_told_apart(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int waiting[2];

    request.control_socket = "/nonexistent/monitor.sock";
    qemu_act(&request, deadline_of(monitor), &monitor->reply);
    assert_int_equal(monitor->reply.outcome, HYPERVISOR_MONITOR_MISSING);
    request.control_socket = monitor->path;
    qemu_act(&request, deadline_of(monitor), &monitor->reply);
    assert_int_equal(monitor->reply.outcome, HYPERVISOR_UNREACHABLE);
    assert_non_null(strstr(monitor->reply.error.text, "the monitor: cannot connect"));
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", monitor->path);
    assert_int_equal(listen(monitor->listener, 0), 0);
    for (size_t i = 0; i < array_length(waiting); i++) {
        waiting[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        (void)connect(waiting[i], (struct sockaddr *)&address, sizeof(address));
    }
    qemu_act(&request, deadline_of(monitor), &monitor->reply);
    assert_int_equal(monitor->reply.outcome, HYPERVISOR_BUSY);
    for (size_t i = 0; i < array_length(waiting); i++)
        fd_close(waiting[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scripted(a_query_reports_the_drive),
        scripted(a_paused_vm_takes_the_size_and_says_why_it_is_paused),
        scripted(the_tree_of_devices_ends_nothing),
        scripted(never_asks_for_less),
        scripted(every_drive_of_the_device_is_resized),
        scripted(the_size_afterwards_decides),
        scripted(a_human_monitor_is_none),
        scripted(no_greeting_is_one_that_another_client_holds),
        scripted(a_wrong_greeting_is_refused),
        scripted(an_answer_that_is_none_ends_the_conversation),
        scripted(a_flood_of_events_ends_the_conversation),
        scripted(events_and_answers_to_nothing_are_ignored),
        scripted(another_process_is_not_asked),
        scripted(a_missing_or_a_full_socket_is_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
