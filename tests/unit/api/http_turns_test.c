/* SPDX-License-Identifier: Apache-2.0 */
/* http_turns_test.c - who may answer when. */
#include "tests/unit/test.h"

#include <string.h>
#include <time.h>

#include "api/http_turns.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

enum { CLIENTS = 8 };

static struct loop loop;
static struct http_turns turns;

struct client {
    struct http_turn turn;
    enum http_listener listener;
    bool answered;
    uint64_t answered_ns;
};

static struct client clients[CLIENTS];
static unsigned answers;
static unsigned order[CLIENTS];

static int set_up(void **state)
{
    (void)state;
    memset(clients, 0, sizeof(clients));
    answers = 0;
    assert_int_equal(loop_init(&loop), 0);
    http_turns_init(&turns, &loop);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    http_turns_done(&turns);
    loop_done(&loop);
    return 0;
}

/* An answer that takes that long. */
static const struct timespec cost = {.tv_nsec = 5 * 1000 * 1000};

static void ask(struct http_turn *turn)
{
    struct client *client = container_of(turn, struct client, turn);

    if (!http_turn_take(&turns, turn, client->listener, ask))
        return;
    (void)nanosleep(&cost, NULL);
    client->answered = true;
    client->answered_ns = clock_boottime();
    order[answers++] = (unsigned)(client - clients);
    http_turn_end(&turns, turn);
}

static void begin(unsigned number, enum http_listener listener)
{
    clients[number].listener = listener;
    ask(&clients[number].turn);
}

static void one_answer_per_pass_and_the_socket_first(void **state)
{
    (void)state;
    begin(0, HTTP_LISTENER_SOCKET);
    begin(1, HTTP_LISTENER_PAGES);
    begin(2, HTTP_LISTENER_SOCKET);
    begin(3, HTTP_LISTENER_SOCKET);
    assert_int_equal(answers, 1);
    for (unsigned i = 2; i <= 4; i++) {
        loop_run_once(&loop);
        assert_int_equal(answers, i);
    }
    assert_memory_equal(order, ((unsigned[]){0, 2, 3, 1}), 4 * sizeof(order[0]));
}

static void tcp_rests_after_an_answer_and_the_socket_does_not(void **state)
{
    (void)state;
    begin(0, HTTP_LISTENER_PAGES);
    begin(1, HTTP_LISTENER_METRICS);
    while (!clients[1].answered) {
        loop_run_once(&loop);
        if (answers == 1)
            begin(2, HTTP_LISTENER_SOCKET);
    }
    assert_true(clients[2].answered);
    assert_true(clients[2].answered_ns < clients[1].answered_ns);
    /* Three times as long as it took, and its own cost. */
    assert_true(clients[1].answered_ns - clients[0].answered_ns >=
                4 * (uint64_t)cost.tv_nsec - NSEC_PER_MSEC);
}

static void listeners_take_turns(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 4; i++)
        begin(i, HTTP_LISTENER_PAGES);
    begin(4, HTTP_LISTENER_METRICS);
    while (answers < 5)
        loop_run_once(&loop);
    assert_memory_equal(order, ((unsigned[]){0, 4, 1, 2, 3}), 5 * sizeof(order[0]));
}

static void a_client_that_gives_up_holds_up_nobody(void **state)
{
    struct http_turn never = {0};

    (void)state;
    http_turn_end(&turns, &never);
    begin(0, HTTP_LISTENER_SOCKET);
    begin(1, HTTP_LISTENER_SOCKET);
    begin(2, HTTP_LISTENER_SOCKET);
    http_turn_end(&turns, &clients[1].turn);
    loop_run_once(&loop);
    assert_int_equal(answers, 2);
    assert_true(clients[2].answered && !clients[1].answered);
    /* One that was given a turn and goes before it answers. */
    assert_false(http_turn_take(&turns, &clients[3].turn, HTTP_LISTENER_SOCKET, NULL));
    http_turn_end(&turns, &clients[3].turn);
    loop_run_once(&loop);
    assert_true(http_turn_take(&turns, &clients[3].turn, HTTP_LISTENER_SOCKET, NULL));
    begin(4, HTTP_LISTENER_SOCKET);
    http_turn_end(&turns, &clients[3].turn);
    loop_run_once(&loop);
    assert_true(clients[4].answered);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_answer_per_pass_and_the_socket_first, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(tcp_rests_after_an_answer_and_the_socket_does_not, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(listeners_take_turns, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_client_that_gives_up_holds_up_nobody, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
