/* SPDX-License-Identifier: Apache-2.0 */
/* without_memory_test.c - parsers whose n-th allocation fails, for each n, over what the fuzz
 * targets begin with: each says so instead of taking a part for the whole, and leaves nothing
 * behind.
 */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/ttrpc_codec.h"
#include "api/call.h"
#include "api/proto/crust_drive_v1.pb-c.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/qmp.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/mount_table.h"
#include "lib/proto.h"
#include "lib/text.h"
#include "observe/bundles.h"
#include "observe/kata.h"
#include "observe/observe.h"
#include "reconciler/helper/helper.h"
#include "tests/unit/hypervisor/http_answer.h"
#include "tests/unit/without_memory.h"

/* ---- parsers --------------------------------------------------------------------------------- */

static int parse_bundle(const char *text, size_t length)
{
    struct bundle bundle;
    struct error error;
    int r = bundle_parse(text, length, "", &bundle, &error);

    if (r == FILE_READ)
        bundle_done(&bundle);
    return r;
}

static int parse_mount_info(const char *text, size_t length)
{
    struct mount_info info;
    struct error error;
    int r = mount_info_parse(text, length, &info, &error);

    if (r == FILE_READ)
        mount_info_done(&info);
    return r;
}

static int parse_persist_sandbox(const char *text, size_t length)
{
    struct persist_sandbox sandbox;
    struct error error;
    int r = persist_parse_sandbox(text, length, &sandbox, &error);

    if (r == FILE_READ)
        persist_sandbox_done(&sandbox);
    return r;
}

static int parse_persist_container(const char *text, size_t length)
{
    struct persist_container container;
    struct error error;
    int r = persist_parse_container(text, length, &container, &error);

    if (r == FILE_READ)
        persist_container_done(&container);
    return r;
}

static int read_answer(struct http_answer *answer, const struct vmm_http_kind *kind,
                       const char *text, size_t length)
{
    http_answer_init(answer, kind, text, length);
    return vmm_http_read(&answer->http, kind->read_list) == HYPERVISOR_DONE ? 0 : -EBADMSG;
}

static int parse_cloud_hypervisor(const char *text, size_t length)
{
    cleanup(http_answer_done) struct http_answer answer;

    return read_answer(&answer, &cloud_hypervisor_kind, text, length);
}

static int parse_firecracker(const char *text, size_t length)
{
    cleanup(http_answer_done) struct http_answer answer;

    return read_answer(&answer, &firecracker_kind, text, length);
}

static int parse_helper_report(const char *text, size_t length)
{
    static struct helper_report report;
    const char *const path[] = {"/dev/sda"};
    struct error error;

    return helper_report_parse(text, length, path, 1, &report, &error);
}

static int read_return(const cJSON *value)
{
    cleanup(qemu_report_done) struct qemu_report report = {.descriptor_count = 0};
    struct error error;
    int r = qemu_report_read_nodes(&report.roots, value, true, &error);

    if (r == 0)
        r = qemu_report_read_nodes(&report.nodes, value, false, &error);
    return r == 0 ? qemu_report_read_sets(&report, value, &error) : r;
}

static int read_sets(const cJSON *value)
{
    cleanup(qemu_report_done) struct qemu_report report = {.descriptor_count = 0};
    struct error error;

    return qemu_report_read_sets(&report, value, &error);
}

static int parse_qmp_with(const char *text, size_t length, int (*read_value)(const cJSON *value))
{
    cleanup(buffer_done) struct buffer input = BUFFER_INIT(QMP_MESSAGE_BYTES + 4096);
    struct qmp_decoder decoder = {0};
    int r = buffer_append(&input, text, length);

    while (r == 0) {
        cleanup(qmp_message_done) struct qmp_message message = {.kind = QMP_OTHER};
        struct error error;

        r = qmp_decode(&decoder, &input, &message, &error);
        if (r != QMP_DECODED)
            break;
        if (message.kind == QMP_RETURN && message.value)
            r = read_value(message.value);
    }
    return r;
}

static int parse_qmp(const char *text, size_t length)
{
    return parse_qmp_with(text, length, read_return);
}

static int parse_qmp_sets(const char *text, size_t length)
{
    return parse_qmp_with(text, length, read_sets);
}

/* ---- searches for a drive ----------------------------------------------------------------------
 */

static int find_on(const struct drive_report *report)
{
    const struct hypervisor_request wanted = {.act = HYPERVISOR_RESIZE, .disk = {.device = 1}};
    struct vmm_process process;
    const struct drive *drive;
    struct error error;
    int r = vmm_process_init(&process, getpid(), &error);

    if (r < 0)
        return r;
    (void)drive_report_find(report, &wanted, &process, &drive, &error);
    vmm_process_done(&process);
    return process.shortage;
}

static int find_cloud_hypervisor(const char *text, size_t length)
{
    cleanup(http_answer_done) struct http_answer answer;
    int r = read_answer(&answer, &cloud_hypervisor_kind, text, length);

    return r < 0 ? r : find_on(&answer.http.drives);
}

/* ---- messages there and back ----------------------------------------------------------------- */

static int pass_response(const char *text, size_t length)
{
    static const struct ttrpc_status refusal = {.code = STATUS_UNAVAILABLE, .message = "not now"};
    cleanup(buffer_done) struct buffer frame = BUFFER_INIT(64 * 1024);

    return ttrpc_append_response(&frame, 1, &refusal, text, length);
}

static int pass_drive_call(const char *text, size_t length)
{
    static const char body[] = "{\"drive_id\":\"d\",\"containers\":[{\"path\":\"/p\"}],"
                               "\"rate_limiter\":{\"ops\":{\"size\":1}}}";
    const struct message_source source = {.body = body, .body_length = strlen(body)};
    ProtobufCMessage *message = NULL;
    struct error error;
    const enum status_code code = message_read_json(
        &crust__drive__v1__attach_drive_request__descriptor, &source, &message, &error);

    (void)proto_free(message);
    return code == STATUS_OK ? 0 : -ENOMEM;
}

static int pass_by(void *userdata, char *line)
{
    return 0;
}

static int read_mount_table(const char *text, size_t length)
{
    cleanup(fd_closep) int fd = memfd_create("mountinfo", MFD_CLOEXEC);

    if (fd < 0 || write(fd, text, length) != (ssize_t)length)
        return 0;
    return mount_table_each_line(fd, length, pass_by, NULL);
}

static int pass_protobuf(const char *text, size_t length)
{
    static const Agent__Status message = AGENT__STATUS__INIT;
    cleanup(buffer_done) struct buffer bytes = BUFFER_INIT(1024);

    return proto_append(&bytes, &message.base);
}

static int pass_secret(const char *text, size_t length)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(1024);

    return secret_append_json(&json, "ro,password=hunter2");
}

/* ---- each allocation of each ----------------------------------------------------------------- */

static size_t read_input(int directory, const char *name, char *ret_text, size_t size)
{
    cleanup(fd_closep) int fd = openat(directory, name, O_RDONLY | O_CLOEXEC);
    ssize_t length = read(fd, ret_text, size);

    assert_true(length >= 0 && (size_t)length < size);
    return (size_t)length;
}

static void fail_each(const char *corpus, parse_function *parse)
{
    static char text[256 * 1024];
    cleanup(dir_closep) DIR *names = opendir(corpus);
    long failures = 0;

    assert_non_null(names);
    for (struct dirent *name; (name = readdir(names));) {
        size_t length;

        if (name->d_name[0] == '.')
            continue;
        length = read_input(dirfd(names), name->d_name, text, sizeof(text));
        failures += fail_all(parse, text, length);
    }
    print_message("%s: %ld allocations failed\n", corpus, failures);
    assert_true(failures > 0);
}

static void failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    static const struct {
        const char *corpus;
        parse_function *parse;
    } parsers[] = {
        {"tests/fuzz/corpus/bundle", parse_bundle},
        {"tests/fuzz/corpus/mount_info", parse_mount_info},
        {"tests/fuzz/corpus/persist", parse_persist_sandbox},
        {"tests/fuzz/corpus/persist", parse_persist_container},
        {"tests/fuzz/corpus/cloud_hypervisor", parse_cloud_hypervisor},
        {"tests/fuzz/corpus/firecracker", parse_firecracker},
        {"tests/fuzz/corpus/helper_report", parse_helper_report},
        {"tests/fuzz/corpus/qmp", parse_qmp},
        {"tests/fuzz/corpus/qmp", parse_qmp_sets},
        {"tests/fuzz/corpus/cloud_hypervisor", find_cloud_hypervisor},
        {"tests/fuzz/corpus/mount_table", read_mount_table},
    };
    static parse_function *const messages[] = {pass_response, pass_drive_call, pass_protobuf,
                                               pass_secret};

#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    for (size_t i = 0; i < array_length(parsers); i++)
        fail_each(parsers[i].corpus, parsers[i].parse);
    for (size_t i = 0; i < array_length(messages); i++) {
        assert_true(fail_all(messages[i], "payload", 7) > 0);
    }
}

static void done_accepts_null(void **state)
{
    bundle_done(NULL);
    mount_info_done(NULL);
    persist_sandbox_done(NULL);
    persist_container_done(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(done_accepts_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
