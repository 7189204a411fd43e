/* SPDX-License-Identifier: Apache-2.0 */
/* helper_test.c - who waits for a helper, who gets the next one, and who is answered without one;
 * with runs that end as the test says. */
#include "tests/unit/reconciler/surroundings.h"

#include "reconciler/helper/helper.h"

/* ---- runs ---- */

struct helper_run {
    struct helper_task task;
    bool cleans_up;
    char name[STORE_NAME_BYTES];
    helper_run_done *done;
    void *userdata;
};

static struct {
    struct surroundings node;
    struct helpers *helpers;
    struct helper_run *run; /* the last that began and has not ended */
    unsigned runs;
    int refused;
    unsigned replies;
    struct guest_helper_reply reply;
} test;

int helper_run_new(const struct context *context, const struct helper_task *task,
                   helper_run_done *done, void *userdata, struct helper_run **ret_run)
{
    const char *name = task->sandbox.name;

    assert_ptr_equal(context, &test.node.context);
    if (test.refused)
        return test.refused;
    *ret_run = test.run = calloc(1, sizeof(**ret_run));
    *test.run = (struct helper_run){
        .task = *task, .cleans_up = name[0], .done = done, .userdata = userdata};
    (void)snprintf(test.run->name, sizeof(test.run->name), "%s",
                   name[0] ? name : "crust-0123456789abcdef");
    test.runs++;
    return 0;
}

struct helper_run *helper_run_free(struct helper_run *run)
{
    if (run)
        test.run = NULL;
    free(run);
    return NULL;
}

const char *helper_run_name(const struct helper_run *run)
{
    return run->name;
}

static void run_ends(const struct helper_outcome *outcome)
{
    struct helper_run *run = test.run;

    assert_non_null(run);
    run->done(run, outcome, run->userdata);
}

static void run_resizes(uint64_t bytes)
{
    static struct helper_outcome outcome;

    outcome = (struct helper_outcome){0};
    outcome.report.volume[0] = (struct helper_volume){
        .device_bytes = bytes,
        .stats = {.has_bytes = true, .total = bytes / 2},
    };
    run_ends(&outcome);
}

/* ---- the rest ---- */

static void on_reply(const struct guest_helper_reply *reply, void *userdata)
{
    test.replies++;
    test.reply = *reply;
}

static void run_pass(void)
{
    surroundings_turn(&test.node, 5);
}

static struct store_volume the_volume(void)
{
    return get_volume(test.node.context.store, test.node.bound.volume_id);
}

static struct helper_call *call(enum helper_purpose purpose, uint64_t deadline_ns)
{
    const struct store_volume volume = the_volume();
    struct helper_call *call;

    assert_int_equal(
        helper_call_new(test.helpers, &volume, purpose, deadline_ns, on_reply, NULL, &call), 0);
    return call;
}

static int set_up(void **state)
{
    struct store *store;

    memset(&test, 0, sizeof(test));
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    store = test.node.context.store;
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(
        store_put_hypervisor_result(
            store, &(struct store_hypervisor_result){.volume_id = test.node.bound.volume_id,
                                                     .bytes = GIB,
                                                     .record = the_volume().record,
                                                     .guest_path = "/run/volume",
                                                     .list = STORE_LIST_HAS}),
        0);
    assert_int_equal(store_commit(store), 0);
    test.node.config.guest.helpers = 1;
    test.helpers = helpers_new(&test.node.context);
    assert_non_null(test.helpers);
    return 0;
}

static int tear_down(void **state)
{
    assert_null(helpers_free(test.helpers));
    assert_null(test.run);
    surroundings_end(&test.node);
    return 0;
}

/* ---- tests ---- */

static void a_helper_is_possible_where_configuration_policy_and_record_allow_it(void **state)
{
    struct store_volume volume = the_volume();
    struct config config = test.node.config;

    assert_true(helper_is_possible(&config, &volume));
    volume.guest_path[0] = '\0';
    assert_false(helper_is_possible(&config, &volume));
    volume.runtime = RUNTIME_KATA_RS; /* its shared directory shows where volumes may be */
    assert_true(helper_is_possible(&config, &volume));
    volume.agent_address[0] = '\0';
    assert_false(helper_is_possible(&config, &volume));
    volume = the_volume();
    volume.policy = POLICY_OBSERVE;
    assert_false(helper_is_possible(&config, &volume));
    volume = the_volume();
    volume.device_kind = DEVICE_KIND_FILE;
    assert_true(helper_is_possible(&config, &volume));
    config.resize.file_backed = FILE_BACKED_NEVER;
    assert_false(helper_is_possible(&config, &volume));
    volume = the_volume();
    config.guest.helper = false;
    assert_false(helper_is_possible(&config, &volume));
}

static void a_helper_grows_who_waits_for_it(void **state)
{
    (void)call(HELPER_RESIZE, 0);
    assert_int_equal(test.runs, 0); /* never from within */
    run_pass();
    assert_int_equal(test.runs, 1);
    assert_true(test.run->task.grow);
    assert_int_equal(test.run->task.paths, 1);
    assert_string_equal(test.run->task.path[0], "/run/volume");
    assert_false(helpers_are_idle(test.helpers));
    run_resizes(GIB);
    assert_int_equal(test.replies, 1);
    assert_int_equal(test.reply.reason, REASON_NONE);
    assert_int_equal(test.reply.stats.total, GIB / 2);
    run_pass();
    assert_true(helpers_are_idle(test.helpers));
}

static void failed_stats_are_answered_from_memory_until_the_next_run(void **state)
{
    struct helper_outcome outcome = {.reason = REASON_AGENT_POLICY_DENIED};

    (void)error_set(&outcome.error, 0, "denied");
    (void)call(HELPER_STATS, NSEC_PER_SEC);
    run_pass();
    run_ends(&outcome);
    assert_int_equal(test.reply.reason, REASON_AGENT_POLICY_DENIED);
    (void)call(HELPER_STATS, NSEC_PER_SEC);
    run_pass();
    assert_int_equal(test.runs, 1);
    assert_int_equal(test.reply.reason, REASON_AGENT_POLICY_DENIED);
    assert_non_null(strstr(test.reply.error.text, "a helper counts at most once"));
}

static void a_sandbox_of_no_use_is_not_asked_to_count(void **state)
{
    struct store *store = test.node.context.store;

    assert_int_equal(store_begin(store), 0);
    assert_int_equal(
        store_set_ability(store, test.node.bound.sandbox_ref, ROUTE_HELPER, "helper_no_cgroups"),
        0);
    assert_int_equal(store_commit(store), 0);
    (void)call(HELPER_STATS, 0);
    run_pass();
    assert_int_equal(test.runs, 0);
    assert_int_equal(test.reply.reason, REASON_HELPER_NO_CGROUPS);
}

static void client_past_its_deadline_is_answered(void **state)
{
    (void)call(HELPER_RESIZE, 0);
    run_pass();
    (void)call(HELPER_STATS, 1);
    run_pass();
    assert_int_equal(test.replies, 1);
    assert_int_equal(test.reply.reason, REASON_AGENT_UNREACHABLE);
    assert_non_null(strstr(test.reply.error.text, "took all of the time"));
}

static void a_run_that_cannot_begin_is_a_failure(void **state)
{
    test.refused = -ENOMEM;
    (void)call(HELPER_RESIZE, 0);
    run_pass();
    assert_int_equal(test.replies, 1);
    assert_int_equal(test.reply.reason, REASON_HELPER_FAILED);
}

static void leftovers_go_before_the_next_helper(void **state)
{
    struct helper_outcome left = {.reason = REASON_HELPER_FAILED, .left = true};

    (void)error_set(&left.removal_error, 0, "busy");
    (void)call(HELPER_RESIZE, 0);
    run_pass();
    run_ends(&left);
    assert_int_equal(test.reply.reason, REASON_HELPER_FAILED);
    (void)call(HELPER_RESIZE, 0);
    run_pass();
    assert_int_equal(test.runs, 1); /* its removal is not due yet */
    assert_int_equal(test.replies, 2);
    assert_non_null(strstr(test.reply.error.text, "an earlier helper is still in the guest"));
}

static void leftovers_of_another_modules_helper_are_removed(void **state)
{
    struct error error;

    (void)error_set(&error, 0, "busy");
    helpers_note_leftover(test.helpers, test.node.bound.sandbox_ref, "crust-x0000000000000aa",
                          NULL);
    run_pass();
    assert_int_equal(test.runs, 1);
    assert_true(test.run->cleans_up);
    assert_string_equal(test.run->name, "crust-x0000000000000aa");
    run_ends(&(struct helper_outcome){0});
    helpers_note_leftover(test.helpers, test.node.bound.sandbox_ref, "crust-x0000000000000bb",
                          &error);
    (void)call(HELPER_RESIZE, 0);
    run_pass();
    assert_int_equal(test.runs, 1); /* its removal is not due yet */
    assert_non_null(strstr(test.reply.error.text, "an earlier helper is still in the guest: busy"));
}

static void a_stop_refuses_who_waits_and_leaves_what_runs(void **state)
{
    test.node.config.resize.call_timeout_seconds = 0;
    (void)call(HELPER_RESIZE, 0);
    run_pass();
    helpers_stop(test.helpers);
    (void)call(HELPER_STATS, 0);
    run_pass();
    assert_null(test.run);
    assert_int_equal(test.replies, 2);
    assert_int_equal(test.reply.reason, REASON_AGENT_UNREACHABLE);
    run_pass();
    assert_true(helpers_are_idle(test.helpers));
}

static void a_call_may_be_given_up(void **state)
{
    assert_null(helper_call_free(call(HELPER_RESIZE, 0)));
    assert_null(helper_call_free(NULL));
    run_pass();
    assert_int_equal(test.runs, 0);
    helpers_sweep(test.helpers);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_helper_is_possible_where_configuration_policy_and_record_allow_it),
        TEST(a_helper_grows_who_waits_for_it),
        TEST(failed_stats_are_answered_from_memory_until_the_next_run),
        TEST(a_sandbox_of_no_use_is_not_asked_to_count),
        TEST(client_past_its_deadline_is_answered),
        TEST(a_run_that_cannot_begin_is_a_failure),
        TEST(leftovers_go_before_the_next_helper),
        TEST(leftovers_of_another_modules_helper_are_removed),
        TEST(a_stop_refuses_who_waits_and_leaves_what_runs),
        TEST(a_call_may_be_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
