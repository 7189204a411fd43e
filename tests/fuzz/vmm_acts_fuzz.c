/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_acts_fuzz.c - whole acts with a Cloud Hypervisor and a Firecracker, which answer what the
 * input says.
 *
 * The first byte chooses the act. Then there is an answer to each request, up to a NUL: its first
 * byte is the status ('2', '4', '5', 'f' for 503, anything else: no answer), the rest the body. The
 * disk is a file that every machine has, and that the fuzzer, as the VMM, has open.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/http_exchange.h"
#include "lib/text.h"

static const char disk_path[] = "/etc/passwd";
static struct stat disk;
static const uint8_t *script, *script_end;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static unsigned status_of(uint8_t byte)
{
    return byte == '2' ? 200 : byte == '4' ? 404 : byte == '5' ? 500 : byte == 'f' ? 503 : 0;
}

/* Stands before the real one. What goes into a request line or a header is one word. */
enum http_exchange_end http_exchange_perform(const struct http_exchange_request *request,
                                             uint64_t until_ns, unsigned *ret_status,
                                             struct buffer *ret_body, struct error *error)
{
    const uint8_t *answer = script, *end;
    size_t length;

    (void)until_ns;
    must(request->target[0] == '/' && !strpbrk(request->target, " \r\n\t"));
    must(!request->body || text_is_utf8(request->body, strlen(request->body)));
    *ret_status = answer < script_end ? status_of(*answer) : 0;
    if (!*ret_status)
        return (enum http_exchange_end)error_set(error, HTTP_EXCHANGE_TIMEOUT, "no answer in time");
    end = memchr(answer, 0, (size_t)(script_end - answer));
    script = end ? end + 1 : script_end;
    buffer_done(ret_body);
    buffer_init(ret_body, request->body_limit);
    length = (size_t)((end ? end : script_end) - answer - 1);
    must(!length || buffer_append(ret_body, answer + 1, length) == 0);
    return HTTP_EXCHANGE_ANSWERED;
}

static void expect_text(bool is_done, const char *text)
{
    must(is_done == !text[0]);
    must(text_is_utf8(text, strlen(text)) && !strpbrk(text, "\n\r\x1b"));
}

static void call(vmm_act *act, enum hypervisor_act wanted, const char *drive_id)
{
    const struct hypervisor_request request = {
        .act = wanted,
        .control_socket = "/x",
        .vmm_pid = getpid(),
        .disk = {true, disk.st_dev, disk.st_ino},
        .bytes = 4096,
        .recorded_drive = "d",
        .drive_id = drive_id,
        .path = disk_path,
        .serial = "s",
    };
    struct hypervisor_reply reply = {.bytes = 0};

    act(&request, 1, &reply);
    must(reply.outcome < HYPERVISOR_OUTCOMES && reply.resize < HYPERVISOR_OUTCOMES &&
         reply.state < HYPERVISOR_DRIVE_STATES);
    expect_text(reply.outcome == HYPERVISOR_DONE, reply.error.text);
    must(text_is_utf8(reply.drive_id, strlen(reply.drive_id)));
    must(text_is_utf8(reply.version, strlen(reply.version)));
    for (size_t i = 0; i < reply.entry_count; i++) {
        const char *id = reply.entries[i].drive_id;

        must(*id && strlen(id) < HYPERVISOR_DRIVE_ID_BYTES && !strpbrk(id, " /\"\\\n"));
    }
    free((void *)(uintptr_t)reply.entries);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct {
        enum hypervisor_act act;
        const char *drive_id;
    } acts[] = {
        {HYPERVISOR_QUERY, NULL},   {HYPERVISOR_RESIZE, NULL},  {HYPERVISOR_DESCRIBE, NULL},
        {HYPERVISOR_ATTACH, "d-1"}, {HYPERVISOR_DETACH, "d-1"}, {HYPERVISOR_LIMIT, "d-1"},
        {HYPERVISOR_RESIZE, "d-1"}, {HYPERVISOR_QUERY, "d-1"},  {HYPERVISOR_LIST, NULL},
    };
    unsigned choice = size ? *data : 0;
    bool is_firecracker = choice & 1;

    if (!disk.st_ino)
        must(open(disk_path, O_RDONLY | O_CLOEXEC) >= 0 && stat(disk_path, &disk) == 0);
    if (!size)
        return 0;
    script = data + 1;
    script_end = data + size;
    choice = choice / 2 % array_length(acts);
    call(is_firecracker ? firecracker_act : cloud_hypervisor_act, acts[choice].act,
         acts[choice].drive_id);
    return 0;
}
