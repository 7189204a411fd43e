/* SPDX-License-Identifier: Apache-2.0 */
/* kubernetes_events_test.c - rows of the journal become requests to an API server that answers when
 * the test says so, on clocks that go on when the test says so. */
#include "tests/unit/reconciler/surroundings.h"

#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lib/http_exchange.h"
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

/* ---- the API server, in place of lib/http_exchange.c ---- */

enum { BODY_BYTES = 8 * 1024, TEXT_BYTES = 256 };

struct http_exchange {
    http_exchange_done *done;
    void *userdata;
    char target[TEXT_BYTES], address[TEXT_BYTES], token[TEXT_BYTES], body[BODY_BYTES];
};

static struct http_exchange *request; /* the one that waits for its answer */
static bool no_memory;

int http_exchange_new(struct loop *loop, const struct http_exchange_request *asked,
                      http_exchange_done *done, void *userdata, struct http_exchange **ret_exchange)
{
    (void)loop;
    if (no_memory)
        return -ENOMEM;
    assert_null(request); /* one at a time */
    assert_string_equal(asked->method, "POST");
    *ret_exchange = request = calloc(1, sizeof(*request));
    assert_non_null(request);
    *request = (struct http_exchange){.done = done, .userdata = userdata};
    (void)snprintf(request->target, TEXT_BYTES, "%s", asked->target);
    (void)snprintf(request->address, TEXT_BYTES, "%s %u %s", asked->tls->address, asked->tls->port,
                   asked->tls->ca_file);
    (void)snprintf(request->token, TEXT_BYTES, "%s", asked->tls->token);
    (void)snprintf(request->body, BODY_BYTES, "%s", asked->body);
    return 0;
}

struct http_exchange *http_exchange_free(struct http_exchange *exchange)
{
    if (exchange && exchange == request)
        request = NULL;
    free(exchange);
    return NULL;
}

static void answer(const struct http_exchange_answer *given)
{
    assert_non_null(request);
    request->done(request, given, request->userdata);
}

static void answer_status(unsigned status)
{
    static const char body[] = "{\"kind\":\"Status\",\"message\":\"because\"}";

    answer(&(struct http_exchange_answer){
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
    (void)state;
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
    (void)state;
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

static void a_row_is_sent_for_the_pod_and_for_the_volume(void **state)
{
    char address[TEXT_BYTES];

    (void)state;
    report(1, 1);
    expect_about("fault 1");
    expect_about("\"kind\":\"Pod\"");
    expect_about("node-1");
    assert_string_equal(request->target, "/api/v1/namespaces/default/events");
    assert_string_equal(request->token, "first");
    (void)snprintf(address, sizeof(address), "10.96.0.1 443 %s/account/ca.crt", scratch);
    assert_string_equal(request->address, address);
    answer_status(201);
    expect_about("\"kind\":\"PersistentVolume\"");
    assert_int_equal(count().sent, 1);
    answer_status(201);
    assert_null(request);
    assert_int_equal(count().sent, 2);
}

/* An attempt whose answer was lost had created it. */
static void an_event_that_exists_already_counts_as_sent(void **state)
{
    (void)state;
    report(1, 1);
    answer_status(409);
    answer_status(409);
    assert_null(request);
    assert_int_equal(count().sent, 2);
}

static void a_final_refusal_ends_the_event(void **state)
{
    (void)state;
    report(1, 1);
    answer_status(403);
    expect_about("\"kind\":\"PersistentVolume\"");
    answer_status(404);
    assert_null(request);
    pass_seconds(600);
    assert_null(request);
    assert_int_equal(count().refused, 2);
    assert_int_equal(count().sent, 0);
}

static void every_other_failure_is_tried_again(void **state)
{
    static const unsigned statuses[] = {500, 503, 401, 408, 429};
    static const enum http_exchange_end ends[] = {HTTP_EXCHANGE_REFUSED, HTTP_EXCHANGE_UNTRUSTED,
                                                  HTTP_EXCHANGE_CLOSED, HTTP_EXCHANGE_TIMEOUT,
                                                  HTTP_EXCHANGE_OVERFLOW};
    char body[BODY_BYTES];

    (void)state;
    report(1, 1);
    (void)snprintf(body, sizeof(body), "%s", request->body);
    for (size_t i = 0; i < array_length(statuses); i++) {
        answer_status(statuses[i]);
        assert_null(request);
        report(100, 0); /* a pass is no reason to try sooner */
        assert_null(request);
        pass_seconds(256);
        assert_string_equal(request->body, body);
    }
    for (size_t i = 0; i < array_length(ends); i++) {
        struct http_exchange_answer failed = {.end = ends[i]};

        (void)error_set(&failed.error, 1, "it fails");
        answer(&failed);
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
    (void)state;
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

static void a_replaced_token_is_read_anew(void **state)
{
    (void)state;
    report(1, 1);
    put_token("second");
    answer_status(401);
    pass_seconds(1);
    assert_string_equal(request->token, "second");
}

static void without_a_token_nothing_is_sent(void **state)
{
    (void)state;
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
    (void)state;
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

    (void)state;
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
    (void)state;
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

static void equal_events_are_counted(void **state)
{
    (void)state;
    report(1, 1);
    answer_status(201);
    answer_status(201);
    for (unsigned i = 0; i < 3; i++)
        report(1, 1);
    assert_null(request);
    assert_int_equal(count().merged, 4);
    pass_seconds(600);
    expect_about("\"count\":3");
}

/* The loop is served in between. */
static void many_rows_are_read_in_pieces(void **state)
{
    (void)state;
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
    (void)state;
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

static void outside_a_pod_events_stay_off(void **state)
{
    (void)state;
    assert_int_equal(unsetenv("KUBERNETES_SERVICE_HOST"), 0);
    kubernetes_events_start(events);
    report(1, 1);
    assert_null(request);
}

/* Its rows have other numbers. Those since it was opened are sent. */
static void another_database_is_read_from_its_opening(void **state)
{
    (void)state;
    report(1, 1);
    answer_status(201);
    answer_status(201);
    store_close(node.context.store);
    node.context.store = fixture_open(NULL, "boot-1");
    surroundings_bind(&node);
    kubernetes_events_begin_anew(events);
    report(2, 1);
    expect_about("fault 2");
}

static void a_store_that_fails_sends_nothing(void **state)
{
    (void)state;
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
        TEST(a_row_is_sent_for_the_pod_and_for_the_volume),
        TEST(an_event_that_exists_already_counts_as_sent),
        TEST(a_final_refusal_ends_the_event),
        TEST(every_other_failure_is_tried_again),
        TEST(pauses_grow),
        TEST(a_replaced_token_is_read_anew),
        TEST(without_a_token_nothing_is_sent),
        TEST(a_lack_of_memory_is_tried_again),
        TEST(after_a_burst_events_have_a_pace),
        TEST(an_event_that_fails_for_an_hour_is_dropped),
        TEST(equal_events_are_counted),
        TEST(many_rows_are_read_in_pieces),
        TEST(nothing_is_sent_while_events_are_off),
        TEST(outside_a_pod_events_stay_off),
        TEST(another_database_is_read_from_its_opening),
        TEST(a_store_that_fails_sends_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
