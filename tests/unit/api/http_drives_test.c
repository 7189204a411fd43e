/* SPDX-License-Identifier: Apache-2.0 */
/* http_drives_test.c - drives over HTTP: rows, and calls that wait for the core. */
#include "tests/unit/api/fixture.h"

#include "lib/json.h"
#include "store/drive_mounts.h"

#define ATTACH                                                                                     \
    "{\"drive_id\":\"data-1\",\"sandbox_id\":\"s1\",\"host_path\":\"/dev/vg/data\","               \
    "\"vm_path\":\"/mnt/data\",\"filesystem_type\":\"ext4\"}"

static int begin(void **state)
{
    memset(&drives, 0, sizeof(drives));
    return set_up(state);
}

static void add_drives(struct store *store)
{
    const struct store_sandbox sandbox = {.sandbox_id = "s1",
                                          .runtime = RUNTIME_KATA_GO,
                                          .hypervisor = HYPERVISOR_QEMU,
                                          .vmm_pid = 1};
    struct store_drive_mount_request request = {.drive_id = "data-1",
                                                .sandbox_id = "s1",
                                                .host_path = "/dev/vg/data",
                                                .vm_path = "/mnt/data",
                                                .fs_type = "ext4"};
    int64_t ref = 0, sandbox_ref = 0;
    bool changed;

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_put_sandbox(store, &sandbox, &sandbox_ref, &changed), 0);
    assert_int_equal(store_add_drive_mount(store, &request, "crust-abcdefghijklmn", &ref), 0);
    assert_int_equal(store_set_drive_mount_state(store, ref, DRIVE_FAILED, STATUS_NOT_FOUND, "why"),
                     0);
    assert_int_equal(store_add_drive_mount(store, &request, "crust-abcdefghijklmn", &ref), 0);
    assert_int_equal(store_commit(store), 0);
}

static void expect_rows(struct fixture *fixture, enum http_listener listener, const char *path,
                        int count)
{
    cleanup(buffer_done) struct buffer reply = ask_listener(fixture, listener, "GET", path);
    cleanup(json_deletep) cJSON *rows = NULL;
    const char *body = strstr(buffer_text(&reply), "\r\n\r\n");

    assert_int_equal(status_of(&reply), 200);
    assert_non_null(body);
    assert_int_equal(json_parse(body + 4, strlen(body + 4), JSON_LIMITS_HTTP, &rows, NULL), 0);
    assert_int_equal(cJSON_GetArraySize(rows), count);
    if (count)
        assert_string_equal(json_string(rows->child, "drive_id"), "data-1");
}

static void rows_are_those_of_the_view(void **state)
{
    struct fixture *fixture = *state;

    expect_rows(fixture, HTTP_LISTENER_SOCKET, "/v1/drives", 0);
    add_drives(fixture->reconciler.store);
    expect_rows(fixture, HTTP_LISTENER_SOCKET, "/v1/drives", 2);
    expect_rows(fixture, HTTP_LISTENER_SOCKET, "/v1/drives?live=1", 1);
    expect_rows(fixture, HTTP_LISTENER_SOCKET, "/v1/drives?last=1", 1);
    expect_rows(fixture, HTTP_LISTENER_PAGES, "/v1/drives", 2);
    expect_status(fixture, "GET", "/v1/drives?volume=1", 400);
    expect_status(fixture, "GET", "/v1/drives?id=1", 400);
    expect_status(fixture, "GET", "/v1/drives?after=1", 400);
}

/* The client's bytes have to live as long as it does. */
struct asking {
    struct client client;
    char request[4096];
};

static void post(struct fixture *fixture, struct asking *asking, enum http_listener listener,
                 const char *path, const char *body)
{
    (void)snprintf(asking->request, sizeof(asking->request),
                   "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                   "Content-Length: %zu\r\n\r\n%s",
                   path, strlen(body), body);
    client_start(fixture, &asking->client, listener, asking->request, strlen(asking->request));
    while (!asking->client.ended && !drives.wait)
        loop_run_once(&fixture->loop);
}

static void expect_answer(struct asking *asking, unsigned status, const char *text)
{
    client_finish(&asking->client);
    if (status_of(&asking->client.reply) != status ||
        !strstr(buffer_text(&asking->client.reply), text))
        fail_msg("%s", buffer_text(&asking->client.reply));
    client_done(&asking->client);
}

static void an_attach_is_waited_for(void **state)
{
    struct fixture *fixture = *state;
    struct asking asking;

    post(fixture, &asking, HTTP_LISTENER_SOCKET, "/v1/drives", ATTACH);
    assert_string_equal(drives.asked, "attach data-1 s1 /dev/vg/data /mnt/data ext4 none Always "
                                      "bandwidth=0/0/0 ops=0/0/0");
    expect_status(fixture, "GET", "/healthz", 200);
    assert_false(asking.client.ended);
    drives_end(STATUS_OK, "");
    expect_answer(
        &asking, 200,
        "\r\n\r\n{\"drive_id\":\"data-1\",\"sandbox_id\":\"sandbox-1\",\"host_path\":\"/dev/vg/"
        "data\","
        "\"vm_path\":\"/mnt/data\",\"filesystem_type\":\"ext4\","
        "\"options\":[\"noatime\",\"data=ordered\"],\"is_writable\":true,"
        "\"rate_limiter\":{\"bandwidth\":{\"size\":1048576,\"refill_time_ms\":100,"
        "\"one_time_burst\":4096},\"ops\":null},\"serial\":\"crust-abcdefghijklmn\","
        "\"guest_device\":\"sdb\",\"size_bytes\":67108864,\"is_wanted\":true,\"state\":\"ready\","
        "\"status\":null,\"message\":\"one_time_burst is not kept\","
        "\"containers\":[{\"container_id\":\"c1\",\"path\":\"/in\",\"sub_path\":\"a/b\","
        "\"read_only\":true}]}\n");
    assert_string_equal(fixture->operations.first->method, "POST /v1/drives");
}

static void detach_and_limits_name_the_drive_in_the_path(void **state)
{
    struct fixture *fixture = *state;
    struct asking asking;

    post(fixture, &asking, HTTP_LISTENER_SOCKET, "/v1/drives/data-1/detach", "");
    assert_string_equal(drives.asked, "detach data-1");
    drives_end(STATUS_OK, "");
    expect_answer(&asking, 200, "\r\n\r\n{}\n");
    post(fixture, &asking, HTTP_LISTENER_SOCKET, "/v1/drives/data-1/limits",
         "{\"rate_limiter\":{\"ops\":{\"size\":7,\"refill_time_ms\":9}}}");
    assert_string_equal(drives.asked, "limit data-1 bandwidth=0/0/0 ops=7/9/0");
    drives_end(STATUS_OK, "");
    expect_answer(&asking, 200, "\"state\":\"ready\"");
}

static void every_status_has_its_answer(void **state)
{
    static const struct {
        enum status_code code;
        unsigned status;
        const char *text;
    } cases[] = {
        {STATUS_INVALID_ARGUMENT, 400, "\"INVALID_ARGUMENT\""},
        {STATUS_NOT_FOUND, 404, "\"NOT_FOUND\""},
        {STATUS_ALREADY_EXISTS, 409, "\"ALREADY_EXISTS\""},
        {STATUS_PERMISSION_DENIED, 403, "\"PERMISSION_DENIED\""},
        {STATUS_FAILED_PRECONDITION, 400, "\"FAILED_PRECONDITION\""},
        {STATUS_RESOURCE_EXHAUSTED, 429, "\"RESOURCE_EXHAUSTED\""},
        {STATUS_UNAVAILABLE, 503, "\"UNAVAILABLE\""},
        {STATUS_DEADLINE_EXCEEDED, 504, "\"DEADLINE_EXCEEDED\""},
    };
    struct asking asking;

    for (size_t i = 0; i < array_length(cases); i++) {
        drives.code = cases[i].code;
        post(*state, &asking, HTTP_LISTENER_SOCKET, "/v1/drives", ATTACH);
        expect_answer(&asking, cases[i].status, cases[i].text);
        drives.code = STATUS_OK;
        post(*state, &asking, HTTP_LISTENER_SOCKET, "/v1/drives/data-1/detach", "{}");
        drives_end(cases[i].code, "pid 7 (postgres) has it");
        expect_answer(&asking, cases[i].status, "pid 7 (postgres) has it");
    }
}

/* Over TCP there are rows and nothing else. */
static void listeners_that_only_read_change_nothing(void **state)
{
    struct asking asking;

    post(*state, &asking, HTTP_LISTENER_PAGES, "/v1/drives", ATTACH);
    expect_answer(&asking, 405, "\r\nAllow: GET, HEAD\r\n");
    post(*state, &asking, HTTP_LISTENER_PAGES, "/v1/drives/data-1/detach", "");
    expect_answer(&asking, 404, "unknown_path");
    post(*state, &asking, HTTP_LISTENER_METRICS, "/v1/drives", ATTACH);
    expect_answer(&asking, 404, "unknown_path");
    assert_string_equal(drives.asked, "");
}

/* The server stops: the wait is cancelled, and the client told. */
static void waiting_clients_are_answered_at_shutdown(void **state)
{
    struct fixture *fixture = *state;
    struct asking asking;

    post(fixture, &asking, HTTP_LISTENER_SOCKET, "/v1/drives", ATTACH);
    fixture->server = http_server_free(fixture->server);
    assert_int_equal(drives.cancelled, 1);
    expect_answer(&asking, 503, "");
}

#define DRIVES(function) cmocka_unit_test_setup_teardown(function, begin, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(rows_are_those_of_the_view),
        DRIVES(an_attach_is_waited_for),
        DRIVES(detach_and_limits_name_the_drive_in_the_path),
        DRIVES(every_status_has_its_answer),
        DRIVES(listeners_that_only_read_change_nothing),
        DRIVES(waiting_clients_are_answered_at_shutdown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
