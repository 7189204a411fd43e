/* SPDX-License-Identifier: Apache-2.0 */
/* ttrpc_codec_test.c - frames at every split and bound, the envelope against bytes seen on the
 * wire, and finding one's own reply behind what somebody else left. */
#include "tests/unit/test.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent-client/ttrpc_codec.h"

enum { STREAM = 0x12345679, LIMIT = 64 * 1024 };

static const struct ttrpc_request resize = {
    .service = "grpc.AgentService",
    .method = "ResizeVolume",
    .timeout_ns = UINT64_C(5000000000),
};

static bool random_fails;

ssize_t getrandom(void *bytes, size_t size, unsigned flags)
{
    assert_int_equal(flags, 0);
    if (random_fails) {
        errno = ENOSYS;
        return -1;
    }
    memset(bytes, 0xff, size);
    return (ssize_t)size;
}

static void a_stream_has_a_random_odd_number(void **state)
{
    uint32_t stream = 0;

    assert_int_equal(ttrpc_random_stream(&stream), 0);
    assert_int_equal(stream, 0x7fffffff);
    random_fails = true;
    assert_int_equal(ttrpc_random_stream(&stream), -ENOSYS);
    random_fails = false;
}

static void headers_survive_the_round_trip(void **state)
{
    static const uint8_t bytes[] = {0, 0, 0, 0x2c, 0, 0, 0, 1, 1, 0};
    struct ttrpc_header header = {.length = 0x2c, .stream = 1, .type = TTRPC_REQUEST};
    uint8_t encoded[TTRPC_HEADER_BYTES];
    struct ttrpc_frame frame = {0};

    ttrpc_encode_header(&header, encoded);
    assert_memory_equal(encoded, bytes, sizeof(bytes));
    assert_int_equal(ttrpc_next_frame(bytes, sizeof(bytes), 0x2b, &frame), TTRPC_OVERSIZE);
    assert_int_equal(frame.header.length, 0x2c);
    assert_int_equal(frame.header.stream, 1);
}

static void a_request_has_the_bytes_of_the_protocol(void **state)
{
    /* As containerd/ttrpc's client writes it. */
    static const uint8_t bytes[] = "\x00\x00\x00\x24\x00\x00\x00\x01\x01\x00"
                                   "\x0a\x10vmshare.v1.Agent\x12\x04"
                                   "Echo\x1a\x04\x0a\x02hi\x20\x80\xe4\x97\xd0\x12";
    struct ttrpc_request request = {
        .service = "vmshare.v1.Agent", .method = "Echo", .timeout_ns = UINT64_C(5000000000)};
    struct buffer frames = BUFFER_INIT(0);

    assert_int_equal(ttrpc_append_request(&frames, 1, &request, "\x0a\x02hi", 4), 0);
    assert_int_equal(frames.length, sizeof(bytes) - 1);
    assert_memory_equal(frames.data, bytes, sizeof(bytes) - 1);
    buffer_done(&frames);
}

static void a_frame_is_found_only_when_it_is_complete(void **state)
{
    struct buffer frames = BUFFER_INIT(0), payload = BUFFER_INIT(0);
    struct ttrpc_request request;
    struct ttrpc_frame frame;

    assert_int_equal(ttrpc_append_request(&frames, STREAM, &resize, "abc", 3), 0);
    for (size_t length = 0; length < frames.length; length++) {
        uint8_t *exact = malloc(length + 1); /* lets the sanitizer see a read beyond */

        assert_non_null(exact);
        memcpy(exact, frames.data, length);
        assert_int_equal(ttrpc_next_frame(exact, length, LIMIT, &frame), TTRPC_MORE);
        free(exact);
    }
    assert_int_equal(ttrpc_next_frame(frames.data, frames.length, LIMIT, &frame), TTRPC_FRAME);
    assert_int_equal(frame.size, frames.length);
    assert_int_equal(ttrpc_parse_request(&frame, &request, &payload), 0);
    assert_string_equal(request.service, resize.service);
    assert_string_equal(request.method, resize.method);
    assert_int_equal(request.timeout_ns, resize.timeout_ns);
    assert_string_equal(buffer_text(&payload), "abc");
    buffer_done(&frames);
    buffer_done(&payload);
}

static void lengths_have_bounds(void **state)
{
    struct ttrpc_header header = {.length = TTRPC_DATA_BYTES + 1, .type = TTRPC_RESPONSE};
    uint8_t bytes[TTRPC_HEADER_BYTES];
    struct buffer frames = BUFFER_INIT(0);
    struct ttrpc_frame frame;
    char *large = calloc(1, TTRPC_DATA_BYTES);

    assert_non_null(large);
    ttrpc_encode_header(&header, bytes);
    assert_int_equal(ttrpc_next_frame(bytes, sizeof(bytes), TTRPC_DATA_BYTES, &frame),
                     TTRPC_OVERSIZE);
    header.length = TTRPC_DATA_BYTES;
    ttrpc_encode_header(&header, bytes);
    assert_int_equal(ttrpc_next_frame(bytes, sizeof(bytes), TTRPC_DATA_BYTES, &frame), TTRPC_MORE);
    bytes[0] = 1;
    assert_int_equal(ttrpc_next_frame(bytes, 1, TTRPC_DATA_BYTES, &frame), TTRPC_NONSENSE);
    assert_int_equal(ttrpc_append_request(&frames, 1, &resize, large, TTRPC_DATA_BYTES), -EMSGSIZE);
    assert_int_equal(frames.length, 0);
    free(large);
    buffer_done(&frames);
}

static void parse(const void *bytes, size_t length, int result, struct ttrpc_status *ret_status)
{
    struct ttrpc_frame frame = {.header = {.length = (uint32_t)length}, .data = bytes};
    struct buffer payload = BUFFER_INIT(0);

    assert_int_equal(ttrpc_parse_response(&frame, ret_status, &payload), result);
    buffer_done(&payload);
}

static void success_has_three_spellings(void **state)
{
    struct ttrpc_status status = {.code = 99};

    parse("", 0, 0, &status);
    assert_int_equal(status.code, STATUS_OK);
    status.code = 99;
    parse("\x0a\x00", 2, 0, &status); /* a status that is empty, as ttrpc-rust may send it */
    assert_int_equal(status.code, STATUS_OK);
    status.code = 99;
    parse("\x0a\x02\x08\x00", 4, 0, &status);
    assert_int_equal(status.code, STATUS_OK);
}

static void an_error_keeps_code_and_message(void **state)
{
    struct ttrpc_status status;

    parse("\x0a\x0e\x08\x09\x12\x0ano such fs", 16, 0, &status);
    assert_int_equal(status.code, STATUS_FAILED_PRECONDITION);
    assert_string_equal(status.message, "no such fs");
    parse("\x0a\x0b\x08\x8f\xff\xff\xff\xff\xff\xff\xff\xff\x01", 13, 0, &status);
    assert_int_equal(status.code, -113);
    parse("\xff", 1, -EBADMSG, &status);
    parse("\x12\x7f", 2, -EBADMSG, &status);
}

static void responses_come_back_as_they_were_sent(void **state)
{
    struct ttrpc_status sent = {.code = STATUS_INTERNAL, .message = "why"}, received;
    struct buffer frames = BUFFER_INIT(0), payload = BUFFER_INIT(0);
    struct ttrpc_frame frame;

    assert_int_equal(ttrpc_append_response(&frames, 7, &sent, "x", 1), 0);
    assert_int_equal(ttrpc_next_frame(frames.data, frames.length, LIMIT, &frame), TTRPC_FRAME);
    assert_int_equal(ttrpc_parse_response(&frame, &received, &payload), 0);
    assert_int_equal(received.code, STATUS_INTERNAL);
    assert_string_equal(received.message, "why");
    assert_string_equal(buffer_text(&payload), "x");
    buffer_clear(&frames);
    sent.code = STATUS_OK;
    assert_int_equal(ttrpc_append_response(&frames, 7, &sent, NULL, 0), 0);
    assert_int_equal(frames.length, TTRPC_HEADER_BYTES);
    buffer_done(&frames);
    buffer_done(&payload);
}

static void names_that_do_not_fit_are_refused(void **state)
{
    struct ttrpc_request request = {.method = "\x01"}, parsed;
    struct buffer frames = BUFFER_INIT(0), payload = BUFFER_INIT(0);
    struct ttrpc_frame frame;

    memset(request.service, 'a', sizeof(request.service) - 1);
    assert_int_equal(ttrpc_append_request(&frames, 1, &request, NULL, 0), 0);
    assert_int_equal(ttrpc_next_frame(frames.data, frames.length, LIMIT, &frame), TTRPC_FRAME);
    assert_int_equal(ttrpc_parse_request(&frame, &parsed, &payload), 0);
    assert_string_equal(parsed.service, request.service);
    frame.data = "\x0a\x03g\0x\x12\x01m";
    frame.header.length = 8;
    assert_int_equal(ttrpc_parse_request(&frame, &parsed, &payload), 0);
    assert_string_equal(parsed.service, "");
    assert_string_equal(parsed.method, "m");
    buffer_done(&frames);
    buffer_done(&payload);
}

static void append_reply(struct buffer *frames, uint32_t stream, const char *message)
{
    struct ttrpc_status status = {.code = STATUS_INTERNAL};

    strcpy(status.message, message);
    assert_int_equal(ttrpc_append_response(frames, stream, &status, NULL, 0), 0);
}

/* Feeds it byte by byte, dropping what can be dropped, as a client does. */
static void find_bytewise(const struct buffer *sent, size_t from, const char *message)
{
    struct buffer received = BUFFER_INIT(0), payload = BUFFER_INIT(0);
    struct ttrpc_status status;
    struct ttrpc_frame frame;
    int r = TTRPC_MORE;

    for (size_t i = from; i < sent->length && r == TTRPC_MORE; i++) {
        size_t skipped = SIZE_MAX;

        assert_int_equal(buffer_append(&received, sent->data + i, 1), 0);
        r = ttrpc_find_response(received.data, received.length, STREAM, LIMIT, &skipped, &frame);
        assert_true(skipped <= received.length);
        if (r == TTRPC_MORE)
            buffer_consume(&received, skipped);
    }
    assert_int_equal(r, TTRPC_FRAME);
    assert_int_equal(ttrpc_parse_response(&frame, &status, &payload), 0);
    assert_string_equal(status.message, message);
    buffer_done(&received);
    buffer_done(&payload);
}

static void the_own_reply_is_found_behind_any_part_of_a_foreign_one(void **state)
{
    struct buffer sent = BUFFER_INIT(0);
    size_t foreign;

    append_reply(&sent, STREAM + 2, "for somebody who died");
    foreign = sent.length;
    append_reply(&sent, STREAM - 2, "for another one");
    append_reply(&sent, STREAM, "mine");
    for (size_t from = 0; from <= foreign; from++)
        find_bytewise(&sent, from, "mine");
    buffer_done(&sent);
}

static void frames_that_only_resemble_the_reply_are_skipped(void **state)
{
    struct buffer sent = BUFFER_INIT(0);
    struct ttrpc_header header = {.stream = STREAM, .type = TTRPC_DATA};
    uint8_t bytes[TTRPC_HEADER_BYTES];

    ttrpc_encode_header(&header, bytes);
    assert_int_equal(buffer_append(&sent, bytes, sizeof(bytes)), 0);
    header.type = TTRPC_RESPONSE;
    header.length = UINT32_C(0xffffff00); /* the id right behind garbage */
    ttrpc_encode_header(&header, bytes);
    assert_int_equal(buffer_append(&sent, bytes, sizeof(bytes)), 0);
    append_reply(&sent, STREAM, "mine");
    find_bytewise(&sent, 0, "mine");
    buffer_done(&sent);
}

static void another_protocol_is_recognised_by_its_first_bytes(void **state)
{
    assert_true(ttrpc_looks_like_header("", 0));
    assert_true(ttrpc_looks_like_header("\0\0", 2));
    assert_true(ttrpc_looks_like_header("\0\0\0\0\0\0\0\1\2\0", 10));
    assert_false(ttrpc_looks_like_header("\0\0\0\0\0\0\0\1\7\0", 10));
    assert_false(ttrpc_looks_like_header("HTTP", 4));
}

static void codes_have_names(void **state)
{
    char text[16];

    assert_string_equal(ttrpc_code_name(7, text), "PERMISSION_DENIED");
    assert_string_equal(ttrpc_code_name(16, text), "UNAUTHENTICATED");
    assert_string_equal(ttrpc_code_name(17, text), "17");
    assert_string_equal(ttrpc_code_name(INT32_MIN, text), "-2147483648");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_has_a_random_odd_number),
        cmocka_unit_test(headers_survive_the_round_trip),
        cmocka_unit_test(a_request_has_the_bytes_of_the_protocol),
        cmocka_unit_test(a_frame_is_found_only_when_it_is_complete),
        cmocka_unit_test(lengths_have_bounds),
        cmocka_unit_test(success_has_three_spellings),
        cmocka_unit_test(an_error_keeps_code_and_message),
        cmocka_unit_test(responses_come_back_as_they_were_sent),
        cmocka_unit_test(names_that_do_not_fit_are_refused),
        cmocka_unit_test(the_own_reply_is_found_behind_any_part_of_a_foreign_one),
        cmocka_unit_test(frames_that_only_resemble_the_reply_are_skipped),
        cmocka_unit_test(another_protocol_is_recognised_by_its_first_bytes),
        cmocka_unit_test(codes_have_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
