/* SPDX-License-Identifier: Apache-2.0 */
/* without_memory_test.c - parsers whose n-th allocation fails, for each n, over what the fuzz
 * targets begin with: each says so instead of taking a part for the whole, and leaves nothing
 * behind.
 *
 * Needs malloc(3) for itself, so not under AddressSanitizer.
 */
#include "tests/unit/test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent-client/agent.pb-c.h"
#include "agent-client/ttrpc_codec.h"
#include "api/drive_asked.h"
#include "hypervisor/cloud_hypervisor_report.h"
#include "hypervisor/firecracker_report.h"
#include "hypervisor/hmp_codec.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/qmp_codec.h"
#include "lib/buffer.h"
#include "lib/cleanup.h"
#include "lib/proto.h"
#include "observe/bundle.h"
#include "observe/mount_info.h"
#include "observe/persist.h"
#include "reconciler/helper/report.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif

/* ---- memory ---------------------------------------------------------------------------------- */

static long allocations_left = -1; /* the one at 0 fails; below 0: none does */
static bool has_failed;
static long live;

#ifndef __SANITIZE_ADDRESS__
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void __libc_free(void *old);

static bool may_allocate(void)
{
    if (allocations_left < 0)
        return true;
    has_failed = has_failed || allocations_left == 0;
    return allocations_left-- != 0;
}

static void *counted(void *memory)
{
    live += memory != NULL;
    return memory;
}

void *malloc(size_t size)
{
    return may_allocate() ? counted(__libc_malloc(size)) : NULL;
}

void *calloc(size_t count, size_t size)
{
    return may_allocate() ? counted(__libc_calloc(count, size)) : NULL;
}

void *realloc(void *old, size_t size)
{
    void *memory = may_allocate() ? __libc_realloc(old, size) : NULL;

    live += memory && !old;
    return memory;
}

void free(void *old)
{
    live -= old != NULL;
    __libc_free(old);
}

/* libc's makes two allocations and can do without the second. */
__attribute__((format(printf, 2, 0))) static int print(char **ret_text, const char *format,
                                                       va_list list)
{
    char text[8192];
    int length = vsnprintf(text, sizeof(text), format, list);

    assert_in_range(length, 0, sizeof(text) - 1);
    *ret_text = malloc((size_t)length + 1);
    if (!*ret_text)
        return -1;
    memcpy(*ret_text, text, (size_t)length + 1);
    return length;
}

int plain_asprintf(char **ret_text, const char *format, ...) __asm__("asprintf")
    __attribute__((format(printf, 2, 3)));
int plain_asprintf(char **ret_text, const char *format, ...)
{
    va_list list;
    int length;

    va_start(list, format);
    length = print(ret_text, format, list);
    va_end(list);
    return length;
}

int checked_asprintf(char **ret_text, int flag, const char *format, ...) __asm__("__asprintf_chk")
    __attribute__((format(printf, 3, 4)));
int checked_asprintf(char **ret_text, int flag, const char *format, ...)
{
    va_list list;
    int length;

    (void)flag;
    va_start(list, format);
    length = print(ret_text, format, list);
    va_end(list);
    return length;
}
#endif

/* ---- parsers --------------------------------------------------------------------------------- */

typedef int parse_function(const char *text, size_t length);

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

static int parse_hmp(const char *text, size_t length)
{
    cleanup(buffer_done) struct buffer input = BUFFER_INIT(HMP_REPLY_BYTES + 4096);
    cleanup(qemu_nodes_done) struct qemu_nodes nodes = {0};
    struct error error;
    int r = buffer_append(&input, text, length);

    return r < 0 ? r : hmp_read_blocks(buffer_text(&input), false, &nodes, &error);
}

static int read_return(const cJSON *value)
{
    cleanup(qemu_report_done) struct qemu_report report = {.sets_known = false};
    struct error error;
    int r = qemu_report_read_frontends(&report.roots, value, &error);

    if (r == 0)
        r = qemu_report_read_nodes(&report.nodes, value, &error);
    return r == 0 ? qemu_report_read_sets(&report, value, &error) : r;
}

static int read_sets(const cJSON *value)
{
    cleanup(qemu_report_done) struct qemu_report report = {.sets_known = false};
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

static int pass_protobuf(const char *text, size_t length)
{
    static const Agent__Status message = AGENT__STATUS__INIT;
    cleanup(buffer_done) struct buffer bytes = BUFFER_INIT(1024);

    (void)text;
    (void)length;
    return proto_append(&bytes, &message.base);
}

/* ---- each allocation of each ----------------------------------------------------------------- */

static bool try_once(parse_function *parse, const char *text, size_t length, long allocation)
{
    long before = live;
    int r;

    has_failed = false;
    allocations_left = allocation;
    r = parse(text, length);
    allocations_left = -1;
    assert_int_equal(live, before);
    if (has_failed)
        assert_true(r != 0);
    return has_failed;
}

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
        long allocation = 0;

        if (name->d_name[0] == '.')
            continue;
        length = read_input(dirfd(names), name->d_name, text, sizeof(text));
        while (try_once(parse, text, length, allocation))
            allocation++;
        failures += allocation;
    }
    print_message("%s: %ld allocations failed\n", corpus, failures);
    assert_true(failures > 0);
}

static void failed_allocation_is_said_and_leaves_nothing(void **state)
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
        {"tests/fuzz/corpus/hmp", parse_hmp},
        {"tests/fuzz/corpus/qmp", parse_qmp},
        {"tests/fuzz/corpus/qmp", parse_qmp_sets},
    };
    static parse_function *const messages[] = {pass_response, pass_drive_call, pass_protobuf};

    (void)state;
#ifdef __SANITIZE_ADDRESS__
    skip();
#endif
    for (size_t i = 0; i < array_length(parsers); i++)
        fail_each(parsers[i].corpus, parsers[i].parse);
    for (size_t i = 0; i < array_length(messages); i++) {
        long allocation = 0;

        while (try_once(messages[i], "payload", 7, allocation))
            allocation++;
        assert_true(allocation > 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_allocation_is_said_and_leaves_nothing),
        cmocka_unit_test(done_accepts_null),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
