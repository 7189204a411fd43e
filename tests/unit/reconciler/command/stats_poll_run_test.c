/* SPDX-License-Identifier: Apache-2.0 */
/* stats_poll_run_test.c - guests that are polled, and what is on record of them then. */
#include "tests/unit/reconciler/command/clients_fixture.h"

#include <unistd.h>

#include "reconciler/command/stats_poll.h"

static struct stats_poll *poll;

/* Until somebody was asked, or nobody was for longer than it takes. */
static bool guest_is_asked(void)
{
    for (unsigned i = 0; i < 3000 && !fake_guest; i++)
        run_pass();
    return fake_guest != NULL;
}

static void begin_poll(void)
{
    poll = stats_poll_new(&test.node.context, test.clients);
    test.node.config.guest.stats_seconds = 1;
    stats_poll_begin(poll);
    stats_poll_start(poll);
}

static void end_poll(void)
{
    stats_poll_stop(poll);
    assert_null(stats_poll_free(poll));
}

static void record_answers(void)
{
    while (!stats_poll_is_due(poll))
        run_pass();
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(stats_poll_record(poll), 0);
    assert_int_equal(store_commit(the_store()), 0);
    assert_false(stats_poll_is_due(poll));
}

static void a_guest_is_polled_and_put_on_record(void **state)
{
    (void)state;
    begin_poll();
    assert_true(guest_is_asked());
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 77, .used = 5}});
    record_answers();
    assert_int_equal(number_of(the_store(), "SELECT used_bytes FROM guest_stats"), 5);
    end_poll();
}

static void a_guests_report_on_its_file_system_is_on_record(void **state)
{
    (void)state;
    begin_poll();
    assert_true(guest_is_asked());
    guest_answers(&(struct guest_reply){
        .stats = {.has_bytes = true, .total = 77, .abnormal = true, .condition = "errors"}});
    record_answers();
    assert_text_of(the_store(), "SELECT condition || ' ' || message FROM guest_stats",
                   "abnormal errors");
    assert_true(guest_is_asked());
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 77}});
    record_answers();
    assert_text_of(the_store(), "SELECT condition FROM guest_stats", "normal");
    end_poll();
}

static void a_guest_that_does_not_answer_is_counted(void **state)
{
    struct guest_reply silent = {.reason = REASON_AGENT_UNREACHABLE};

    (void)state;
    (void)error_set(&silent.error, 0, "silent");
    begin_poll();
    assert_true(guest_is_asked());
    guest_answers(&silent);
    record_answers();
    assert_int_equal(number_of(the_store(), "SELECT failures FROM guest_stats"), 1);
    end_poll();
}

/* The guest had counted before the volume grew, and the growth has been recorded first. */
static void an_answer_from_before_a_growth_is_dropped(void **state)
{
    struct store_guest_stats grown = {.has_bytes = true, .total = 154};
    bool changed = false;

    (void)state;
    begin_poll();
    assert_true(guest_is_asked());
    (void)usleep(2000);
    grown.binding_id = number_of(the_store(), "SELECT max(mapping_id) FROM mappings");
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_put_guest_stats(the_store(), 1, &grown, &changed), 0);
    assert_int_equal(store_commit(the_store()), 0);
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 77}});
    record_answers();
    assert_int_equal(number_of(the_store(), "SELECT guest_bytes FROM mappings"), 154);
    end_poll();
}

/* What the guest has told another client is as old as it was for that one. */
static void an_answer_is_recorded_with_its_age(void **state)
{
    (void)state;
    begin_poll();
    assert_true(guest_is_asked());
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 77},
                                        .age_ns = 60 * NSEC_PER_SEC});
    record_answers();
    assert_true(clock_realtime_ms() - number_of(the_store(), "SELECT read_at FROM guest_stats") >=
                60 * 1000);
    end_poll();
}

/* A guest without the device would speak of another file system. */
static void a_volume_that_the_guest_does_not_have_is_not_asked_for(void **state)
{
    (void)state;
    change("UPDATE volumes SET state = 'detached', reason = 'drive_missing'");
    begin_poll();
    assert_false(guest_is_asked());
    end_poll();
}

static void another_database_forgets_what_was_asked(void **state)
{
    (void)state;
    begin_poll();
    assert_true(guest_is_asked());
    stats_poll_reset(poll);
    assert_null(fake_guest);
    assert_false(stats_poll_is_due(poll));
    end_poll();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLIENTS(a_guest_is_polled_and_put_on_record),
        CLIENTS(a_guests_report_on_its_file_system_is_on_record),
        CLIENTS(a_guest_that_does_not_answer_is_counted),
        CLIENTS(an_answer_from_before_a_growth_is_dropped),
        CLIENTS(an_answer_is_recorded_with_its_age),
        CLIENTS(a_volume_that_the_guest_does_not_have_is_not_asked_for),
        CLIENTS(another_database_forgets_what_was_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
