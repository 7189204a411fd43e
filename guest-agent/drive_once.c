/* SPDX-License-Identifier: Apache-2.0 */
/* drive_once.c - the same functions as those of the server, without its loop. */
#include "guest-agent/guest_drive.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/encode.h"
#include "lib/path.h"

#define CONTAINERS_NS (5 * NSEC_PER_SEC) /* the interval for containers */

enum { FRAME_BYTES = TTRPC_HEADER_BYTES + AGENT_REPLY_BYTES };

static enum status_code run_call(struct drive_call *call, uint64_t timeout_ms,
                                 struct buffer *payload, struct error *error)
{
    struct drive_walk_count walk;

    call->setting.in_container = true;
    call->setting.deadline_ns = clock_boottime() + timeout_ms * NSEC_PER_MSEC;
    return drive_call_run(call, &walk, payload, error);
}

/* Prints the response. 0 or -errno. */
static int print(uint32_t stream, enum status_code code, const char *text,
                 const struct buffer *answer, bool stays, int output)
{
    cleanup(buffer_done) struct buffer frame = BUFFER_INIT(FRAME_BYTES);
    cleanup(freep) char *line = NULL;
    struct ttrpc_status status = {.code = (int)code};
    size_t length;
    int r;

    if (code != STATUS_OK)
        (void)snprintf(status.message, sizeof(status.message), "%.*s", TTRPC_MESSAGE_BYTES - 1,
                       text);
    r = ttrpc_append_response(&frame, stream, &status, buffer_text(answer),
                              code == STATUS_OK ? answer->length : 0);
    if (r < 0)
        return r;
    length = BASE64URL_ENCODED_LENGTH(frame.length);
    line = malloc(length + 2);
    if (!line)
        return -ENOMEM;
    base64url_encode(frame.data, frame.length, line);
    if (stays)
        line[length++] = '\n';
    return path_write(output, line, length);
}

static void sync_drive(const char *vm_path)
{
    cleanup(fd_closep) int fd = open(vm_path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0)
        (void)syncfs(fd);
}

/* Until it is killed. */
static _Noreturn void stay(struct drive_call *call, uint64_t flush_ns)
{
    bool has_containers = call->mount.containers.count > 0;
    uint64_t pause_ns =
        has_containers && (!flush_ns || flush_ns > CONTAINERS_NS) ? CONTAINERS_NS : flush_ns;
    const struct timespec pause = {(time_t)(pause_ns / NSEC_PER_SEC),
                                   (long)(pause_ns % NSEC_PER_SEC)};
    struct buffer ignored = BUFFER_INIT(FRAME_BYTES);
    struct error error;

    for (;;) {
        (void)nanosleep(&pause, NULL);
        if (has_containers)
            (void)run_call(call, 0, &ignored, &error);
        buffer_clear(&ignored);
        if (flush_ns)
            sync_drive(call->mount.vm_path);
    }
}

/* Whether it is a request of the drives' service. */
static bool read_request(const char *text, uint32_t *ret_stream, struct ttrpc_request *ret_request,
                         struct buffer *ret_payload)
{
    size_t chars = strlen(text), size = chars / 4 * 3 + 1, length;
    cleanup(freep) char *bytes = malloc(size);
    struct ttrpc_frame frame;

    if (!bytes || base64url_decode(text, chars, bytes, size, &length) < 0 ||
        ttrpc_next_frame(bytes, length, AGENT_REPLY_BYTES, &frame) != TTRPC_FRAME ||
        ttrpc_parse_request(&frame, ret_request, ret_payload) < 0)
        return false;
    *ret_stream = frame.header.stream;
    return strcmp(ret_request->service, DRIVE_SERVICE) == 0;
}

int drive_once_run(const char *text, uint64_t flush_ns, int output, struct error *error)
{
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(FRAME_BYTES);
    cleanup(buffer_done) struct buffer answer = BUFFER_INIT(FRAME_BYTES);
    cleanup(freep) struct drive_call *call = malloc(sizeof(*call));
    struct ttrpc_request request;
    struct error reason = {0};
    enum status_code code;
    bool stays = false;
    uint32_t stream;
    int r;

    if (!call)
        return error_set_errno(error, -ENOMEM, "cannot read the call");
    if (!read_request(text, &stream, &request, &payload))
        return DRIVE_ONCE_USAGE;
    code = drive_call_parse(request.method, &payload, call, &reason);
    if (code == STATUS_UNIMPLEMENTED)
        return DRIVE_ONCE_USAGE;
    if (code == STATUS_OK)
        code = run_call(call, drive_call_timeout_ms(call), &answer, &reason);
    if (code == STATUS_OK && call->kind == DRIVE_CALL_MOUNT) {
        if (call->mount.read_only)
            flush_ns = 0;
        stays = flush_ns || call->mount.containers.count;
    }
    r = print(stream, code, reason.text, &answer, stays, output);
    if (r < 0)
        return error_set_errno(error, r, "cannot write the response");
    if (stays)
        stay(call, flush_ns);
    return code == STATUS_OK ? DRIVE_ONCE_DONE : DRIVE_ONCE_REFUSED;
}
