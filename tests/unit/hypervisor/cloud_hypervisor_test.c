/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor_test.c - whole conversations with a scripted Cloud Hypervisor. */
#include "tests/unit/hypervisor/http_call.h"

#include "lib/cleanup.h"
#include "lib/json.h"
#include "tests/unit/few_descriptors.h"

#define PING(version)                                                                              \
    {                                                                                              \
        "GET /api/v1/vmm.ping HTTP/1.1\r\n",                                                       \
            HTTP_JSON("200", "{\"build_version\":\"v52.0-dirty\",\"version\":\"" version           \
                             "\",\"pid\":7,\"features\":[]}")                                      \
    }
#define DISK(id, path, more)                                                                       \
    "{\"id\":\"" id "\",\"path\":\"" path "\",\"readonly\":false,\"image_type\":\"Raw\"" more "}"
#define INFO(state, disks)                                                                         \
    {                                                                                              \
        "GET /api/v1/vm.info HTTP/1.1\r\n",                                                        \
            HTTP_JSON("200", "{\"config\":{\"disks\":[" disks "]},\"state\":\"" state              \
                             "\",\"device_tree\":{\"_disk1\":{\"parent\":\"_virtio-pci-_disk1\"}," \
                             "\"_virtio-pci-_disk1\":{\"pci_bdf\":\"0000:00:04.0\"}}}")            \
    }
#define DISKS DISK("_disk0", "/nonexistent", "") "," DISK("_disk1", "$DEVICE", "")
#define RESIZE                                                                                     \
    "PUT /api/v1/vm.resize-disk HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n"       \
    "Content-Type: application/json\r\nContent-Length: 35\r\n\r\n"                                 \
    "{\"id\":\"_disk1\",\"desired_size\":2048}"

static struct hypervisor_reply run(struct http_server *server, enum hypervisor_act act,
                                   const struct http_script *script, size_t length)
{
    return http_call_converse(server, HYPERVISOR_CLOUD_HYPERVISOR, act, script, length);
}

static void resizes(void **state)
{
    const struct http_script script[] = {
        PING("52.0.0"), INFO("Running", DISKS), {RESIZE, HTTP_NO_CONTENT}};

    http_call_need_device(*state);
    for (unsigned bytewise = 0; bytewise < 2; bytewise++) {
        struct http_server *server = *state;
        struct hypervisor_reply reply;

        server->bytewise = bytewise;
        reply = run(server, HYPERVISOR_RESIZE, script, 3);
        assert_int_equal(reply.outcome, HYPERVISOR_DONE);
        assert_string_equal(reply.drive_id, "_disk1");
        assert_int_equal(reply.bytes, 2048);
    }
}

/* What cannot be looked at is not missing. */
static void a_lack_of_descriptors_hides_no_drive(void **state)
{
    const struct http_script script[] = {PING("53.0"),
                                         INFO("Running", DISK("_disk1", "$DEVICE", ""))};
    struct hypervisor_request request = http_call_request(*state, HYPERVISOR_QUERY);
    unsigned counts[HYPERVISOR_OUTCOMES] = {0};
    enum { LEAST = 4, MOST = 12 };

    http_call_need_device(*state);
    for (int number = LEAST; number < MOST; number++) {
        struct hypervisor_reply reply;
        struct rlimit limit;
        int fillers[MOST];

        http_server_listen(*state, script, 2);
        limit = leave_free(fillers, number);
        reply = http_call_run(*state, HYPERVISOR_CLOUD_HYPERVISOR, &request);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        http_server_hang_up(*state);
        counts[reply.outcome]++;
        assert_int_equal(reply.list, reply.outcome == HYPERVISOR_DONE ? HYPERVISOR_LIST_HAS
                                                                      : HYPERVISOR_LIST_UNREAD);
    }
    assert_true(counts[HYPERVISOR_DONE] > 0);
    assert_int_equal(counts[HYPERVISOR_DONE] + counts[HYPERVISOR_UNREACHABLE], MOST - LEAST);
}

/* Asked of any version, and only this. */
static void describes_its_guest(void **state)
{
    const struct http_script script[] = {
        {"GET /api/v1/vm.info HTTP/1.1\r\n",
         HTTP_JSON("200", "{\"config\":{\"fs\":[{}],\"platform\":{\"tdx\":true}}}")},
    };
    struct hypervisor_reply reply = run(*state, HYPERVISOR_DESCRIBE, script, 1);

    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_true(reply.guest.is_confidential);
    assert_true(reply.guest.has_share);
}

static void cannot_describe_without_an_answer(void **state)
{
    const struct http_script script[] = {
        {"GET /api/v1/vm.info HTTP/1.1\r\n", HTTP_JSON("200", "{}")}};
    struct hypervisor_reply reply = run(*state, HYPERVISOR_DESCRIBE, script, 1);

    assert_int_equal(reply.outcome, HYPERVISOR_UNREACHABLE);
}

static void cannot_learn_the_size(void **state)
{
    const struct http_script script[] = {PING("53.0"), INFO("Running", DISKS)};
    const struct http_script paused[] = {PING("53.0"), INFO("Paused", DISKS)};
    struct hypervisor_reply reply;

    http_call_need_device(*state);
    reply = run(*state, HYPERVISOR_QUERY, script, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_string_equal(reply.drive_id, "_disk1");
    assert_string_equal(reply.address, "pci:04");
    assert_int_equal(reply.bytes, 0);
    reply = run(*state, HYPERVISOR_QUERY, paused, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_PAUSED);
    assert_string_equal(reply.error.text, "the VM is paused");
    assert_string_equal(reply.drive_id, "_disk1");
}

static void asks_for_a_version_that_can(void **state)
{
    const struct http_script script[] = {PING("51.1.0")};
    struct hypervisor_reply reply = run(*state, HYPERVISOR_RESIZE, script, 1);

    assert_int_equal(reply.outcome, HYPERVISOR_VERSION);
    assert_string_equal(reply.version, "51.1.0");
    assert_string_equal(
        reply.error.text,
        "needs Cloud Hypervisor 52 or later (this is 51.1, the one that Kata 4.1.0 ships)");
    assert_int_equal(reply.list, HYPERVISOR_LIST_UNREAD);
}

/* A query tells what a resize would come to, before one is needed. */
static void foresees_a_resize(void **state)
{
    static const struct {
        struct http_script script[2];
        enum hypervisor_outcome resize;
    } cases[] = {
        {{PING("v52.0"), INFO("Running", DISKS)}, HYPERVISOR_DONE},
        {{PING("51.1.0"), INFO("Running", DISKS)}, HYPERVISOR_VERSION},
        {{PING("v52.0"),
          INFO("Running", "{\"id\":\"_disk1\",\"path\":\"$DEVICE\",\"readonly\":true}")},
         HYPERVISOR_READ_ONLY},
    };

    http_call_need_device(*state);
    for (size_t i = 0; i < array_length(cases); i++) {
        struct hypervisor_reply reply = run(*state, HYPERVISOR_QUERY, cases[i].script, 2);

        assert_int_equal(reply.outcome, HYPERVISOR_DONE);
        assert_int_equal(reply.list, HYPERVISOR_LIST_HAS);
        assert_int_equal(reply.resize, cases[i].resize);
    }
}

static void passes_on_refusals(void **state)
{
    static const struct {
        const char *answer;
        enum hypervisor_outcome outcome;
        const char *text;
    } cases[] = {
        {HTTP_JSON("500", "[\"Error from API\",\"Resize failed\",\"Block device size 4096 does not "
                          "match requested size 2048\"]"),
         HYPERVISOR_REFUSED, "Block device size 4096 does not match requested size 2048"},
        {HTTP_JSON("404", "[\"Error from API\",\"Failed to find device corresponding to the given "
                          "identifier: _disk1\"]"),
         HYPERVISOR_DRIVE_NOT_FOUND,
         "Failed to find device corresponding to the given identifier: _disk1"},
        {HTTP_JSON("500", "VM \x1b[31mmigrating"), HYPERVISOR_REFUSED, "VM \\u001b[31mmigrating"},
        {HTTP_FULL, HYPERVISOR_BUSY, "other clients hold all of the control socket's connections"},
    };

    http_call_need_device(*state);
    for (size_t i = 0; i < array_length(cases); i++) {
        const struct http_script script[] = {
            PING("v53.0"), INFO("Running", DISKS), {RESIZE, cases[i].answer}};
        struct hypervisor_reply reply = run(*state, HYPERVISOR_RESIZE, script, 3);

        assert_int_equal(reply.outcome, cases[i].outcome);
        assert_string_equal(reply.error.text, cases[i].text);
        assert_string_equal(reply.drive_id, "_disk1");
        assert_int_equal(reply.bytes, 0);
    }
}

static void leaves_alone_what_must_not_be_resized(void **state)
{
    static const struct {
        struct http_script info;
        enum hypervisor_outcome outcome;
    } cases[] = {
        {INFO("Created", DISKS), HYPERVISOR_BUSY},
        {INFO("Running", ""), HYPERVISOR_DRIVE_NOT_FOUND},
        {INFO("Running", DISK("_disk0", "/nonexistent", "")), HYPERVISOR_DRIVE_NOT_FOUND},
        {INFO("Running", DISK("a", "$DEVICE", "") "," DISK("b", "$DEVICE", "")),
         HYPERVISOR_DRIVE_NOT_FOUND},
        {INFO("Running", DISK("a", "$DEVICE", ",\"vhost_user\":true")), HYPERVISOR_UNSUPPORTED},
        {INFO("Running", "{\"id\":\"a\",\"path\":\"$DEVICE\",\"readonly\":true}"),
         HYPERVISOR_READ_ONLY},
        {INFO("Running", "{\"id\":\"a\",\"path\":\"$DEVICE\",\"image_type\":\"Qcow2\"}"),
         HYPERVISOR_UNSUPPORTED},
        {INFO("Running", DISK("a", "/x", "") "," DISK("a", "$DEVICE", "")), HYPERVISOR_UNREACHABLE},
        {{"GET", HTTP_JSON("200", "{")}, HYPERVISOR_UNREACHABLE},
    };

    http_call_need_device(*state);
    for (size_t i = 0; i < array_length(cases); i++) {
        const struct http_script script[] = {PING("v52.0"), cases[i].info};

        assert_int_equal(run(*state, HYPERVISOR_RESIZE, script, 2).outcome, cases[i].outcome);
    }
}

/* Over a regular file the same call would truncate it. */
static void never_resizes_a_file(void **state)
{
    struct http_server *server = *state;
    struct hypervisor_request request = http_call_request(server, HYPERVISOR_RESIZE);
    cleanup(fd_closep) int held = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    char path[200] = "", answer[400];
    const struct http_script script[] = {PING("v52.0"), {"GET", answer}};
    struct stat st;

    assert_true(readlink("/proc/self/exe", path, sizeof(path) - 1) > 0);
    (void)snprintf(answer, sizeof(answer),
                   HTTP_JSON("200", "{\"config\":{\"disks\":[{\"id\":\"a\",\"path\":\"%s\"}]},"
                                    "\"state\":\"Running\"}"),
                   path);
    assert_int_equal(fstat(held, &st), 0);
    request.regular_file = true;
    request.file_device = st.st_dev;
    request.inode = st.st_ino;
    http_server_listen(server, script, 2);
    assert_int_equal(http_call_run(server, HYPERVISOR_CLOUD_HYPERVISOR, &request).outcome,
                     HYPERVISOR_UNSUPPORTED);
}

/* A path that leads to the device is not enough: the drive may have been opened before it did. */
static void wants_the_device_held(void **state)
{
    const struct http_script script[] = {PING("v52.0"), INFO("Running", DISKS)};
    struct http_server *server = *state;

    http_call_need_device(server);
    fd_close(take_fd(&server->held));
    assert_int_equal(run(server, HYPERVISOR_RESIZE, script, 2).outcome, HYPERVISOR_DRIVE_NOT_FOUND);
}

static void wants_whole_sectors(void **state)
{
    const struct http_script script[] = {PING("v52.0"), INFO("Running", DISKS)};
    struct http_server *server = *state;
    struct hypervisor_request request = http_call_request(server, HYPERVISOR_RESIZE);

    http_call_need_device(server);
    request.bytes = 2049;
    http_server_listen(server, script, 2);
    assert_int_equal(http_call_run(server, HYPERVISOR_CLOUD_HYPERVISOR, &request).outcome,
                     HYPERVISOR_UNSUPPORTED);
}

static void connection_failures_have_their_outcomes(void **state)
{
    const struct http_script script[] = {PING("v52.0"), INFO("Running", DISKS)};
    struct http_server *server = *state;
    struct hypervisor_request request = http_call_request(server, HYPERVISOR_RESIZE);

    assert_int_equal(http_call_run(server, HYPERVISOR_CLOUD_HYPERVISOR, &request).outcome,
                     HYPERVISOR_UNREACHABLE); /* nobody listens */
    server->close_at = 1;
    assert_int_equal(run(server, HYPERVISOR_RESIZE, script, 2).outcome, HYPERVISOR_UNREACHABLE);
    server->close_at = HTTP_SERVER_NEVER;
    server->silent_at = 1;
    request.deadline_ns = 20 * NSEC_PER_MSEC;
    http_server_listen(server, script, 2);
    assert_int_equal(http_call_run(server, HYPERVISOR_CLOUD_HYPERVISOR, &request).outcome,
                     HYPERVISOR_UNREACHABLE);
    request.vmm_pid = getppid(); /* it is another process that listens */
    assert_int_equal(http_call_run(server, HYPERVISOR_CLOUD_HYPERVISOR, &request).outcome,
                     HYPERVISOR_UNREACHABLE);
    request.control_socket = "/nonexistent/clh-api.sock";
    assert_int_equal(http_call_run(server, HYPERVISOR_CLOUD_HYPERVISOR, &request).outcome,
                     HYPERVISOR_MONITOR_MISSING);
}

/* It is not even kept until its end. */
static void an_answer_beyond_the_limit_is_refused(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(0);
    struct http_script script[] = {PING("v52.0"), {"vm.info", NULL}};
    struct hypervisor_reply reply;

    assert_int_equal(buffer_append_format(&body, HTTP_JSON("200", "%*s"),
                                          (int)JSON_LIMITS_VMM_HTTP.bytes + 1, "{}"),
                     0);
    script[1].answer = buffer_text(&body);
    reply = run(*state, HYPERVISOR_QUERY, script, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_UNREACHABLE);
    assert_string_equal(reply.error.text, "the control socket: the answer is too long");
}

static void is_silent_once_freed(void **state)
{
    const struct http_script script[] = {PING("v52.0"), INFO("Running", DISKS)};
    struct http_server *server = *state;
    struct hypervisor_request request = http_call_request(server, HYPERVISOR_RESIZE);
    struct http_call never = {.server = server};
    struct hypervisor_call *call;

    server->silent_at = 1;
    http_server_listen(server, script, 2);
    assert_int_equal(hypervisor_call_new(&server->loop, HYPERVISOR_CLOUD_HYPERVISOR, &request,
                                         http_call_on_done, &never, &call),
                     0);
    while (server->position < 1 || server->output.length)
        loop_run_once(&server->loop);
    assert_null(hypervisor_call_free(call));
    assert_int_equal(never.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_CALL_TEST(resizes),
        HTTP_CALL_TEST(a_lack_of_descriptors_hides_no_drive),
        HTTP_CALL_TEST(describes_its_guest),
        HTTP_CALL_TEST(cannot_describe_without_an_answer),
        HTTP_CALL_TEST(cannot_learn_the_size),
        HTTP_CALL_TEST(asks_for_a_version_that_can),
        HTTP_CALL_TEST(foresees_a_resize),
        HTTP_CALL_TEST(passes_on_refusals),
        HTTP_CALL_TEST(leaves_alone_what_must_not_be_resized),
        HTTP_CALL_TEST(never_resizes_a_file),
        HTTP_CALL_TEST(wants_the_device_held),
        HTTP_CALL_TEST(wants_whole_sectors),
        HTTP_CALL_TEST(connection_failures_have_their_outcomes),
        HTTP_CALL_TEST(an_answer_beyond_the_limit_is_refused),
        HTTP_CALL_TEST(is_silent_once_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
