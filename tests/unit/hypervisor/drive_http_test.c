/* SPDX-License-Identifier: Apache-2.0 */
/* drive_http_test.c - conversations about drives with a scripted Cloud Hypervisor and a scripted
 * Firecracker. The test is the VMM's process, and has the script's device open. */
#include "tests/unit/hypervisor/http_call.h"

#include <inttypes.h>

#include "tests/unit/few_descriptors.h"

struct drive_case {
    struct hypervisor_reply reply;
    struct hypervisor_drive_entry entry[4];
};

/* The descriptor is any: these VMMs do not get it. */
static struct hypervisor_request request_for(const struct http_server *server,
                                             enum hypervisor_act act)
{
    return (struct hypervisor_request){
        .act = act,
        .root = server->root,
        .control_socket = server->path,
        .vmm_pid = getpid(),
        .drive_id = act == HYPERVISOR_LIST ? NULL : "data-1",
        .disk = {.device = act == HYPERVISOR_DETACH ? 0 : server->device_number},
        .bytes = 4096,
        .descriptor = -1,
        .path = server->device,
        .serial = "crust-abc",
        .removal_ns = 60 * NSEC_PER_SEC,
        .allowed_ns = 60 * NSEC_PER_SEC,
    };
}

static struct drive_case call(vmm_act *act, const struct hypervisor_request *request)
{
    struct drive_case made = {.reply = {.bytes = 0}};

    act(request, clock_boottime() + request->allowed_ns, &made.reply);
    assert_int_equal(made.reply.outcome == HYPERVISOR_DONE, !made.reply.error.text[0]);
    assert_in_range(made.reply.entry_count, 0, array_length(made.entry));
    if (made.reply.entry_count)
        memcpy(made.entry, made.reply.entries, made.reply.entry_count * sizeof(*made.entry));
    free((void *)(uintptr_t)made.reply.entries);
    return made;
}

static struct drive_case run(struct http_server *server, vmm_act *act,
                             const struct hypervisor_request *request,
                             const struct http_script *script, size_t length)
{
    struct http_play *play;
    struct drive_case made;

    http_call_need_device(server);
    play = http_play_start(server, script, length);
    made = call(act, request);
    assert_int_equal(http_play_end(play), length);
    return made;
}

static void expect(const struct drive_case *made, enum hypervisor_outcome outcome,
                   enum hypervisor_drive_state state, const char *text)
{
    if (made->reply.outcome != outcome)
        print_error("%s\n", made->reply.error.text);
    assert_int_equal(made->reply.outcome, outcome);
    assert_int_equal(made->reply.state, state);
    if (text && !strstr(made->reply.error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", made->reply.error.text, text);
}

#define RUN(act, request, ...)                                                                     \
    run(*state, act, request, (const struct http_script[]){__VA_ARGS__},                           \
        array_length(((const struct http_script[]){__VA_ARGS__})))

/* ---- Cloud Hypervisor ----------------------------------------------------------------------- */

#define CH cloud_hypervisor_act
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

static void cloud_hypervisor_gets_the_limits_with_the_drive(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_ATTACH);
    struct drive_case made;

    request.descriptor = 0;
    request.limits.bandwidth = (struct hypervisor_bucket){1000, 100, 7};
    request.limits.operations.size = 5; /* without a time this is no limit */
    made = RUN(CH, &request, PING("54.0.0"), INFO(OTHERS, ""),
               {"\"rate_limiter_config\":{\"bandwidth\":{\"size\":1000,\"refill_time\":100,"
                "\"one_time_burst\":7}}}",
                ADD_ANSWER},
               INFO(OURS, TREE));
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
}

static void an_attach_goes_on_from_what_is_there(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_ATTACH);
    struct drive_case made;

    made = RUN(CH, &request, PING("52.0.0"), INFO(OURS, TREE));
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_NEEDS_DESCRIPTOR, HYPERVISOR_DRIVE_ABSENT, NULL);
}

/* What cannot be looked at is not another disk. */
static void a_lack_of_descriptors_is_no_conflict(void **state)
{
    const struct http_script script[] = {
        PING("53.0"), INFO(OTHERS "," OURS, TREE), {"vm.resize-disk", HTTP_EMPTY}};
    struct http_server *server = *state;
    struct hypervisor_request request = request_for(server, HYPERVISOR_RESIZE);
    unsigned counts[HYPERVISOR_OUTCOMES] = {0}, unknown = 0;
    enum { LEAST = 1, MOST = 12 };

    http_call_need_device(server);
    for (int number = LEAST; number < MOST; number++) {
        struct http_play *play = http_play_start(server, script, 3);
        struct drive_case made;
        struct rlimit limit;
        int fillers[MOST];

        limit = leave_free(fillers, number);
        made = call(CH, &request);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        (void)http_play_end(play);
        counts[made.reply.outcome]++;
        unknown += strstr(made.reply.error.text, "cannot be told now") != NULL;
    }
    assert_true(unknown > 0);
    assert_true(counts[HYPERVISOR_DONE] > 0);
    assert_int_equal(counts[HYPERVISOR_DONE] + counts[HYPERVISOR_UNREACHABLE], MOST - LEAST);
}

/* The same for the process of a VMM that has ended; its parent, which listens, answers. */
static void process_that_cannot_be_examined_is_no_conflict(void **state)
{
    static const enum hypervisor_act acts[] = {HYPERVISOR_ATTACH, HYPERVISOR_RESIZE};
    siginfo_t info;
    pid_t vmm = fork();

    if (vmm == 0)
        _exit(0);
    assert_int_equal(waitid(P_PID, (id_t)vmm, &info, WEXITED | WNOWAIT), 0);
    for (size_t i = 0; i < array_length(acts); i++) {
        struct hypervisor_request request = request_for(*state, acts[i]);
        struct drive_case made;

        request.vmm_pid = vmm;
        made = RUN(CH, &request, PING("52.0.0"), INFO(OURS, TREE));
        expect(&made, HYPERVISOR_UNREACHABLE, HYPERVISOR_DRIVE_PRESENT,
               "which disk the VMM has opened cannot be told now");
    }
    assert_int_equal(waitpid(vmm, NULL, 0), vmm);
}

static void another_disk_under_the_drives_id_is_a_conflict(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_ATTACH);
    struct drive_case made;

    made = RUN(CH, &request, PING("52.0.0"),
               INFO(CH_DISK("crust_data-1", "/dev/null", "crust-abc"), TREE));
    expect(&made, HYPERVISOR_CONFLICT, HYPERVISOR_DRIVE_PRESENT, "another disk");
    made = RUN(CH, &request, PING("52.0.0"),
               INFO(CH_DISK("crust_data-1", "$DEVICE", "crust-other"), TREE));
    expect(&made, HYPERVISOR_CONFLICT, HYPERVISOR_DRIVE_PRESENT, "another serial");
    request.read_only = true;
    made = RUN(CH, &request, PING("52.0.0"), INFO(OURS, TREE));
    expect(&made, HYPERVISOR_CONFLICT, HYPERVISOR_DRIVE_PRESENT, "writable");
}

static void an_attach_waits_for_a_guest_that_has_not_let_go(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_ATTACH);
    struct drive_case made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, TREE));

    expect(&made, HYPERVISOR_PENDING, HYPERVISOR_DRIVE_PRESENT, "not let go");
}

static void a_path_that_leads_elsewhere_is_not_opened(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_ATTACH);
    struct drive_case made;

    request.descriptor = 0;
    request.path = "/dev/null";
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_REFUSED, HYPERVISOR_DRIVE_ABSENT, "/dev/null does not lead");
    request.path = "/nonexistent";
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_REFUSED, HYPERVISOR_DRIVE_ABSENT, "/nonexistent");
}

static void an_attach_that_is_refused_leaves_nothing(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_ATTACH);
    struct http_server *server = *state;
    struct drive_case made;

    request.descriptor = 0;
    fd_close(take_fd(&server->held)); /* Cloud Hypervisor could not open it */
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""),
               {"PUT /api/v1/vm.add-disk ", HTTP_JSON("500", "[\"Error from API\",\"Permission "
                                                             "denied (os error 13)\"]")},
               INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_REFUSED, HYPERVISOR_DRIVE_ABSENT, "Permission denied");
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""),
               {"PUT /api/v1/vm.add-disk ", ADD_ANSWER},
               INFO(CH_DISK("crust_data-1", "/dev/null", "crust-abc"), TREE), REMOVE,
               INFO(OTHERS, TREE), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_REFUSED, HYPERVISOR_DRIVE_ABSENT, "another disk");
}

static void a_detach_waits_until_the_guest_has_let_go(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_DETACH);
    struct drive_case made;

    made = RUN(CH, &request, INFO(OURS, TREE), REMOVE, INFO(OTHERS, TREE), INFO(OTHERS, TREE),
               INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    made = RUN(CH, &request, INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    made = RUN(CH, &request, INFO(OTHERS, TREE), INFO(OTHERS, "")); /* told earlier */
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    request.removal_ns = 0;
    made = RUN(CH, &request, INFO(OURS, TREE), REMOVE, INFO(OTHERS, TREE));
    expect(&made, HYPERVISOR_PENDING, HYPERVISOR_DRIVE_PRESENT, "guest");
    request.disk.device = ((struct http_server *)*state)->device_number; /* which is open */
    made = RUN(CH, &request, INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_PENDING, HYPERVISOR_DRIVE_ABSENT, "has not closed");
}

static void refused_removal_is_reported(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_DETACH);
    struct drive_case made;

    made = RUN(CH, &request, INFO(OURS, TREE),
               {"vm.remove-device", HTTP_JSON("500", "[\"Error from API\",\"migrating\"]")});
    expect(&made, HYPERVISOR_REFUSED, HYPERVISOR_DRIVE_PRESENT, "migrating");
    made = RUN(CH, &request, INFO(OURS, TREE),
               {"vm.remove-device", HTTP_JSON("404", "[\"Error from API\",\"unknown\"]")},
               INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
}

static void cloud_hypervisor_lists_what_crustd_attached(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_LIST);
    struct drive_case made;

    made = RUN(CH, &request,
               INFO(OTHERS "," OURS "," CH_DISK("crust_b", "/nonexistent", "x"),
                    TREE ",\"crust_gone\":{},\"crust_\":{},\"crust_a b\":{}"));
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
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
    struct hypervisor_request request = request_for(*state, HYPERVISOR_RESIZE);
    struct drive_case made;

    made = RUN(CH, &request, PING("52.0.0"), INFO(OURS, TREE),
               {"{\"id\":\"crust_data-1\",\"desired_size\":4096}", HTTP_EMPTY});
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    assert_int_equal(made.reply.bytes, 4096);
    made = RUN(CH, &request, PING("52.0.0"), INFO(OTHERS, ""));
    expect(&made, HYPERVISOR_NOT_ATTACHED, HYPERVISOR_DRIVE_ABSENT, NULL);
    made = RUN(CH, &request, PING("52.0.0"),
               INFO(CH_DISK("crust_data-1", "/dev/null", "crust-abc"), TREE));
    expect(&made, HYPERVISOR_CONFLICT, HYPERVISOR_DRIVE_PRESENT, NULL);
}

static void a_vm_that_does_not_run_is_not_touched(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_DETACH);
    struct drive_case made = RUN(CH, &request, INFO_OF("Shutdown", OURS, TREE));

    expect(&made, HYPERVISOR_UNREACHABLE, HYPERVISOR_DRIVE_UNKNOWN, "Shutdown");
    made = RUN(CH, &request, {"GET /api/v1/vm.info", HTTP_JSON("200", "{\"state\":")});
    expect(&made, HYPERVISOR_UNREACHABLE, HYPERVISOR_DRIVE_UNKNOWN, NULL);
    made = RUN(CH, &request, {"GET /api/v1/vm.info", HTTP_JSON("503", "{}")});
    expect(&made, HYPERVISOR_BUSY, HYPERVISOR_DRIVE_UNKNOWN, NULL);
}

/* ---- Firecracker ---------------------------------------------------------------------------- */

#define FC firecracker_act
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

    http_call_need_device(server);
    assert_int_equal(stat(server->device, &status), 0);
    (void)snprintf(serial, sizeof(serial), "%" PRIu64 "%" PRIu64 "%" PRIu64,
                   (uint64_t)status.st_dev, (uint64_t)status.st_rdev, (uint64_t)status.st_ino);
    serial[HYPERVISOR_DRIVE_SERIAL_BYTES - 1] = '\0';
    return serial;
}

static void firecracker_attaches_over_pci_only(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_ATTACH);
    struct drive_case made;

    request.descriptor = 0;
    made = RUN(FC, &request, VERSION("1.16.0"), CONFIG(FC_ROOT),
               {"PUT /drives/crust_data_m1 HTTP/1.1\r\n", HTTP_EMPTY}, CONFIG(FC_OURS));
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    assert_string_equal(made.reply.serial, firecracker_serial(*state));
    fd_close(take_fd(&((struct http_server *)*state)->held));
    made = RUN(FC, &request, VERSION("1.16.0"), CONFIG(FC_ROOT),
               {"PUT /drives/crust_data_m1 HTTP/1.1\r\n",
                HTTP_JSON("400", "{\"fault_message\":\"PCI is not enabled\"}")},
               CONFIG(FC_ROOT));
    expect(&made, HYPERVISOR_UNSUPPORTED, HYPERVISOR_DRIVE_ABSENT,
           "Firecracker was started without --enable-pci");
    made = RUN(FC, &request, VERSION("1.15.2"));
    expect(&made, HYPERVISOR_VERSION, HYPERVISOR_DRIVE_UNKNOWN,
           "needs Firecracker 1.16 or later (this is 1.15.2)");
}

static void firecracker_detaches_limits_and_resizes(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_DETACH);
    struct drive_case made;

    made = RUN(FC, &request, CONFIG(FC_OURS),
               {"DELETE /drives/crust_data_m1 HTTP/1.1\r\n", HTTP_EMPTY}, CONFIG(FC_ROOT));
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_ABSENT, NULL);
    request = request_for(*state, HYPERVISOR_LIMIT);
    request.limits.operations = (struct hypervisor_bucket){100, 1000, 50};
    made = RUN(FC, &request, CONFIG(FC_OURS),
               {"{\"drive_id\":\"crust_data_m1\",\"rate_limiter\":{\"bandwidth\":{\"size\":0,"
                "\"refill_time\":0},\"ops\":{\"size\":100,\"refill_time\":1000,"
                "\"one_time_burst\":50}}}",
                HTTP_EMPTY});
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    request = request_for(*state, HYPERVISOR_RESIZE);
    made = RUN(FC, &request, VERSION("1.16.0"), CONFIG(FC_OURS));
    expect(&made, HYPERVISOR_CONFLICT, HYPERVISOR_DRIVE_PRESENT, "another serial");
    request.serial = firecracker_serial(*state);
    made = RUN(FC, &request, VERSION("1.16.0"), CONFIG(FC_OURS),
               {"{\"drive_id\":\"crust_data_m1\",\"path_on_host\":\"$DEVICE\"}", HTTP_EMPTY});
    expect(&made, HYPERVISOR_DONE, HYPERVISOR_DRIVE_PRESENT, NULL);
    assert_int_equal(made.reply.bytes, 4096);
}

static void firecracker_lists_what_crustd_attached(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_LIST);
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

/* ---- both ----------------------------------------------------------------------------------- */

/* What was asked for may have been done, or not. */
static void change_without_an_answer_leaves_the_state_unknown(void **state)
{
    struct hypervisor_request request = request_for(*state, HYPERVISOR_DETACH);
    struct http_server *server = *state;
    struct drive_case made;

    server->close_at = 1;
    made = RUN(CH, &request, INFO(OURS, TREE), {"vm.remove-device", "HTTP/1.1 "});
    expect(&made, HYPERVISOR_UNREACHABLE, HYPERVISOR_DRIVE_UNKNOWN, "the control socket: ");
    server->close_at = HTTP_SERVER_NEVER;
    made = RUN(CH, &request, INFO(OURS, TREE), {NULL, HTTP_FULL});
    expect(&made, HYPERVISOR_BUSY, HYPERVISOR_DRIVE_PRESENT, "other clients hold all");
}

/* One deadline holds for all requests and for the pauses between them. */
static void detach_ends_at_its_deadline(void **state)
{
    static const struct http_script script[] = {INFO(OURS, TREE),   REMOVE,
                                                INFO(OTHERS, TREE), INFO(OTHERS, TREE),
                                                INFO(OTHERS, TREE), INFO(OTHERS, TREE)};
    struct hypervisor_request request = request_for(*state, HYPERVISOR_DETACH);
    struct http_server *server = *state;
    const uint64_t start_ns = clock_boottime();
    struct http_play *play;
    struct drive_case made;

    http_call_need_device(server);
    request.allowed_ns = 40 * NSEC_PER_MSEC;
    play = http_play_start(server, script, array_length(script));
    made = call(CH, &request);
    (void)http_play_end(play);
    expect(&made, HYPERVISOR_UNREACHABLE, HYPERVISOR_DRIVE_UNKNOWN, "no answer in time");
    assert_true(clock_boottime() - start_ns < NSEC_PER_SEC);
}

/* Who listens is this process, and neither the VMM nor its shim. */
static void another_process_is_not_asked(void **state)
{
    static vmm_act *const acts[] = {CH, FC};
    struct http_server *server = *state;

    for (size_t i = 0; i < array_length(acts); i++) {
        struct hypervisor_request request = request_for(server, HYPERVISOR_LIST);
        struct drive_case made;

        request.vmm_pid = getppid();
        made = run(server, acts[i], &request, NULL, 0);
        expect(&made, HYPERVISOR_UNREACHABLE, HYPERVISOR_DRIVE_UNKNOWN,
               "neither the sandbox's VMM nor its shim");
    }
}

#define DRIVE(name) HTTP_CALL_TEST(name)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVE(cloud_hypervisor_gets_the_limits_with_the_drive),
        DRIVE(another_process_is_not_asked),
        DRIVE(change_without_an_answer_leaves_the_state_unknown),
        DRIVE(detach_ends_at_its_deadline),
        DRIVE(an_attach_goes_on_from_what_is_there),
        DRIVE(a_lack_of_descriptors_is_no_conflict),
        DRIVE(process_that_cannot_be_examined_is_no_conflict),
        DRIVE(another_disk_under_the_drives_id_is_a_conflict),
        DRIVE(an_attach_waits_for_a_guest_that_has_not_let_go),
        DRIVE(a_path_that_leads_elsewhere_is_not_opened),
        DRIVE(an_attach_that_is_refused_leaves_nothing),
        DRIVE(a_detach_waits_until_the_guest_has_let_go),
        DRIVE(refused_removal_is_reported),
        DRIVE(cloud_hypervisor_lists_what_crustd_attached),
        DRIVE(cloud_hypervisor_takes_the_new_size),
        DRIVE(a_vm_that_does_not_run_is_not_touched),
        DRIVE(firecracker_attaches_over_pci_only),
        DRIVE(firecracker_detaches_limits_and_resizes),
        DRIVE(firecracker_lists_what_crustd_attached),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
