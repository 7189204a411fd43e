/* SPDX-License-Identifier: Apache-2.0 */
/* http2_session_test.c - requests, their replies, and how either may end. */
#include "tests/unit/api/http2_conversation.h"

static void a_request_has_its_reply(void **state)
{
    struct conversation *talk = *state;
    const struct http2_request *request;

    talk->bytewise = true;
    talk->send = "0123456789";
    talk->send_length = 10;
    ask(talk, NULL);
    pump(talk);
    assert_true(http2_session_has_begun(talk->server));
    assert_int_equal(talk->given, 1);
    request = talk->request[0];
    assert_int_equal(request->fault, HTTP2_FINE);
    assert_true(request->complete);
    assert_string_equal(request->method, "POST");
    assert_string_equal(request->path, "/a.b/C");
    assert_string_equal(request->content_type, "t");
    assert_string_equal(request->timeout, "5S");
    assert_string_equal(request->encoding, "id");
    assert_int_equal(request->body.length, 10);
    assert_memory_equal(request->body.data, "0123456789", 10);

    reply_ok(talk->request[0]);
    pump(talk);
    assert_string_equal(buffer_text(&talk->fields),
                        ":status=200\ncontent-type=text\ngrpc-status=0\n");
    assert_string_equal(buffer_text(&talk->body), "reply");
    assert_int_equal(talk->ended, 1);
    assert_int_equal(talk->reset, 0);
    assert_int_not_equal(http2_session_idle_since(talk->server), HTTP2_BUSY);
    assert_false(http2_session_is_over(talk->server));
}

static void fields_alone_end_the_stream(void **state)
{
    static const struct http2_field fields[] = {{"grpc-status", "12"}, {"grpc-message", "no"}};
    struct conversation *talk = *state;

    ask(talk, NULL);
    pump(talk);
    http2_reply(talk->request[0], "200", fields, array_length(fields), NULL, NULL);
    pump(talk);
    assert_string_equal(buffer_text(&talk->fields),
                        ":status=200\ngrpc-status=12\ngrpc-message=no\n");
    assert_int_equal(talk->body.length, 0);
    assert_int_equal(talk->ended, 1);
}

static void a_reset_cancels(void **state)
{
    struct conversation *talk = *state;
    int32_t stream = ask(talk, NULL);

    pump(talk);
    assert_int_equal(talk->given, 1);
    assert_int_equal(
        nghttp2_submit_rst_stream(talk->client, NGHTTP2_FLAG_NONE, stream, NGHTTP2_CANCEL), 0);
    pump(talk);
    assert_int_equal(talk->cancelled, 1);
    assert_int_not_equal(http2_session_idle_since(talk->server), HTTP2_BUSY);
    assert_false(http2_session_is_over(talk->server));
}

static void the_end_cancels(void **state)
{
    struct conversation *talk = *state;

    ask(talk, NULL);
    talk->send_on = true; /* not complete, so never given */
    ask(talk, NULL);
    pump(talk);
    talk->server = http2_session_free(talk->server);
    assert_int_equal(talk->cancelled, 1);
}

/* Not even a client whose window lets no reply through takes room from others. */
static void a_reply_that_is_not_taken_is_waited_for_by_nobody(void **state)
{
    const nghttp2_settings_entry window = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 0};
    static const char bytes[HTTP2_OWN_BYTES + 10];
    struct conversation *talk = *state;
    uint64_t before;

    assert_int_equal(nghttp2_submit_settings(talk->client, NGHTTP2_FLAG_NONE, &window, 1), 0);
    talk->send = bytes;
    talk->send_length = sizeof(bytes);
    ask(talk, NULL);
    pump(talk);
    assert_int_equal(http2_session_idle_since(talk->server), HTTP2_BUSY);
    assert_int_equal(talk->room.used, 10);
    before = clock_boottime();
    reply_ok(talk->request[0]);
    pump(talk);
    assert_int_equal(talk->ended, 0);
    assert_int_equal(talk->body.length, 0);
    assert_int_equal(talk->room.used, 0);
    assert_in_range(http2_session_idle_since(talk->server), before, clock_boottime());
}

static void a_client_just_served_is_not_idle(void **state)
{
    struct conversation *talk = *state;
    uint64_t before;

    talk->reply = true;
    pump(talk);
    before = clock_boottime();
    assert_in_range(http2_session_idle_since(talk->server), 0, before);
    ask(talk, NULL);
    pump(talk);
    assert_in_range(http2_session_idle_since(talk->server), before, clock_boottime());
}

static void calls_in_flight_at_the_end_are_answered(void **state)
{
    struct conversation *talk = *state;

    ask(talk, NULL);
    pump(talk);
    http2_session_shut_down(talk->server);
    pump(talk);
    assert_true(talk->goaway);
    assert_int_equal(talk->goaway_code, NGHTTP2_NO_ERROR);
    assert_false(http2_session_is_over(talk->server));
    reply_ok(talk->request[0]);
    pump(talk);
    assert_int_equal(talk->ended, 1);
    assert_true(http2_session_is_over(talk->server));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_request_has_its_reply),
        TEST(fields_alone_end_the_stream),
        TEST(a_reset_cancels),
        TEST(the_end_cancels),
        TEST(a_reply_that_is_not_taken_is_waited_for_by_nobody),
        TEST(a_client_just_served_is_not_idle),
        TEST(calls_in_flight_at_the_end_are_answered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
