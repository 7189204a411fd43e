/* SPDX-License-Identifier: Apache-2.0 */
/* cloud_hypervisor_test.c - whole conversations with a scripted Cloud Hypervisor. */
#include "tests/unit/hypervisor/http_call.h"

#include "lib/cleanup.h"
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
    return http_call_converse(server, cloud_hypervisor_act, act, script, length);
}

/* What cannot be looked at is not missing. */
static void a_lack_of_descriptors_hides_no_drive(void **state)
{
    const struct http_script script[] = {PING("53.0"),
                                         INFO("Running", DISK("_disk1", "$DEVICE", ""))};
    struct hypervisor_request request = http_call_request(*state, HYPERVISOR_QUERY);
    unsigned counts[HYPERVISOR_OUTCOMES] = {0};
    enum { LEAST = 1, MOST = 12 };

    http_call_need_device(*state);
    for (int number = LEAST; number < MOST; number++) {
        struct http_play *play = http_play_start(*state, script, 2);
        struct hypervisor_reply reply;
        struct rlimit limit;
        int fillers[MOST];

        limit = leave_free(fillers, number);
        reply = http_call_act(cloud_hypervisor_act, &request);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        (void)http_play_end(play);
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

static void resizes_the_drive_on_the_device(void **state)
{
    const struct http_script script[] = {
        PING("v52.0"), INFO("Running", DISKS), {RESIZE, HTTP_EMPTY}};
    struct hypervisor_reply reply;

    http_call_need_device(*state);
    reply = run(*state, HYPERVISOR_RESIZE, script, 3);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_int_equal(reply.bytes, 2048);
    assert_int_equal(reply.list, HYPERVISOR_LIST_HAS);
    assert_string_equal(reply.drive_id, "_disk1");
    assert_string_equal(reply.address, "pci:04");
    assert_string_equal(reply.version, "v52.0");
}

static void refused_resize_has_the_reason(void **state)
{
    const struct http_script script[] = {
        PING("v52.0"),
        INFO("Running", DISKS),
        {RESIZE, HTTP_JSON("500", "[\"Error from API\",\"Unsupported operation\"]")}};
    struct hypervisor_reply reply;

    http_call_need_device(*state);
    reply = run(*state, HYPERVISOR_RESIZE, script, 3);
    assert_int_equal(reply.outcome, HYPERVISOR_UNSUPPORTED);
    assert_int_equal(reply.bytes, 0);
    assert_int_equal(reply.list, HYPERVISOR_LIST_HAS);
    assert_string_equal(reply.error.text, "Unsupported operation");
}

static void paused_vm_is_reported(void **state)
{
    const struct http_script script[] = {
        PING("v52.0"), INFO("Paused", DISKS), {RESIZE, HTTP_EMPTY}};
    struct hypervisor_reply reply;

    http_call_need_device(*state);
    reply = run(*state, HYPERVISOR_QUERY, script, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_PAUSED);
    assert_string_equal(reply.error.text, "the VM is paused");
    reply = run(*state, HYPERVISOR_RESIZE, script, 3);
    assert_int_equal(reply.outcome, HYPERVISOR_PAUSED);
    assert_int_equal(reply.bytes, 2048);
}

/* A query reads the drives of any version; a resize does not even ask for them. */
static void query_foresees_what_a_resize_would_meet(void **state)
{
    const struct http_script old[] = {PING("v51.1"), INFO("Running", DISKS)};
    const struct http_script new[] = {
        PING("v52.0"), INFO("Running", "{\"id\":\"a\",\"path\":\"$DEVICE\",\"readonly\":true}")};
    struct hypervisor_reply reply;

    http_call_need_device(*state);
    reply = run(*state, HYPERVISOR_QUERY, old, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_int_equal(reply.resize, HYPERVISOR_VERSION);
    assert_string_equal(reply.version, "v51.1");
    reply = run(*state, HYPERVISOR_RESIZE, old, 1);
    assert_int_equal(reply.outcome, HYPERVISOR_VERSION);
    assert_non_null(strstr(reply.error.text, "51.1"));
    reply = run(*state, HYPERVISOR_QUERY, new, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_int_equal(reply.resize, HYPERVISOR_READ_ONLY);
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
    request.disk = (struct hypervisor_disk){true, st.st_dev, st.st_ino};
    assert_int_equal(http_call_run(server, cloud_hypervisor_act, &request, script, 2).outcome,
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
    assert_int_equal(http_call_run(server, cloud_hypervisor_act, &request, script, 2).outcome,
                     HYPERVISOR_UNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        HTTP_CALL_TEST(a_lack_of_descriptors_hides_no_drive),
        HTTP_CALL_TEST(describes_its_guest),
        HTTP_CALL_TEST(cannot_describe_without_an_answer),
        HTTP_CALL_TEST(resizes_the_drive_on_the_device),
        HTTP_CALL_TEST(refused_resize_has_the_reason),
        HTTP_CALL_TEST(paused_vm_is_reported),
        HTTP_CALL_TEST(query_foresees_what_a_resize_would_meet),
        HTTP_CALL_TEST(leaves_alone_what_must_not_be_resized),
        HTTP_CALL_TEST(never_resizes_a_file),
        HTTP_CALL_TEST(wants_the_device_held),
        HTTP_CALL_TEST(wants_whole_sectors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
