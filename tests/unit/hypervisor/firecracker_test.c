/* SPDX-License-Identifier: Apache-2.0 */
/* firecracker_test.c - whole conversations with a scripted Firecracker. */
#include "tests/unit/hypervisor/http_call.h"

#include "lib/cleanup.h"
#include "lib/json.h"
#include "tests/unit/hypervisor/http_answer.h"

#define DRIVE(id, path, engine)                                                                    \
    "{\"drive_id\":\"" id "\",\"partuuid\":null,\"is_root_device\":false,\"is_read_only\":false,"  \
    "\"path_on_host\":\"" path "\",\"io_engine\":" engine ",\"socket\":null}"
#define CONFIG(drives)                                                                             \
    {                                                                                              \
        "GET /vm/config HTTP/1.1\r\n",                                                             \
            HTTP_JSON("200", "{\"drives\":[" drives "],\"machine-config\":{\"vcpu_count\":1}}")    \
    }
#define DRIVES                                                                                     \
    DRIVE("rootfs", "/nonexistent", "\"Async\"") "," DRIVE("drive_1", "$DEVICE", "\"Sync\"")
#define PATCH "{\"drive_id\":\"drive_1\",\"path_on_host\":\"$DEVICE\"}"

static struct hypervisor_reply run(struct http_server *server, enum hypervisor_act act,
                                   const struct http_script *script, size_t length)
{
    return http_call_converse(server, firecracker_act, act, script, length);
}

static void has_the_drive_opened_again(void **state)
{
    const struct http_script script[] = {CONFIG(DRIVES),
                                         {"PATCH /drives/drive_1 HTTP/1.1\r\n", HTTP_EMPTY}};
    const struct http_script body[] = {CONFIG(DRIVES), {PATCH, HTTP_EMPTY}};
    const struct http_script refused[] = {
        CONFIG(DRIVES), {"PATCH", HTTP_JSON("400", "{\"fault_message\":\"no such drive\"}")}};
    struct hypervisor_reply reply;

    http_call_need_device(*state);
    reply = run(*state, HYPERVISOR_RESIZE, script, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_int_equal(reply.bytes, 2048);
    assert_string_equal(reply.drive_id, "drive_1");
    reply = run(*state, HYPERVISOR_RESIZE, body, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    reply = run(*state, HYPERVISOR_RESIZE, refused, 2);
    assert_int_equal(reply.outcome, HYPERVISOR_REFUSED);
    assert_string_equal(reply.error.text, "no such drive");
    reply = run(*state, HYPERVISOR_QUERY, script, 1);
    assert_int_equal(reply.outcome, HYPERVISOR_DONE);
    assert_int_equal(reply.bytes, 0);
    assert_int_equal(reply.list, HYPERVISOR_LIST_HAS);
}

static void leaves_alone_what_must_not_be_opened_again(void **state)
{
    static const struct {
        struct http_script config;
        enum hypervisor_outcome outcome;
    } cases[] = {
        {CONFIG(""), HYPERVISOR_DRIVE_NOT_FOUND},
        {CONFIG(DRIVE("drive_1", "/dev/null", "\"Sync\"")), HYPERVISOR_DRIVE_NOT_FOUND},
        {CONFIG(DRIVE("drive_1", "$DEVICE", "\"Async\"")), HYPERVISOR_UNSUPPORTED},
        {CONFIG("{\"drive_id\":\"d\",\"path_on_host\":\"$DEVICE\",\"is_read_only\":true}"),
         HYPERVISOR_READ_ONLY},
        {CONFIG(DRIVE("../../vm", "$DEVICE", "\"Sync\"")), HYPERVISOR_UNREACHABLE},
        {CONFIG(DRIVE("a", "/x", "null") "," DRIVE("a", "$DEVICE", "null")),
         HYPERVISOR_UNREACHABLE},
        {{"GET", HTTP_JSON("200", "{\"drives\":{}}")}, HYPERVISOR_UNREACHABLE},
    };

    http_call_need_device(*state);
    for (size_t i = 0; i < array_length(cases); i++)
        assert_int_equal(run(*state, HYPERVISOR_RESIZE, &cases[i].config, 1).outcome,
                         cases[i].outcome);
}

static void recorded_drive_on_another_device_is_a_mismatch(void **state)
{
    const struct http_script script[] = {CONFIG(DRIVE("drive_1", "/dev/null", "\"Sync\""))};
    struct http_server *server = *state;
    struct hypervisor_request request = http_call_request(server, HYPERVISOR_RESIZE);

    http_call_need_device(server);
    request.recorded_drive = "drive_1";
    assert_int_equal(http_call_run(server, firecracker_act, &request, script, 1).outcome,
                     HYPERVISOR_MISMATCH);
}

static void an_id_that_does_not_fit_is_refused(void **state)
{
    char body[2 * DRIVE_ID_BYTES];

    for (int longer = 0; longer < 2; longer++) {
        cleanup(http_answer_done) struct http_answer answer;

        (void)snprintf(body, sizeof(body),
                       "{\"drives\":[{\"drive_id\":\"%0*d\",\"path_on_host\":\"/x\"}]}",
                       DRIVE_ID_BYTES - 1 + longer, 1);
        http_answer_init(&answer, &firecracker_kind, body, strlen(body));
        assert_int_equal(vmm_http_read(&answer.http, firecracker_kind.read_list),
                         longer ? HYPERVISOR_UNREACHABLE : HYPERVISOR_DONE);
    }
}

/* Two bytes each, a hundred of memory. */
static void more_values_than_a_vm_has_are_refused(void **state)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(JSON_LIMITS_VMM_HTTP.bytes);
    cleanup(http_answer_done) struct http_answer answer;

    assert_int_equal(buffer_append_text(&body, "{\"drives\":[],\"x\":[0"), 0);
    for (unsigned i = 0; i < 16384; i++)
        assert_int_equal(buffer_append_text(&body, ",0"), 0);
    assert_int_equal(buffer_append_text(&body, "]}"), 0);
    http_answer_init(&answer, &firecracker_kind, buffer_text(&body), body.length);
    assert_int_equal(vmm_http_read(&answer.http, firecracker_kind.read_list),
                     HYPERVISOR_UNREACHABLE);
    assert_non_null(strstr(answer.reply.error.text, "more values than are read"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_that_does_not_fit_is_refused),
        cmocka_unit_test(more_values_than_a_vm_has_are_refused),
        HTTP_CALL_TEST(has_the_drive_opened_again),
        HTTP_CALL_TEST(leaves_alone_what_must_not_be_opened_again),
        HTTP_CALL_TEST(recorded_drive_on_another_device_is_a_mismatch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
