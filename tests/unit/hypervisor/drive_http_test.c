/* SPDX-License-Identifier: Apache-2.0 */
/* drive_http_test.c - conversations about drives with a scripted Cloud Hypervisor and a scripted
 * Firecracker. The test is the VMM's process, and has the script's device open. */
#include "tests/unit/http_server.h"

#include <inttypes.h>
#include <sys/wait.h>

#include "hypervisor/drive.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "tests/unit/few_descriptors.h"

#define HTTP_JSON(status, body) "HTTP/1.1 " status " \r\nConnection: close\r\n\r\n" body
#define HTTP_EMPTY              "HTTP/1.1 204 \r\nConnection: close\r\n\r\n"

struct drive_case {
    struct http_server *server;
    unsigned count;
    struct hypervisor_drive_reply reply;
    struct hypervisor_drive_entry entry[4];
};

static void on_done(struct hypervisor_drive_call *call, const struct hypervisor_drive_reply *reply,
                    void *userdata)
{
    struct drive_case *made = userdata;

    made->count++;
    made->reply = *reply;
    assert_int_equal(reply->error.code, (int)reply->outcome);
    assert_true(reply->outcome == HYPERVISOR_DRIVE_DONE || reply->error.text[0]);
    assert_in_range(reply->entry_count, 0, array_length(made->entry));
    if (reply->entry_count)
        memcpy(made->entry, reply->entries, reply->entry_count * sizeof(*made->entry));
    (void)hypervisor_drive_call_free(call);
    loop_stop(&made->server->loop);
}

/* The descriptor is any: these VMMs do not get it. */
static struct hypervisor_drive_request request_for(const struct http_server *server,
                                                   enum hypervisor_drive_act act)
{
    return (struct hypervisor_drive_request){
        .act = act,
        .root = server->root,
        .control_socket = server->path,
        .vmm_pid = getpid(),
        .drive_id = act == HYPERVISOR_DRIVE_LIST ? NULL : "data-1",
        .disk = {.device = act == HYPERVISOR_DRIVE_DETACH ? 0 : server->device_number},
        .bytes = 4096,
        .descriptor = -1,
        .path = server->device,
        .serial = "crust-abc",
        .removal_ns = 60 * NSEC_PER_SEC,
        .deadline_ns = 60 * NSEC_PER_SEC,
    };
}

static struct drive_case run(struct http_server *server, enum hypervisor_kind kind,
                             const struct hypervisor_drive_request *request,
                             const struct http_script *script, size_t length)
{
    struct drive_case made = {.server = server};
    struct hypervisor_drive_request copy = *request;
    cleanup(fd_closep) int disk = open("/dev/null", O_RDWR | O_CLOEXEC);
    struct hypervisor_drive_call *call;
    struct error error;

    if (!server->device[0])
        skip();
    if (copy.act == HYPERVISOR_DRIVE_ATTACH && copy.descriptor == 0)
        copy.descriptor = disk;
    http_server_listen(server, script, length);
    assert_int_equal(
        hypervisor_drive_call_new(&server->loop, kind, &copy, on_done, &made, &call, &error), 0);
    assert_int_equal(made.count, 0);
    loop_run(&server->loop);
    assert_int_equal(made.count, 1);
    assert_int_equal(server->position, length);
    return made;
}

static void expect(const struct drive_case *made, enum hypervisor_drive_outcome outcome,
                   enum hypervisor_drive_state state, const char *text)
{
    if (made->reply.outcome != outcome)
        print_error("%s\n", made->reply.error.text);
    assert_int_equal(made->reply.outcome, outcome);
    assert_int_equal(made->reply.state, state);
    if (text && !strstr(made->reply.error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", made->reply.error.text, text);
}

#define RUN(kind, request, ...)                                                                    \
    run(*state, kind, request, (const struct http_script[]){__VA_ARGS__},                          \
        array_length(((const struct http_script[]){__VA_ARGS__})))

/* ---- Cloud Hypervisor ----------------------------------------------------------------------- */

#define CH HYPERVISOR_CLOUD_HYPERVISOR
#define PING(version)                                                                              \
    {                                                                                              \
        "GET /api/v1/vmm.ping HTTP/1.1\r\n",                                                       \
            HTTP_JSON("200", "{\"version\":\"" version "\",\"pid\":7}")                            \
    }
#define INFO_OF(state, disks, tree)                                                                \
    {                                                                                              \
        "GET /api/v1/vm.info HTTP/1.1\r\n",                                                        \
            HTTP_JSON("200", "{\"config\":{\"disks\":[" disks "]},\"state\":\"" state              \
                             "\",\"device_tree\":{" tree "}}")                                     \
    }
#define INFO(disks, tree) INFO_OF("Running", disks, tree)
#define CH_DISK(id, path, serial)                                                                  \
    "{\"id\":\"" id "\",\"path\":\"" path "\",\"readonly\":false,\"serial\":\"" serial             \
    "\",\"image_type\":\"Raw\"}"
#define OTHERS "{\"id\":\"_disk0\",\"path\":\"/nonexistent\"}"
#define OURS   CH_DISK("crust_data-1", "$DEVICE", "crust-abc")
#define TREE                                                                                       \
    "\"crust_data-1\":{\"parent\":\"_virtio-pci-crust_data-1\"},"                                  \
    "\"_virtio-pci-crust_data-1\":{\"pci_bdf\":\"0000:00:05.0\"}"
#define ADD_ANSWER HTTP_JSON("200", "{\"id\":\"crust_data-1\",\"bdf\":\"0000:00:05.0\"}")
#define REMOVE                                                                                     \
    {                                                                                              \
        "PUT /api/v1/vm.remove-device HTTP/1.1\r\n", HTTP_EMPTY                                    \
    }

static void cloud_hypervisor_attaches_a_drive_by_its_path(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made;

    request.descriptor = 0;
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""),
               {"{\"id\":\"crust_data-1\",\"path\":\"$DEVICE\",\"serial\":\"crust-abc\","
                "\"readonly\":false,\"direct\":false,\"image_type\":\"Raw\","
                "\"rate_limiter_config\":{}}",
                ADD_ANSWER},
               INFO(OTHERS "," OURS, TREE));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    assert_string_equal(made.reply.address, "pci:05");
    assert_string_equal(made.reply.serial, "crust-abc");
}

static void cloud_hypervisor_gets_the_limits_with_the_drive(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made;

    request.descriptor = 0;
    request.limits.bandwidth = (struct hypervisor_bucket){1000, 100, 7};
    request.limits.operations.size = 5; /* without a time this is no limit */
    made = RUN(CH, &request, PING("54.0.0"), INFO(OTHERS, ""),
               {"\"rate_limiter_config\":{\"bandwidth\":{\"size\":1000,\"refill_time\":100,"
                "\"one_time_burst\":7}}}",
                ADD_ANSWER},
               INFO(OURS, TREE));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    request = request_for(*state, HYPERVISOR_DRIVE_LIMIT);
    http_server_listen(*state, NULL, 0);
    made = run(*state, CH, &request, NULL, 0);
    expect(&made, HYPERVISOR_DRIVE_UNSUPPORTED, HYPERVISOR_DRIVE_UNKNOWN, "cannot change them");
}

static void an_attach_goes_on_from_what_is_there(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made;

    made = RUN(CH, &request, PING("52.0.0"), INFO(OURS, TREE));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_NEEDS_DESCRIPTOR, HYPERVISOR_DRIVE_ABSENT, NULL);
}

/* What cannot be looked at is not another disk. */
static void a_lack_of_descriptors_is_no_conflict(void **state)
{
    const struct http_script script[] = {
        PING("53.0"), INFO(OTHERS "," OURS, TREE), {"vm.resize-disk", HTTP_EMPTY}};
    struct http_server *server = *state;
    struct hypervisor_drive_request request = request_for(server, HYPERVISOR_DRIVE_RESIZE);
    unsigned unknown = 0;
    enum { LEAST = 4, MOST = 12 };

    if (!server->device[0])
        skip();
    for (int number = LEAST; number < MOST; number++) {
        struct drive_case made = {.server = server};
        struct hypervisor_drive_call *call;
        struct rlimit limit;
        struct error error;
        int fillers[MOST];

        http_server_listen(server, script, 3);
        limit = leave_free(fillers, number);
        if (hypervisor_drive_call_new(&server->loop, CH, &request, on_done, &made, &call, &error) ==
            0)
            loop_run(&server->loop);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        http_server_hang_up(server);
        assert_int_not_equal(made.reply.outcome, HYPERVISOR_DRIVE_CONFLICT);
        unknown += strstr(made.reply.error.text, "cannot be told now") != NULL;
    }
    assert_true(unknown > 0);
}

static void another_disk_under_the_drives_id_is_a_conflict(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made;

    made = RUN(CH, &request, PING("52.0.0"),
               INFO(CH_DISK("crust_data-1", "/dev/null", "crust-abc"), TREE));
    expect(&made, HYPERVISOR_DRIVE_CONFLICT, HYPERVISOR_DRIVE_PRESENT, "another disk");
    made = RUN(CH, &request, PING("52.0.0"),
               INFO(CH_DISK("crust_data-1", "$DEVICE", "crust-other"), TREE));
    expect(&made, HYPERVISOR_DRIVE_CONFLICT, HYPERVISOR_DRIVE_PRESENT, "another serial");
    request.read_only = true;
    made = RUN(CH, &request, PING("52.0.0"), INFO(OURS, TREE));
    expect(&made, HYPERVISOR_DRIVE_CONFLICT, HYPERVISOR_DRIVE_PRESENT, "writable");
}

static void an_attach_waits_for_a_guest_that_has_not_let_go(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, TREE));

    expect(&made, HYPERVISOR_DRIVE_PENDING, HYPERVISOR_DRIVE_PRESENT, "not let go");
}

static void a_path_that_leads_elsewhere_is_not_opened(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made;

    request.descriptor = 0;
    request.path = "/dev/null";
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_REFUSED, HYPERVISOR_DRIVE_ABSENT, "/dev/null does not lead");
    request.path = "/nonexistent";
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_REFUSED, HYPERVISOR_DRIVE_ABSENT, "/nonexistent");
}

static void an_attach_that_is_refused_leaves_nothing(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct http_server *server = *state;
    struct drive_case made;

    request.descriptor = 0;
    fd_close(take_fd(&server->held)); /* Cloud Hypervisor could not open it */
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""),
               {"PUT /api/v1/vm.add-disk ", HTTP_JSON("500", "[\"Error from API\",\"Permission "
                                                             "denied (os error 13)\"]")},
               INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_REFUSED, HYPERVISOR_DRIVE_ABSENT, "Permission denied");
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""),
               {"PUT /api/v1/vm.add-disk ", ADD_ANSWER},
               INFO(CH_DISK("crust_data-1", "/dev/null", "crust-abc"), TREE), REMOVE,
               INFO(OTHERS, TREE), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_REFUSED, HYPERVISOR_DRIVE_ABSENT, "another disk");
}

static void an_old_cloud_hypervisor_is_named(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made = RUN(CH, &request, PING("51.1.0"));

    expect(&made, HYPERVISOR_DRIVE_VERSION, HYPERVISOR_DRIVE_UNKNOWN, "needs Cloud Hypervisor 52");
}

static void a_detach_waits_until_the_guest_has_let_go(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_DETACH);
    struct drive_case made;

    made = RUN(CH, &request, INFO(OURS, TREE), REMOVE, INFO(OTHERS, TREE), INFO(OTHERS, TREE),
               INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    made = RUN(CH, &request, INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    made = RUN(CH, &request, INFO(OTHERS, TREE), INFO(OTHERS, "")); /* told earlier */
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    request.removal_ns = 0;
    made = RUN(CH, &request, INFO(OURS, TREE), REMOVE, INFO(OTHERS, TREE));
    expect(&made, HYPERVISOR_DRIVE_PENDING, HYPERVISOR_DRIVE_PRESENT, "guest");
    request.disk.device = ((struct http_server *)*state)->device_number; /* which is open */
    made = RUN(CH, &request, INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_PENDING, HYPERVISOR_DRIVE_ABSENT, "has not closed");
}

static void refused_removal_is_reported(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_DETACH);
    struct drive_case made;

    made = RUN(CH, &request, INFO(OURS, TREE),
               {"vm.remove-device", HTTP_JSON("500", "[\"Error from API\",\"migrating\"]")});
    expect(&made, HYPERVISOR_DRIVE_REFUSED, HYPERVISOR_DRIVE_PRESENT, "migrating");
    made = RUN(CH, &request, INFO(OURS, TREE),
               {"vm.remove-device", HTTP_JSON("404", "[\"Error from API\",\"unknown\"]")},
               INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
}

static void cloud_hypervisor_lists_what_crustd_attached(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_LIST);
    struct drive_case made;

    made = RUN(CH, &request,
               INFO(OTHERS "," OURS "," CH_DISK("crust_b", "/nonexistent", "x"),
                    TREE ",\"crust_gone\":{},\"crust_\":{},\"crust_a b\":{}"));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    assert_int_equal(made.reply.entry_count, 3);
    assert_string_equal(made.entry[0].drive_id, "data-1");
    assert_true(made.entry[0].identified);
    assert_int_equal(made.entry[0].disk.device, request.disk.device);
    assert_string_equal(made.entry[1].drive_id, "b");
    assert_false(made.entry[1].identified);
    assert_string_equal(made.entry[2].drive_id, "gone");
    assert_int_equal(made.entry[2].state, HYPERVISOR_DRIVE_PRESENT);
}

static void cloud_hypervisor_takes_the_new_size(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_RESIZE);
    struct drive_case made;

    made = RUN(CH, &request, PING("52.0.0"), INFO(OURS, TREE),
               {"{\"id\":\"crust_data-1\",\"desired_size\":4096}", HTTP_EMPTY});
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    assert_int_equal(made.reply.bytes, 4096);
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DRIVE_NOT_ATTACHED, HYPERVISOR_DRIVE_ABSENT, NULL);
    made = RUN(CH, &request, PING("52.0.0"),
               INFO(CH_DISK("crust_data-1", "/dev/null", "crust-abc"), TREE));
    expect(&made, HYPERVISOR_DRIVE_CONFLICT, HYPERVISOR_DRIVE_PRESENT, NULL);
    request.disk.regular_file = true;
    made = run(*state, CH, &request, NULL, 0);
    expect(&made, HYPERVISOR_DRIVE_UNSUPPORTED, HYPERVISOR_DRIVE_UNKNOWN, "regular file");
}

static void a_vm_that_does_not_run_is_not_touched(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_DETACH);
    struct drive_case made = RUN(CH, &request, INFO_OF("Shutdown", OURS, TREE));

    expect(&made, HYPERVISOR_DRIVE_UNREACHABLE, HYPERVISOR_DRIVE_UNKNOWN, "Shutdown");
    made = RUN(CH, &request, {"GET /api/v1/vm.info", HTTP_JSON("200", "{\"state\":")});
    expect(&made, HYPERVISOR_DRIVE_UNREACHABLE, HYPERVISOR_DRIVE_UNKNOWN, NULL);
    made = RUN(CH, &request, {"GET /api/v1/vm.info", HTTP_JSON("503", "{}")});
    expect(&made, HYPERVISOR_DRIVE_BUSY, HYPERVISOR_DRIVE_UNKNOWN, NULL);
}

/* ---- Firecracker ---------------------------------------------------------------------------- */

#define FC HYPERVISOR_FIRECRACKER
#define VERSION(version)                                                                           \
    {                                                                                              \
        "GET /version HTTP/1.1\r\n", HTTP_JSON("200", "{\"firecracker_version\":\"" version "\"}") \
    }
#define CONFIG(drives)                                                                             \
    {                                                                                              \
        "GET /vm/config HTTP/1.1\r\n", HTTP_JSON("200", "{\"drives\":[" drives "]}")               \
    }
#define FC_DRIVE(id, path)                                                                         \
    "{\"drive_id\":\"" id "\",\"is_read_only\":false,\"path_on_host\":\"" path                     \
    "\",\"io_engine\":\"Sync\"}"
#define FC_ROOT FC_DRIVE("rootfs", "/nonexistent")
#define FC_OURS FC_DRIVE("crust_data_m1", "$DEVICE")

/* As the real one makes it of the device's node. */
static const char *firecracker_serial(const struct http_server *server)
{
    static char serial[80];
    struct stat status;

    if (!server->device[0])
        skip();
    assert_int_equal(stat(server->device, &status), 0);
    (void)snprintf(serial, sizeof(serial), "%" PRIu64 "%" PRIu64 "%" PRIu64,
                   (uint64_t)status.st_dev, (uint64_t)status.st_rdev, (uint64_t)status.st_ino);
    serial[HYPERVISOR_DRIVE_SERIAL_BYTES - 1] = '\0';
    return serial;
}

static void firecracker_attaches_a_drive_and_makes_its_serial(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made;

    request.descriptor = 0;
    made = RUN(FC, &request, VERSION("1.16.0"), CONFIG(FC_ROOT),
               {"{\"drive_id\":\"crust_data_m1\",\"path_on_host\":\"$DEVICE\","
                "\"is_root_device\":false,\"is_read_only\":false,\"cache_type\":\"Writeback\","
                "\"io_engine\":\"Sync\",\"rate_limiter\":{}}",
                HTTP_EMPTY},
               CONFIG(FC_ROOT "," FC_OURS));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    assert_string_equal(made.reply.serial, firecracker_serial(*state));
    assert_string_equal(made.reply.address, "");
    assert_true(hypervisor_drive_traits(FC)->makes_serial);
}

static void an_old_firecracker_is_named(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    static const char *const versions[] = {"1.12.1", "0.25.2", "x"};
    struct drive_case made;

    for (unsigned i = 0; i < array_length(versions); i++) {
        char answer[160];
        struct http_script script = {"GET /version ", answer};

        (void)snprintf(answer, sizeof(answer), HTTP_JSON("200", "{\"firecracker_version\":\"%s\"}"),
                       versions[i]);
        made = run(*state, FC, &request, &script, 1);
        expect(&made, HYPERVISOR_DRIVE_VERSION, HYPERVISOR_DRIVE_UNKNOWN, versions[i]);
    }
    made = RUN(FC, &request, VERSION("2.0.0"), CONFIG(FC_OURS));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
}

static void firecracker_without_pci_cannot(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct http_server *server = *state;
    struct drive_case made;

    request.descriptor = 0;
    fd_close(take_fd(&server->held));
    made = RUN(FC, &request, VERSION("1.17.0-dev"), CONFIG(FC_ROOT),
               {"PUT /drives/crust_data_m1 ",
                HTTP_JSON("400", "{\"fault_message\":\"PCI is not enabled.\"}")},
               CONFIG(FC_ROOT));
    expect(&made, HYPERVISOR_DRIVE_UNSUPPORTED, HYPERVISOR_DRIVE_ABSENT, "--enable-pci");
    made = RUN(
        FC, &request, VERSION("1.17.0-dev"), CONFIG(FC_ROOT),
        {"PUT /drives/crust_data_m1 ", HTTP_JSON("400", "{\"fault_message\":\"No such file\"}")},
        CONFIG(FC_ROOT));
    expect(&made, HYPERVISOR_DRIVE_REFUSED, HYPERVISOR_DRIVE_ABSENT, "No such file");
}

static void firecracker_that_is_forbidden_is_not_asked(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct drive_case made;

    request.forbidden = "resize.firecracker is off";
    made = run(*state, FC, &request, NULL, 0);
    expect(&made, HYPERVISOR_DRIVE_UNSUPPORTED, HYPERVISOR_DRIVE_UNKNOWN, "resize.firecracker");
    request.act = HYPERVISOR_DRIVE_DETACH; /* what is there may go */
    request.disk.device = 0;
    made = RUN(FC, &request, CONFIG(FC_ROOT));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
}

static void firecracker_detaches_limits_and_resizes(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_DETACH);
    struct drive_case made;

    made = RUN(FC, &request, CONFIG(FC_OURS),
               {"DELETE /drives/crust_data_m1 HTTP/1.1\r\n", HTTP_EMPTY}, CONFIG(FC_ROOT));
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    request = request_for(*state, HYPERVISOR_DRIVE_LIMIT);
    request.limits.operations = (struct hypervisor_bucket){100, 1000, 50};
    made = RUN(FC, &request, CONFIG(FC_OURS),
               {"{\"drive_id\":\"crust_data_m1\",\"rate_limiter\":{\"bandwidth\":{\"size\":0,"
                "\"refill_time\":0},\"ops\":{\"size\":100,\"refill_time\":1000,"
                "\"one_time_burst\":50}}}",
                HTTP_EMPTY});
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    request = request_for(*state, HYPERVISOR_DRIVE_RESIZE);
    made = RUN(FC, &request, VERSION("1.16.0"), CONFIG(FC_OURS));
    expect(&made, HYPERVISOR_DRIVE_CONFLICT, HYPERVISOR_DRIVE_PRESENT, "another serial");
    request.serial = firecracker_serial(*state);
    made = RUN(FC, &request, VERSION("1.16.0"), CONFIG(FC_OURS),
               {"{\"drive_id\":\"crust_data_m1\",\"path_on_host\":\"$DEVICE\"}", HTTP_EMPTY});
    expect(&made, HYPERVISOR_DRIVE_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    assert_int_equal(made.reply.bytes, 4096);
}

static void firecracker_lists_what_crustd_attached(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_LIST);
    struct drive_case made;

    made = RUN(FC, &request,
               CONFIG(FC_ROOT "," FC_OURS "," FC_DRIVE("crust_a_ub", "/nonexistent") "," FC_DRIVE(
                   "crust_x_y", "/nonexistent") "," FC_DRIVE("crust_", "/nonexistent")));
    assert_int_equal(made.reply.entry_count, 2);
    assert_string_equal(made.entry[0].drive_id, "data-1");
    assert_string_equal(made.entry[0].serial, firecracker_serial(*state));
    assert_string_equal(made.entry[1].drive_id, "a_b");
    assert_string_equal(made.entry[1].serial, "");
}

/* ---- the rest ------------------------------------------------------------------------------- */

static void other_vmms_are_refused_with_a_reason(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_LOOK);

    for (enum hypervisor_kind kind = HYPERVISOR_UNKNOWN; kind < HYPERVISOR_KINDS; kind++) {
        struct drive_case made;

        assert_int_equal(hypervisor_drive_has_client(kind),
                         !hypervisor_drive_traits(kind)->obstacle);
        if (hypervisor_drive_has_client(kind))
            continue;
        made = run(*state, kind, &request, NULL, 0);
        expect(&made, HYPERVISOR_DRIVE_UNSUPPORTED, HYPERVISOR_DRIVE_UNKNOWN,
               hypervisor_drive_traits(kind)->obstacle);
    }
}

static void a_path_is_absolute(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_ATTACH);
    struct http_server *server = *state;
    struct hypervisor_drive_call *call;
    struct error error;

    request.path = "dev/null";
    assert_int_equal(
        hypervisor_drive_call_new(&server->loop, CH, &request, on_done, NULL, &call, &error),
        -EINVAL);
    request.path = NULL;
    assert_int_equal(
        hypervisor_drive_call_new(&server->loop, FC, &request, on_done, NULL, &call, &error),
        -EINVAL);
}

static void a_call_may_be_freed_at_any_time(void **state)
{
    struct http_server *server = *state;
    struct hypervisor_drive_request request = request_for(server, HYPERVISOR_DRIVE_LOOK);
    struct drive_case made = {.server = server};
    struct hypervisor_drive_call *call;
    struct error error;

    assert_int_equal(
        hypervisor_drive_call_new(&server->loop, CH, &request, on_done, &made, &call, &error), 0);
    assert_null(hypervisor_drive_call_free(call));
    assert_int_equal(made.count, 0);
}

#define DRIVE(name) cmocka_unit_test_setup_teardown(name, http_server_set_up, http_server_tear_down)

/* Who listens is this process, and neither the VMM nor its shim. */
static void another_process_is_not_asked(void **state)
{
    static const enum hypervisor_kind kinds[] = {CH, FC};
    static const struct http_script none = {"", ""};
    struct http_server *server = *state;

    for (size_t i = 0; i < array_length(kinds); i++) {
        struct hypervisor_drive_request request = request_for(server, HYPERVISOR_DRIVE_LIST);
        struct drive_case made;

        request.vmm_pid = getppid();
        made = run(server, kinds[i], &request, &none, 0);
        assert_non_null(strstr(made.reply.error.text, "neither the sandbox's VMM nor its shim"));
        assert_int_equal(server->input.length, 0);
    }
}

/* Whatever the socket says: here this process answers, as the shim of the one that is stopped. */
static void a_vmm_that_is_stopped_is_named(void **state)
{
    struct hypervisor_drive_request request = request_for(*state, HYPERVISOR_DRIVE_DETACH);
    struct drive_case made;
    siginfo_t info;
    pid_t vmm = fork();

    if (vmm == 0) {
        (void)raise(SIGSTOP);
        _exit(0);
    }
    assert_int_equal(waitid(P_PID, (id_t)vmm, &info, WSTOPPED), 0);
    request.vmm_pid = vmm;
    made = RUN(CH, &request, {"GET /api/v1/vm.info", HTTP_JSON("503", "{}")});
    expect(&made, HYPERVISOR_DRIVE_UNREACHABLE, HYPERVISOR_DRIVE_UNKNOWN,
           "the VMM does not answer: process ");
    assert_non_null(strstr(made.reply.error.text, "is stopped (SIGSTOP, a debugger): kill -CONT "));
    assert_int_equal(kill(vmm, SIGKILL), 0);
    assert_int_equal(waitpid(vmm, NULL, 0), vmm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVE(cloud_hypervisor_attaches_a_drive_by_its_path),
        DRIVE(cloud_hypervisor_gets_the_limits_with_the_drive),
        DRIVE(another_process_is_not_asked),
        DRIVE(a_vmm_that_is_stopped_is_named),
        DRIVE(an_attach_goes_on_from_what_is_there),
        DRIVE(a_lack_of_descriptors_is_no_conflict),
        DRIVE(another_disk_under_the_drives_id_is_a_conflict),
        DRIVE(an_attach_waits_for_a_guest_that_has_not_let_go),
        DRIVE(a_path_that_leads_elsewhere_is_not_opened),
        DRIVE(an_attach_that_is_refused_leaves_nothing),
        DRIVE(an_old_cloud_hypervisor_is_named),
        DRIVE(a_detach_waits_until_the_guest_has_let_go),
        DRIVE(refused_removal_is_reported),
        DRIVE(cloud_hypervisor_lists_what_crustd_attached),
        DRIVE(cloud_hypervisor_takes_the_new_size),
        DRIVE(a_vm_that_does_not_run_is_not_touched),
        DRIVE(firecracker_attaches_a_drive_and_makes_its_serial),
        DRIVE(an_old_firecracker_is_named),
        DRIVE(firecracker_without_pci_cannot),
        DRIVE(firecracker_that_is_forbidden_is_not_asked),
        DRIVE(firecracker_detaches_limits_and_resizes),
        DRIVE(firecracker_lists_what_crustd_attached),
        DRIVE(other_vmms_are_refused_with_a_reason),
        DRIVE(a_path_is_absolute),
        DRIVE(a_call_may_be_freed_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
