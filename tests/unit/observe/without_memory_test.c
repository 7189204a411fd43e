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
#include "api/drive_asked.h"
#include "hypervisor/cloud_hypervisor_report.h"
#include "hypervisor/firecracker_report.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/qmp_codec.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/mount_table.h"
#include "lib/proto.h"
#include "lib/secret.h"
#include "observe/bundle.h"
#include "observe/mount_info.h"
#include "observe/persist.h"
#include "reconciler/helper/report.h"
#include "tests/unit/without_memory.h"

/* ---- parsers --------------------------------------------------------------------------------- */

static int parse_bundle(const char *text, size_t length)
{
    struct bundle bundle;
    struct error error;
    int r = bundle_parse(text, length, &bundle, &error);

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

static int parse_cloud_hypervisor(const char *text, size_t length)
{
    cleanup(drive_report_done) struct drive_report report = {.count = 0};
    char word[CLOUD_HYPERVISOR_WORD_BYTES];
    struct error error;

    return cloud_hypervisor_read_info(text, length, word, &report, &error);
}

static int parse_firecracker(const char *text, size_t length)
{
    cleanup(drive_report_done) struct drive_report report = {.count = 0};
    struct error error;

    return firecracker_read_config(text, length, &report, &error);
}

static int parse_helper_report(const char *text, size_t length)
{
    static struct helper_report report;
    struct error error;

    return helper_report_parse(text, length, 1, &report, &error);
}

static int read_return(const cJSON *value)
{
    cleanup(qemu_report_done) struct qemu_report report = {.descriptor_count = 0};
    struct error error;
    int r = qemu_report_read_frontends(&report.roots, value, &error);

    if (r == 0)
        r = qemu_report_read_nodes(&report.nodes, value, &error);
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

/* As a resolver needs memory: every path and descriptor is the device that is looked for. */
static int identify(struct vmm_resolver *resolver, struct vmm_identity *ret_identity)
{
    cleanup(freep) void *needed = malloc(1);

    *ret_identity = (struct vmm_identity){.block_device = true, .device = 1};
    return needed ? 0 : vmm_resolver_note(resolver, -ENOMEM);
}

static int resolve_path(struct vmm_resolver *resolver, const char *path,
                        struct vmm_identity *ret_identity)
{
    (void)path;
    return identify(resolver, ret_identity);
}

static int resolve_descriptor(struct vmm_resolver *resolver, int fd,
                              struct vmm_identity *ret_identity)
{
    (void)fd;
    return identify(resolver, ret_identity);
}

static size_t list_held(struct vmm_resolver *resolver, struct vmm_identity *ret_identities,
                        size_t size)
{
    (void)size;
    resolver->exhausted = identify(resolver, ret_identities) < 0;
    return resolver->exhausted ? 0 : 1;
}

static const struct vmm_wanted wanted = {.act = HYPERVISOR_RESIZE,
                                         .identity = {.block_device = true, .device = 1}};

static struct vmm_resolver new_resolver(void)
{
    return (struct vmm_resolver){
        .path = resolve_path, .descriptor = resolve_descriptor, .held = list_held};
}

/* One that is found counts also where another could not be examined. */
static int find_on(const struct drive_report *report)
{
    struct vmm_resolver resolver = new_resolver();
    const struct drive *drive;
    struct error error;

    enum hypervisor_outcome outcome = drive_report_find(report, &wanted, &resolver, &drive, &error);

    return outcome == HYPERVISOR_DONE ? resolver.shortage : 1;
}

static int find_cloud_hypervisor(const char *text, size_t length)
{
    cleanup(drive_report_done) struct drive_report report = {.count = 0};
    char word[CLOUD_HYPERVISOR_WORD_BYTES];
    struct error error;
    int r = cloud_hypervisor_read_info(text, length, word, &report, &error);

    return r < 0 ? r : find_on(&report);
}

static int parse_cloud_hypervisor_devices(const char *text, size_t length)
{
    cleanup(drive_report_done) struct drive_report report = {.count = 0};
    struct error error;

    return cloud_hypervisor_read_devices(text, length, "", &report, &error);
}

/* All answers make one report; what of them is another question's is left out. */
static int read_all_returns(struct qemu_report *report, const char *text, size_t length)
{
    cleanup(buffer_done) struct buffer input = BUFFER_INIT(QMP_MESSAGE_BYTES + 4096);
    struct qmp_decoder decoder = {0};
    int r = buffer_append(&input, text, length);

    while (r >= 0) {
        cleanup(qmp_message_done) struct qmp_message message = {.kind = QMP_OTHER};
        struct error error;

        r = qmp_decode(&decoder, &input, &message, &error);
        if (r != QMP_DECODED)
            return r < 0 ? r : 0;
        (void)qemu_report_read_frontends(&report->roots, message.value, &error);
        (void)qemu_report_read_nodes(&report->nodes, message.value, &error);
        (void)qemu_report_read_sets(report, message.value, &error);
    }
    return r;
}

static struct qemu_report session; /* all answers of one monitor */

/* A drive that is found counts also where there was no memory for another one. */
static int find_qemu(const char *text, size_t length)
{
    struct vmm_resolver resolver = new_resolver();
    const struct qemu_node *drive;
    struct error error;

    (void)text;
    (void)length;
    (void)qemu_drive_find(&session, &wanted, &resolver, &drive, &error);
    return has_failed;
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
    cleanup(freep) struct drive_asked *asked = drive_asked_new(DRIVE_ASKED_DETACH);

    (void)text;
    (void)length;
    return asked ? 0 : -ENOMEM;
}

static int pass_by(void *userdata, char *line)
{
    (void)userdata;
    (void)line;
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

    (void)text;
    (void)length;
    return proto_append(&bytes, &message.base);
}

static int pass_secret(const char *text, size_t length)
{
    cleanup(buffer_done) struct buffer json = BUFFER_INIT(1024);

    (void)text;
    (void)length;
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
        {"tests/fuzz/corpus/cloud_hypervisor", parse_cloud_hypervisor_devices},
        {"tests/fuzz/corpus/cloud_hypervisor", find_cloud_hypervisor},
        {"tests/fuzz/corpus/mount_table", read_mount_table},
    };
    static parse_function *const messages[] = {pass_response, pass_drive_call, pass_protobuf,
                                               pass_secret};

    (void)state;
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
    (void)state;
    bundle_done(NULL);
    mount_info_done(NULL);
    persist_sandbox_done(NULL);
    persist_container_done(NULL);
}

static void a_search_without_memory_leaves_nothing(void **state)
{
    static char text[256 * 1024];
    cleanup(fd_closep) int corpus = open("tests/fuzz/corpus/qmp", O_PATH | O_CLOEXEC);
    size_t length = read_input(corpus, "session", text, sizeof(text));

    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    assert_int_equal(read_all_returns(&session, text, length), 0);
    assert_true(session.roots.count > 0 && session.descriptor_count > 0);
    assert_true(fail_all(find_qemu, "", 0) > 0);
    qemu_report_done(&session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(a_search_without_memory_leaves_nothing),
        cmocka_unit_test(done_accepts_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
