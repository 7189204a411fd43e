/* SPDX-License-Identifier: Apache-2.0 */
/* stats_test.c - clients that ask what a guest's file system says of itself, and guests that
 * are polled for it. */
#include "tests/unit/reconciler/command/clients_fixture.h"

#include <inttypes.h>
#include <unistd.h>

#include "lib/clock.h"
#include "lib/process.h"
#include "reconciler/command/clients.h"

static struct reconciler_stats stats_answer;

static void on_stats(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                     const struct error *error)
{
    note(code, error);
    if (stats)
        stats_answer = *stats;
}

static struct stats_call *ask(enum status_code code)
{
    const struct reconciler_target target = {.target_path = VOLUME_PATH};
    struct stats_call *call = NULL;
    struct error error = {0};

    assert_int_equal(reconciler_ask_stats(&test.core, &target, on_stats, NULL, &call, &error),
                     code);
    (void)snprintf(test.error, sizeof(test.error), "%s", error.text);
    return call;
}

static void a_guest_counts_for_a_client(void **state)
{
    (void)ask(STATUS_OK);
    assert_false(fake_guest->request.resizes);
    assert_false(fake_guest->request.asks_address);
    assert_int_equal(fake_guest->request.inability[ROUTE_AGENT], REASON_NONE);
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 7},
                                        .age_ns = 3 * NSEC_PER_SEC});
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(stats_answer.total, 7);
    assert_non_null(strstr(stats_answer.condition, "the guest was read 3 s ago"));
    test.core.context.synced = false; /* nothing is known before the first scan is done */
    (void)ask(STATUS_UNAVAILABLE);
}

static void a_sandbox_that_ends_meanwhile_is_the_answer(void **state)
{
    struct guest_reply reply = {.reason = REASON_AGENT_UNREACHABLE};
    struct process process;
    char sql[128];

    (void)error_set(&reply.error, 0, "no answer");
    (void)ask(STATUS_OK);
    guest_answers(&reply); /* the VMM that is on record has ended */
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "the volume's sandbox ended while it was asked");
    assert_int_equal(process_read(getpid(), &process), 0); /* a VMM that lives */
    (void)snprintf(sql, sizeof(sql), "UPDATE sandboxes SET vmm_pid = %d, vmm_start_ns = %" PRIu64,
                   (int)getpid(), process.start_ns);
    change(sql);
    (void)ask(STATUS_OK);
    unbind();
    guest_answers(&reply);
    assert_string_equal(test.error, "the volume's sandbox ended while it was asked");
}

/* ---- calls that do not reach the guest ---- */

static void a_volume_of_two_sandboxes_has_no_one_guest(void **state)
{
    struct store_entry entry = entry_of("key-1", VOLUME_PATH, 11);
    struct store_sandbox sandbox = sandbox_of("sandbox-2", NULL);

    entry.sandboxes = 2;
    entry.sandbox[1] = "sandbox-2";
    assert_int_equal(store_begin(the_store()), 0);
    (void)put_sandbox(the_store(), &sandbox, true);
    (void)put_entry(the_store(), &entry, true);
    assert_int_equal(store_commit(the_store()), 0);
    assert_null(ask(reason_code(REASON_MULTIPLE_SANDBOXES, STATE_BLOCKED)));
    assert_non_null(strstr(test.error, "more than one live sandbox"));
}

/* ---- the runtime's own tool ---- */

/* Each costs a process or a connection. */
static void all_calls_together_have_a_bound(void **state)
{
    struct stats_call *call[64];
    struct child *tool[64];

    leave_tool(0755);
    unbind();
    for (unsigned i = 0; i < 64; i++) {
        call[i] = ask(STATUS_OK);
        tool[i] = fake_child;
        assert_non_null(tool[i]);
    }
    assert_null(ask(STATUS_UNAVAILABLE));
    assert_non_null(strstr(test.error, "64 such calls wait"));
    assert_null(reconciler_stats_cancel(call[0]));
    assert_non_null(ask(STATUS_OK));
}

/* ---- what is on record of guests that are polled ---- */

/* Until somebody was asked, or nobody was for longer than it takes. */
static bool guest_is_asked(void)
{
    for (unsigned i = 0; i < 3000 && !fake_guest; i++)
        run_pass();
    return fake_guest != NULL;
}

static void begin_poll(void)
{
    test.node.config.guest.stats_seconds = 1;
    stats_poll_start(&test.core);
}

/* The guest had counted before the volume grew, and the growth has been recorded first. */
static void an_answer_from_before_a_growth_is_dropped(void **state)
{
    struct store_guest_stats grown = {.has_bytes = true, .total = 154};
    bool changed = false;

    begin_poll();
    assert_true(guest_is_asked());
    (void)usleep(2000);
    grown.binding_id = number_of(the_store(), "SELECT max(mapping_id) FROM mappings");
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_put_guest_stats(the_store(), 1, &grown, &changed), 0);
    assert_int_equal(store_commit(the_store()), 0);
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 77}});
    assert_int_equal(number_of(the_store(), "SELECT guest_bytes FROM mappings"), 154);
}

/* What the guest has told another client is as old as it was for that one. */
static void an_answer_is_recorded_with_its_age(void **state)
{
    begin_poll();
    assert_true(guest_is_asked());
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 77},
                                        .age_ns = 60 * NSEC_PER_SEC});
    assert_true(clock_realtime_ms() - number_of(the_store(), "SELECT read_at FROM guest_stats") >=
                60 * 1000);
}

/* ---- when a guest is polled ---- */

enum { BINDINGS = 4000, TICKS = 64 };
static const uint64_t PERIOD_NS = 300 * NSEC_PER_SEC;

static bool is_due(uint64_t from_ns, uint64_t to_ns, int64_t binding_id, uint32_t failures)
{
    return stats_poll_is_moment(&(struct stats_span){from_ns, to_ns, PERIOD_NS}, binding_id,
                                failures);
}

/* Each once in a period, and never many at a time. */
static void thousands_are_spread_evenly(void **state)
{
    const uint64_t began_ns = 12345 * NSEC_PER_SEC, tick_ns = PERIOD_NS / TICKS;
    unsigned all = 0;

    for (unsigned tick = 0; tick < TICKS; tick++) {
        unsigned due = 0;

        for (int64_t id = 1; id <= BINDINGS; id++)
            due += is_due(began_ns + tick * tick_ns, began_ns + (tick + 1) * tick_ns, id, 0);
        assert_in_range(due, BINDINGS / TICKS * 2 / 3, BINDINGS / TICKS * 4 / 3);
        all += due;
    }
    assert_int_equal(all, BINDINGS);
}

/* Whatever the steps in which time is looked at, nobody is asked twice or passed over. */
static void steps_do_not_matter(void **state)
{
    for (int64_t id = 1; id <= 100; id++) {
        unsigned due = 0;
        uint64_t at_ns = 7;

        for (unsigned step = 1; at_ns < 3 * PERIOD_NS; step++) {
            uint64_t to_ns = at_ns + step * NSEC_PER_SEC;

            if (to_ns > 3 * PERIOD_NS + 7)
                to_ns = 3 * PERIOD_NS + 7;
            due += is_due(at_ns, to_ns, id, 0);
            at_ns = to_ns;
        }
        assert_int_equal(due, 3);
    }
}

static void a_silent_guest_is_asked_less_often(void **state)
{
    static const unsigned asked[] = {64, 32, 16, 8, 4, 2, 2, 2, 2};

    for (uint32_t failures = 0; failures < array_length(asked); failures++) {
        unsigned due = 0;

        for (unsigned period = 64; period < 128; period++)
            due += is_due(period * PERIOD_NS, (period + 1) * PERIOD_NS, 77, failures);
        assert_int_equal(due, asked[failures]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLIENTS(a_guest_counts_for_a_client),
        CLIENTS(a_sandbox_that_ends_meanwhile_is_the_answer),
        CLIENTS(a_volume_of_two_sandboxes_has_no_one_guest),
        CLIENTS(all_calls_together_have_a_bound),
        CLIENTS(an_answer_from_before_a_growth_is_dropped),
        CLIENTS(an_answer_is_recorded_with_its_age),
        cmocka_unit_test(thousands_are_spread_evenly),
        cmocka_unit_test(steps_do_not_matter),
        cmocka_unit_test(a_silent_guest_is_asked_less_often),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
