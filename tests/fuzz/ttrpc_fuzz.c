/* SPDX-License-Identifier: Apache-2.0 */
/* ttrpc_fuzz.c - a stream of frames from a guest or from the host, whatever it contains.
 *
 * Beyond memory safety: a frame that is found lies within what came, walking always moves on, and
 * a reply is found at the same place however the stream was split.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_client.h"
#include "agent-client/agent_messages.h"
#include "agent-client/container_run.h"
#include "agent-client/drive_call.h"
#include "agent-client/ttrpc_codec.h"

enum { STREAM = 3, LIMIT = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static void take_container_payload(const struct buffer *payload)
{
    struct buffer output = BUFFER_INIT(LIMIT / 2);
    bool end;
    int status;

    (void)container_parse_wait(buffer_text(payload), payload->length, &status);
    (void)container_parse_read(buffer_text(payload), payload->length, true, &output, &end);
    must(output.length <= LIMIT / 2);
    buffer_done(&output);
}

/* Whatever a status says, a call that failed is never taken for one that did not. */
static void take_status(const struct ttrpc_status *status)
{
    must((agent_outcome_from_status(status->code, status->message) == AGENT_DONE) ==
         (status->code == 0));
}

/* What was taken for a request has a form that a second reading accepts. */
static void take_mount_request(const struct drive_mount_request *request)
{
    struct buffer again = BUFFER_INIT(0);
    struct drive_mount_request copy;
    const char *wrong;

    must(drive_append(&again, DRIVE_MOUNT_REQUEST, request) == 0);
    must(drive_parse(buffer_text(&again), again.length, DRIVE_MOUNT_REQUEST, &copy, &wrong) == 0);
    must(strcmp(copy.vm_path, request->vm_path) == 0 && copy.option_count == request->option_count);
    must(memcmp(&copy.containers, &request->containers, sizeof(copy.containers)) == 0);
    buffer_done(&again);
}

static void take_drive_payload(const struct buffer *payload)
{
    const char *bytes = buffer_text(payload), *wrong;
    struct drive_mount_request request;
    struct drive_unmount_request unmount;
    struct drive_mount_answer answer;
    struct drive_unmount_answer unmounted;
    struct drive_guest_list list;
    bool without_disks;

    (void)drive_parse(bytes, payload->length, DRIVE_LIST_REQUEST, &without_disks, NULL);
    if (drive_parse(bytes, payload->length, DRIVE_MOUNT_REQUEST, &request, &wrong) == 0)
        take_mount_request(&request);
    (void)drive_parse(bytes, payload->length, DRIVE_UNMOUNT_REQUEST, &unmount, &wrong);
    (void)drive_parse(bytes, payload->length, DRIVE_MOUNT_ANSWER, &answer, NULL);
    (void)drive_parse(bytes, payload->length, DRIVE_UNMOUNT_ANSWER, &unmounted, NULL);
    if (drive_parse_list(bytes, payload->length, &list) == 0)
        drive_guest_list_done(&list);
}

static void take_payload(const struct buffer *payload)
{
    char path[AGENT_PATH_BYTES];
    struct agent_stats stats;
    uint64_t bytes;

    (void)agent_parse_request(buffer_text(payload), payload->length, path, &bytes);
    (void)agent_parse_stats(buffer_text(payload), payload->length, &stats);
    take_container_payload(payload);
    take_drive_payload(payload);
}

static void take_frame(const struct ttrpc_frame *frame)
{
    struct buffer payload = BUFFER_INIT(LIMIT);
    struct ttrpc_request request;
    struct ttrpc_status status;

    if (ttrpc_parse_request(frame, &request, &payload) == 0)
        take_payload(&payload);
    buffer_clear(&payload);
    if (ttrpc_parse_response(frame, &status, &payload) == 0) {
        take_status(&status);
        take_payload(&payload);
    }
    buffer_done(&payload);
}

static void walk(const uint8_t *data, size_t size)
{
    struct ttrpc_frame frame;
    size_t at = 0;

    while (ttrpc_next_frame(data + at, size - at, LIMIT, &frame) == TTRPC_FRAME) {
        must(frame.size >= TTRPC_HEADER_BYTES && frame.size <= size - at);
        take_frame(&frame);
        at += frame.size;
    }
}

/* Where the reply stands when the stream comes in pieces of so many bytes; size: nowhere. */
static size_t find(const uint8_t *data, size_t size, size_t piece)
{
    size_t start = 0;

    for (size_t end = 0; end < size;) {
        struct ttrpc_frame frame;
        size_t skipped;
        int r;

        end = size - end < piece ? size : end + piece;
        r = ttrpc_find_response(data + start, end - start, STREAM, LIMIT, &skipped, &frame);
        must(skipped <= end - start);
        start += skipped;
        if (r == TTRPC_FRAME || r == TTRPC_OVERSIZE)
            return start;
    }
    return size;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    walk(data, size);
    must(find(data, size, 1) == find(data, size, size + 1));
    must(find(data, size, 7) == find(data, size, size + 1));
    return 0;
}
