/* SPDX-License-Identifier: Apache-2.0 */
/* drive_once.c - the same functions as those of the server, without its loop. */
#include "guest-agent/drive_task.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "agent-client/agent_messages.h"
#include "agent-client/drive_call.h"
#include "agent-client/ttrpc_codec.h"
#include "guest-agent/drive_list.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/encode.h"
#include "lib/path.h"

#define CONTAINERS_NS (5 * NSEC_PER_SEC) /* the interval for containers */

enum { FRAME_BYTES = TTRPC_HEADER_BYTES + AGENT_REPLY_BYTES };

/* One call in progress. */
struct call {
    uint32_t stream;
    struct ttrpc_request request;
    struct buffer payload, answer;
    struct drive_work work;
    struct drive_walk_count walk;
    uint64_t flush_ns;
    bool stays; /* after the response */
    struct error error;
};

static enum status_code run_work(struct call *call, uint64_t timeout_ms,
                                 union drive_answer *ret_answer)
{
    call->work.walk = &call->walk;
    call->work.deadline_ns = clock_boottime() + timeout_ms * NSEC_PER_MSEC;
    return drive_work_run(&call->work, true, ret_answer, &call->error);
}

static enum status_code check_answer(struct call *call, int r)
{
    return r < 0 ? drive_refuse_errno(&call->error, STATUS_RESOURCE_EXHAUSTED, r,
                                      "cannot make the answer")
                 : STATUS_OK;
}

static enum status_code answer_work(struct call *call)
{
    const struct drive_mount_request *mount = &call->work.mount;
    union drive_answer answer = {0};
    enum status_code code =
        drive_work_parse(call->request.method, &call->payload, &call->work, &call->error);

    if (code == STATUS_OK)
        code = run_work(call, drive_work_timeout_ms(&call->work), &answer);
    if (code != STATUS_OK)
        return code;
    if (!call->work.unmounts) {
        if (mount->read_only)
            call->flush_ns = 0;
        call->stays = call->flush_ns || mount->containers.count;
    }
    return check_answer(call, drive_work_append_answer(&call->work, &answer, &call->answer));
}

static enum status_code answer_list(struct call *call)
{
    cleanup(drive_guest_list_done) struct drive_guest_list list = {0};
    bool without_disks = false;
    int r = drive_parse(buffer_text(&call->payload), call->payload.length, DRIVE_LIST_REQUEST,
                        &without_disks, NULL);

    if (r < 0)
        return drive_refuse(&call->error, STATUS_INVALID_ARGUMENT, "the request is malformed");
    if (!without_disks)
        r = drive_list_read(&list);
    if (r < 0)
        return drive_refuse_errno(&call->error, STATUS_UNAVAILABLE, r, "cannot list the drives");
    return check_answer(call, drive_append_list(&call->answer, &list));
}

static int print(const struct call *call, enum status_code code, int output)
{
    cleanup(buffer_done) struct buffer frame = BUFFER_INIT(FRAME_BYTES);
    cleanup(freep) char *line = NULL;
    struct ttrpc_status status = {.code = (int)code};
    size_t length;
    int r;

    (void)snprintf(status.message, sizeof(status.message), "%.*s", TTRPC_MESSAGE_BYTES - 1,
                   code == STATUS_OK ? "" : call->error.text);
    r = ttrpc_append_response(&frame, call->stream, &status, buffer_text(&call->answer),
                              code == STATUS_OK ? call->answer.length : 0);
    if (r < 0)
        return r;
    length = BASE64URL_ENCODED_LENGTH(frame.length);
    line = malloc(length + 2);
    if (!line)
        return -ENOMEM;
    base64url_encode(frame.data, frame.length, line);
    if (call->stays)
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
static _Noreturn void stay(struct call *call)
{
    const struct drive_mount_request *mount = &call->work.mount;
    bool has_containers = mount->containers.count > 0;
    uint64_t pause_ns = has_containers && (!call->flush_ns || call->flush_ns > CONTAINERS_NS)
                            ? CONTAINERS_NS
                            : call->flush_ns;
    const struct timespec pause = {(time_t)(pause_ns / NSEC_PER_SEC),
                                   (long)(pause_ns % NSEC_PER_SEC)};
    union drive_answer ignored;

    for (;;) {
        (void)nanosleep(&pause, NULL);
        if (has_containers)
            (void)run_work(call, 0, &ignored);
        if (call->flush_ns)
            sync_drive(mount->vm_path);
    }
}

/* Whether it is a call of a drive. */
static bool read_call(const char *text, struct call *call)
{
    size_t chars = strlen(text), size = chars / 4 * 3 + 1, length;
    cleanup(freep) char *bytes = malloc(size);
    struct ttrpc_frame frame;

    if (!bytes || base64url_decode(text, chars, bytes, size, &length) < 0 ||
        ttrpc_next_frame(bytes, length, AGENT_REPLY_BYTES, &frame) != TTRPC_FRAME ||
        ttrpc_parse_request(&frame, &call->request, &call->payload) < 0)
        return false;
    call->stream = frame.header.stream;
    return strcmp(call->request.service, DRIVE_SERVICE) == 0;
}

static int run(struct call *call, int output)
{
    const char *method = call->request.method;
    enum status_code code;
    int r;

    if (strcmp(method, DRIVE_METHOD_MOUNT) == 0 || strcmp(method, DRIVE_METHOD_UNMOUNT) == 0)
        code = answer_work(call);
    else if (strcmp(method, DRIVE_METHOD_LIST) == 0)
        code = answer_list(call);
    else
        return DRIVE_ONCE_USAGE;
    call->stays = call->stays && code == STATUS_OK;
    r = print(call, code, output);
    if (r < 0)
        return r;
    if (call->stays)
        stay(call);
    return code == STATUS_OK ? DRIVE_ONCE_DONE : DRIVE_ONCE_REFUSED;
}

int drive_once_run(const char *text, uint64_t flush_ns, int output, struct error *error)
{
    cleanup(freep) struct call *call = calloc(1, sizeof(*call));
    int r = DRIVE_ONCE_USAGE;

    if (!call)
        return error_set_errno(error, -ENOMEM, "cannot read the call");
    buffer_init(&call->payload, FRAME_BYTES);
    buffer_init(&call->answer, FRAME_BYTES);
    call->flush_ns = flush_ns;
    if (read_call(text, call))
        r = run(call, output);
    buffer_done(&call->payload);
    buffer_done(&call->answer);
    return r < 0 ? error_set_errno(error, r, "cannot write the response") : r;
}
