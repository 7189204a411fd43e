/* SPDX-License-Identifier: Apache-2.0 */
/* kubernetes_events_test.c - rows of the journal become requests to an API server that answers when
 * the test says so, on clocks that go on when the test says so. */
#include "tests/unit/reconciler/fake_call.h"
#include "tests/unit/reconciler/surroundings.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "reconciler/kubernetes/kubernetes_events.h"

/* ---- clocks, before libc's ---- */

static int64_t later_seconds;

/* The boot's stands still, so that nothing depends on how quick the machine is; the loop's, which
 * has to go on, jumps with it. */
int clock_gettime(clockid_t clock, struct timespec *ret_time)
{
    int r = 0;

    if (clock == CLOCK_BOOTTIME)
        *ret_time = (struct timespec){.tv_sec = 1000000};
    else
        r = (int)syscall(SYS_clock_gettime, clock, ret_time);
    if (clock == CLOCK_BOOTTIME || clock == CLOCK_MONOTONIC)
        ret_time->tv_sec += later_seconds;
    return r;
}

/* ---- the API server, in place of api_post.c ---- */

enum { BODY_BYTES = 8 * 1024, TEXT_BYTES = 256 };

struct api_post {
    api_post_done *done;
    void *userdata;
    char token[TEXT_BYTES], body[BODY_BYTES];
};

static struct api_post *request; /* the one that waits for its answer */
static bool no_memory;

int api_post_new(const struct service_account *account, const char *token, const char *target,
                 const char *body, api_post_done *done, void *userdata, struct api_post **ret_post)
{
    if (no_memory)
        return -ENOMEM;
    assert_null(request); /* one at a time */
    *ret_post = request = fake_call_make(sizeof(*request));
    *request = (struct api_post){.done = done, .userdata = userdata};
    (void)snprintf(request->token, TEXT_BYTES, "%s", token);
    (void)snprintf(request->body, BODY_BYTES, "%s", body);
    return 0;
}

FAKE_CALL_FREE(api_post, api_post_free, request)

static void answer(const struct api_answer *given)
{
    assert_non_null(request);
    request->done(request, given, request->userdata);
}

static void answer_status(unsigned status)
{
    static const char body[] = "{\"kind\":\"Status\",\"message\":\"because\"}";

    answer(&(struct api_answer){
        .end = HTTP_EXCHANGE_ANSWERED, .status = status, .body = body, .length = sizeof(body) - 1});
}

/* ---- a node with one volume in one pod ---- */

static struct surroundings node;
static struct kubernetes_events *events;

static void put_token(const char *text)
{
    tree_write("/account/token", text);
}

static int set_up(void **state)
{
    later_seconds = 0;
    no_memory = false;
    surroundings_begin(&node, true);
    loop_timer_stop(&node.watchdog); /* its time would come with the clocks' */
    surroundings_bind(&node);
    assert_int_equal(setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1", 1), 0);
    assert_int_equal(setenv("KUBERNETES_SERVICE_PORT", "443", 1), 0);
    tree_make("/account");
    put_token("first\n");
    node.config.kubernetes.events = true;
    (void)snprintf(node.config.kubernetes.service_account,
                   sizeof(node.config.kubernetes.service_account), "%s/account", scratch);
    events = kubernetes_events_new(&node.context, "node-1");
    assert_non_null(events);
    kubernetes_events_start(events);
    return 0;
}

static int tear_down(void **state)
{
    events = kubernetes_events_free(events);
    assert_null(request);
    surroundings_end(&node);
    return 0;
}

/* Rows that tell of an abnormal file system, each of them something else. Each makes two events:
 * the pod's and the volume's. */
static void report(unsigned first, unsigned count)
{
    char detail[64];

    assert_int_equal(store_begin(node.context.store), 0);
    for (unsigned i = first; i < first + count; i++) {
        (void)snprintf(detail, sizeof(detail), "{\"to\":\"abnormal\",\"message\":\"fault %u\"}", i);
        assert_int_equal(store_journal(node.context.store, "guest_condition_changed",
                                       node.bound.volume_id, NULL, NULL, detail),
                         0);
    }
    assert_int_equal(store_commit(node.context.store), 0);
    kubernetes_events_follow(events);
}

/* So much later, with all that is due by then. */
static void pass_seconds(int64_t seconds)
{
    later_seconds += seconds;
    surroundings_turn(&node, 1);
}

static struct kubernetes_events_counts count(void)
{
    struct kubernetes_events_counts counts;

    kubernetes_events_count(events, &counts);
    return counts;
}

static void expect_about(const char *text)
{
    assert_non_null(request);
    if (!strstr(request->body, text))
        fail_msg("%s is not in %s", text, request->body);
}

/* ---- the tests ---- */

/* An attempt whose answer was lost had created it. */
static void an_event_that_exists_already_counts_as_sent(void **state)
{
    report(1, 1);
    answer_status(409);
    answer_status(409);
    assert_null(request);
    assert_int_equal(count().sent, 2);
}

static void every_other_failure_is_tried_again(void **state)
{
    static const struct {
        enum http_exchange_end end;
        unsigned status;
    } failures[] = {
        {HTTP_EXCHANGE_ANSWERED, 500}, {HTTP_EXCHANGE_ANSWERED, 503}, {HTTP_EXCHANGE_ANSWERED, 401},
        {HTTP_EXCHANGE_ANSWERED, 408}, {HTTP_EXCHANGE_ANSWERED, 429}, {HTTP_EXCHANGE_REFUSED, 0},
        {HTTP_EXCHANGE_UNTRUSTED, 0},  {HTTP_EXCHANGE_CLOSED, 0},     {HTTP_EXCHANGE_TIMEOUT, 0},
        {HTTP_EXCHANGE_OVERFLOW, 0},
    };
    char body[BODY_BYTES];

    report(1, 1);
    (void)snprintf(body, sizeof(body), "%s", request->body);
    for (size_t i = 0; i < array_length(failures); i++) {
        struct api_answer failed = {
            .end = failures[i].end, .status = failures[i].status, .body = ""};

        (void)error_set(&failed.error, 1, "it fails");
        answer(&failed);
        report(100, 0); /* a pass is no reason to try sooner */
        assert_null(request);
        pass_seconds(256);
        assert_string_equal(request->body, body);
    }
    answer_status(201);
    answer_status(201);
    assert_int_equal(count().sent, 2);
    assert_int_equal(count().refused + count().dropped, 0);
}

/* From one second to four minutes, and at least half of each. */
static void pauses_grow(void **state)
{
    report(1, 1);
    for (int64_t pause = 1; pause <= 256; pause *= 2) {
        answer_status(503);
        if (pause >= 8) {
            pass_seconds(pause / 4);
            assert_null(request);
        }
        pass_seconds(pause);
        assert_non_null(request);
    }
}

static void without_a_token_nothing_is_sent(void **state)
{
    put_token(" \n");
    report(1, 1);
    assert_null(request);
    pass_seconds(1);
    assert_null(request);
    put_token("third");
    pass_seconds(2);
    assert_string_equal(request->token, "third");
}

static void a_lack_of_memory_is_tried_again(void **state)
{
    no_memory = true;
    report(1, 1);
    no_memory = false;
    assert_null(request);
    pass_seconds(1);
    expect_about("fault 1");
}

static void after_a_burst_events_have_a_pace(void **state)
{
    unsigned sent = 0;

    report(1, 15);
    for (; request; sent++)
        answer_status(201);
    assert_int_equal(sent, 21); /* the last one of them on credit */
    report(100, 0);
    assert_null(request);
    for (unsigned i = 0; i < 4; i++) {
        pass_seconds(3);
        answer_status(201);
        assert_null(request);
    }
    assert_int_equal(count().sent, sent + 4);
}

static void an_event_that_fails_for_an_hour_is_dropped(void **state)
{
    report(1, 1);
    answer_status(503);
    pass_seconds(3601);
    expect_about("fault 1");
    answer_status(503);
    assert_int_equal(count().dropped, 1);
    pass_seconds(256);
    assert_null(request); /* the volume's has waited as long */
    assert_int_equal(count().dropped, 2);
    report(2, 1);
    expect_about("fault 2");
}

/* The loop is served in between. */
static void many_rows_are_read_in_pieces(void **state)
{
    assert_int_equal(store_begin(node.context.store), 0);
    for (unsigned i = 0; i < 1000; i++)
        assert_int_equal(store_journal(node.context.store, "device_grown", node.bound.volume_id,
                                       NULL, NULL, "{}"),
                         0);
    assert_int_equal(store_commit(node.context.store), 0);
    report(1, 1);
    assert_null(request);
    for (unsigned i = 0; i < 1000 && !request; i++)
        surroundings_turn(&node, 1);
    expect_about("fault 1");
}

static void nothing_is_sent_while_events_are_off(void **state)
{
    report(1, 1);
    assert_non_null(request);
    node.config.kubernetes.events = false;
    kubernetes_events_configure(events);
    assert_null(request);
    report(2, 1);
    assert_null(request);
    node.config.kubernetes.events = true;
    kubernetes_events_configure(events);
    report(3, 1);
    expect_about("fault 3");
    kubernetes_events_configure(events); /* as it was */
    expect_about("fault 3");
}

static void a_store_that_fails_sends_nothing(void **state)
{
    assert_int_equal(store_begin(node.context.store), 0); /* rows are read outside of it only */
    assert_int_equal(store_journal(node.context.store, "guest_condition_changed",
                                   node.bound.volume_id, NULL, NULL, "{\"to\":\"abnormal\"}"),
                     0);
    kubernetes_events_follow(events);
    assert_null(request);
    assert_int_equal(store_commit(node.context.store), 0);
    kubernetes_events_follow(events);
    assert_non_null(request);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_event_that_exists_already_counts_as_sent),
        TEST(every_other_failure_is_tried_again),
        TEST(pauses_grow),
        TEST(without_a_token_nothing_is_sent),
        TEST(a_lack_of_memory_is_tried_again),
        TEST(after_a_burst_events_have_a_pace),
        TEST(an_event_that_fails_for_an_hour_is_dropped),
        TEST(many_rows_are_read_in_pieces),
        TEST(nothing_is_sent_while_events_are_off),
        TEST(a_store_that_fails_sends_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
