/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_test.c - whole conversations: what is asked of a monitor, and what its answers mean. */
#include "tests/unit/hypervisor/qemu_monitor.h"

static void resizes(struct monitor *monitor)
{
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);
    const struct hypervisor_reply *reply = call(monitor, &request);

    if (reply->outcome != HYPERVISOR_DONE)
        print_error("%s\n", reply->error.text);
    assert_int_equal(reply->outcome, HYPERVISOR_DONE);
    assert_string_equal(reply->drive_id, "drive-1");
    assert_string_equal(reply->version, "7.2.22");
    assert_int_equal(reply->bytes, 2048);
    assert_int_equal(monitor->position, monitor->script_length);
}

static void resizes_over_qmp(void **state)
{
    struct monitor *monitor = *state;

    if (without_device(monitor))
        skip();
    serve(monitor, qmp_resize, array_length(qmp_resize));
    resizes(monitor);
    monitor->bytewise = true;
    resizes(monitor);
}

static void queries_without_resizing(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);

    if (without_device(monitor))
        skip();
    serve(monitor, qmp_resize, array_length(qmp_resize));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 1024);
    assert_int_equal(monitor->reply.resize, HYPERVISOR_DONE);
    assert_int_equal(monitor->position, 5);
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
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    for (size_t i = 0; i < array_length(table); i++) {
        monitor->status = table[i].status;
        serve(monitor, qmp_resize, array_length(qmp_resize));
        assert_int_equal(call(monitor, &request)->outcome,
                         table[i].said ? HYPERVISOR_PAUSED : HYPERVISOR_DONE);
        assert_string_equal(monitor->reply.error.text, table[i].said ? table[i].said : "");
        assert_int_equal(monitor->reply.list, HYPERVISOR_LIST_HAS);
        assert_int_equal(monitor->reply.bytes, 2048);
        assert_int_equal(monitor->position, array_length(qmp_resize));
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
        {"info qtree", "{\"return\": {}, \"id\": \"$ID\"}\r\n"},
        {"info qtree",
         "{\"error\": {\"class\": \"CommandNotFound\", \"desc\": \"\"}, \"id\": \"$ID\"}"},
    };
    struct exchange script[array_length(qmp_resize) + 1];
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    request.wants_address = true;
    memcpy(script, qmp_resize, sizeof(qmp_resize));
    for (size_t i = 0; i <= array_length(trees); i++) {
        if (i < array_length(trees))
            script[array_length(qmp_resize)] = trees[i];
        else
            monitor->close_at = array_length(qmp_resize);
        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
        assert_int_equal(monitor->reply.bytes, 2048);
        assert_string_equal(monitor->reply.address, i == 0 ? "pci:03" : "");
    }
}

/* The drive is larger than the device (it shrank): never less than the drive has is asked for. */
static void never_asks_for_less(void **state)
{
    static const struct exchange script[] = {
        {"", GREETING},
        {"\"qmp_capabilities\"", OK},
        {"\"query-block\"", FRONTENDS("4096")},
        {"\"query-named-block-nodes\"", NODES("4096")},
        {"\"query-fdsets\"", LIST("")},
        {"\"size\":4096", "{\"return\": {}, \"id\": \"$ID\"}\r\n"},
        {"\"query-block\"", FRONTENDS("4096")},
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    serve(monitor, script, array_length(script));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 4096);
}

static void skips_what_is_not_for_it(void **state)
{
    static const struct exchange script[] = {
        {"", GREETING},
        {"\"qmp_capabilities\"",
         "{\"event\": \"STOP\", \"timestamp\": {}}\r\n{\"return\": {}}\r\n"
         "{\"error\": {\"class\": \"GenericError\", \"desc\": \"foreign\"}, \"id\": \"x\"}\r\n"
         "{\"odd\": 1}\r\n{\"return\": {}, \"id\": \"$ID\"}\r\n{\"event\": \"RESUME\"}\r\n"},
        {"\"query-block\"", FRONTENDS("1024")},
        {"\"query-named-block-nodes\"", NODES("1024")},
        {"\"query-fdsets\"", "{\"return\": [], \"id\": \"$IDx\"}{\"return\": [], \"id\": \"$ID\"}"},
        {"\"block_resize\"", "{\"event\": \"A\", \"data\": {\"id\": \"$ID\"}}\r\n"
                             "{\"return\": {}, \"id\": \"$ID\"}\r\n"},
        {"\"query-block\"", FRONTENDS("2048")},
    };
    struct monitor *monitor = *state;

    if (without_device(monitor))
        skip();
    serve(monitor, script, array_length(script));
    resizes(monitor);
    monitor->bytewise = true;
    resizes(monitor);
}

static void a_drive_over_a_file(void **state)
{
    static const struct exchange script[] = {
        {"", GREETING},
        {"\"qmp_capabilities\"", OK},
        {"\"query-block\"", LIST("{\"inserted\": " NODE("drive-1", "raw", "$FILE", "1024") "}")},
        {"\"query-named-block-nodes\"",
         LIST(NODE("drive-1", "raw", "$FILE", "1024") ", " NODE("#b", "file", "$FILE", "1024"))},
        {"\"query-fdsets\"", LIST("")},
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_QUERY);
    struct stat st;

    assert_int_equal(stat(monitor->file, &st), 0);
    request.regular_file = true;
    request.file_device = st.st_dev;
    request.inode = st.st_ino;
    serve(monitor, script, array_length(script));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DONE);
    assert_int_equal(monitor->reply.bytes, 1024);
    assert_int_equal(monitor->reply.resize, HYPERVISOR_UNSUPPORTED);
    request.act = HYPERVISOR_RESIZE;
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_UNSUPPORTED);
    assert_int_equal(monitor->position, 5);
}

/* How each refusal of block_resize ends, and what the person reads. */
static void each_refusal_has_its_outcome(void **state)
{
    static const struct {
        const char *answer;
        enum hypervisor_outcome outcome;
    } cases[] = {
        {"{\"class\": \"GenericError\", \"desc\": \"Image is read-only\"}", HYPERVISOR_READ_ONLY},
        {"{\"class\": \"GenericError\", \"desc\": \"Cannot grow device files\"}",
         HYPERVISOR_REFUSED},
        {"{\"class\": \"GenericError\", \"desc\": \"Device '(null)' is in use\"}", HYPERVISOR_BUSY},
        {"{\"class\": \"CommandNotFound\", \"desc\": \"no such\"}", HYPERVISOR_UNSUPPORTED},
        {"{\"class\": \"GenericError\", \"desc\": \"Failed to get \\\"resize\\\" lock\"}",
         HYPERVISOR_REFUSED},
    };
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);

    if (without_device(monitor))
        skip();
    for (size_t i = 0; i < array_length(cases); i++) {
        char text[256];
        struct exchange script[array_length(qmp_resize)];

        memcpy(script, qmp_resize, sizeof(script));
        (void)snprintf(text, sizeof(text), "{\"id\": \"$ID\", \"error\": %s}\r\n", cases[i].answer);
        script[5].answer = text;
        serve(monitor, script, array_length(script));
        assert_int_equal(call(monitor, &request)->outcome, cases[i].outcome);
        assert_string_equal(monitor->reply.drive_id, "drive-1");
        assert_int_equal(monitor->reply.bytes, 1024);
        assert_non_null(strstr(monitor->reply.error.text, "drive-1"));
    }
}

/* Success is what the drive has afterwards, not what the command returned. */
static void checks_the_answer(void **state)
{
    struct monitor *monitor = *state;
    struct hypervisor_request request = request_for(monitor, HYPERVISOR_RESIZE);
    struct exchange script[array_length(qmp_resize)];

    if (without_device(monitor))
        skip();
    memcpy(script, qmp_resize, sizeof(script));
    script[6] = script[2];
    serve(monitor, script, array_length(script));
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_REFUSED);
    assert_int_equal(monitor->reply.bytes, 1024);
    script[6].answer = "{\"return\": [], \"id\": \"$ID\"}";
    assert_int_equal(call(monitor, &request)->outcome, HYPERVISOR_DRIVE_NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        scripted(resizes_over_qmp),
        scripted(queries_without_resizing),
        scripted(the_tree_of_devices_ends_nothing),
        scripted(a_paused_vm_takes_the_size_and_says_why_it_is_paused),
        scripted(the_tree_of_devices_ends_nothing),
        scripted(never_asks_for_less),
        scripted(skips_what_is_not_for_it),
        scripted(a_drive_over_a_file),
        scripted(each_refusal_has_its_outcome),
        scripted(checks_the_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
