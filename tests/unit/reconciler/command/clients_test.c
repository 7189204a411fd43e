/* SPDX-License-Identifier: Apache-2.0 */
/* clients_test.c - clients that wait: for a staging, for a resize, for a guest's stats. The core
 * and the guest do as the test says. */
#include "tests/unit/reconciler/surroundings.h"

#include "lib/base64url.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/clients.h"
#include "reconciler/command/stats_poll.h"
#include "reconciler/helper/helper.h"

struct guest_call {
    guest_done *done;
    void *userdata;
    struct guest_request request;
};

static struct {
    struct surroundings node;
    struct actor *actor;
    struct helpers *helpers;
    struct clients *clients;
    bool full, vanishes;
    const char *host_use, *host_use_anew;
    struct guest_call *guest; /* the last that was called and has not ended */
    unsigned guests;
    unsigned told;
    enum status_code code;
    char error[ERROR_TEXT_BYTES];
    struct reconciler_stats stats;
    struct reconciler_capacity capacity;
} test;

/* ---- the guest ---- */

int guest_call_new(struct loop *loop, const struct guest_request *request, guest_done *done,
                   void *userdata, struct guest_call **ret_call)
{
    (void)loop;
    *ret_call = test.guest = calloc(1, sizeof(**ret_call));
    *test.guest = (struct guest_call){done, userdata, *request};
    test.guests++;
    return 0;
}

struct guest_call *guest_call_free(struct guest_call *call)
{
    if (call && call == test.guest)
        test.guest = NULL;
    free(call);
    return NULL;
}

static void guest_answers(const struct guest_reply *reply)
{
    assert_non_null(test.guest);
    test.guest->done(test.guest, reply, test.guest->userdata);
}

/* ---- the core ---- */

static bool is_full(void *userdata)
{
    (void)userdata;
    return test.full;
}

static void directory_of(enum volume_layout layout, const char *name,
                         char ret_path[static PATH_MAX])
{
    const struct config *config = &test.node.config;

    (void)snprintf(ret_path, PATH_MAX, "%s%s/%s", test.node.directory,
                   layout == LAYOUT_KATA ? config->paths.kata_volumes : config->paths.crust_volumes,
                   name);
}

/* A directory that is there is a volume of that name; what it says of itself is of no matter here.
 */
static int observe_entry_now(void *userdata, enum volume_layout layout, const char *name)
{
    struct store_entry entry = entry_of(name, "/staged", 99);
    char path[PATH_MAX];
    int64_t volume_id;
    bool changed;

    (void)userdata;
    directory_of(layout, name, path);
    if (access(path, F_OK) < 0 || test.vanishes)
        return store_remove_entry(test.node.context.store, layout, name, &volume_id);
    entry.layout = layout;
    return store_put_entry(test.node.context.store, &entry, &volume_id, &changed);
}

static int resolve_path(void *userdata, const char *target_path)
{
    (void)userdata;
    (void)target_path;
    return 0;
}

static const char *find_host_use(void *userdata, uint32_t major, uint32_t minor, bool anew)
{
    (void)userdata;
    (void)major;
    (void)minor;
    return anew ? test.host_use_anew : test.host_use;
}

static const struct clients_core core = {
    .is_full = is_full,
    .observe_entry = observe_entry_now,
    .resolve_path = resolve_path,
    .find_host_use = find_host_use,
};

static void begin(bool in_memory)
{
    memset(&test, 0, sizeof(test));
    surroundings_begin(&test.node, in_memory);
    surroundings_bind(&test.node);
    test.helpers = helpers_new(&test.node.context);
    test.actor = actor_new(&test.node.context, test.helpers);
    test.clients = clients_new(&(struct clients_options){.context = &test.node.context,
                                                         .actor = test.actor,
                                                         .helpers = test.helpers,
                                                         .core = &core});
    assert_non_null(test.clients);
}

static int set_up(void **state)
{
    (void)state;
    begin(false);
    return 0;
}

static int set_up_in_memory(void **state)
{
    (void)state;
    begin(true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(clients_free(test.clients));
    assert_null(actor_free(test.actor));
    assert_null(helpers_free(test.helpers));
    assert_null(test.guest);
    surroundings_end(&test.node);
    return 0;
}

static struct store *the_store(void)
{
    return test.node.context.store;
}

/* One reconcile pass, as far as it is of these modules. */
static void pass(void)
{
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(stagings_record(test.clients), 0);
    assert_int_equal(expansions_note(test.clients, test.node.bound.volume_id), 0);
    assert_int_equal(store_commit(the_store()), 0);
    expansions_answer(test.clients);
    assert_int_equal(stagings_answer(test.clients), 0);
}

static void on_turn(struct loop_timer *timer)
{
    (void)timer;
    loop_stop(&test.node.loop);
}

static void turn(void)
{
    struct loop_timer timer = {0};

    loop_timer_start(&test.node.loop, &timer, NSEC_PER_MSEC, on_turn);
    loop_run(&test.node.loop);
}

static void note(enum status_code code, const struct error *error)
{
    test.told++;
    test.code = code;
    (void)snprintf(test.error, sizeof(test.error), "%s", error ? error->text : "");
}

/* ---- stats ---- */

static void on_stats(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                     const struct error *error)
{
    (void)userdata;
    note(code, error);
    if (stats)
        test.stats = *stats;
}

static enum status_code ask(int64_t volume_id, struct stats_call **ret_call, struct error *error)
{
    const struct reconciler_target target = {.volume_id = volume_id};

    return stats_begin(test.clients, &target, on_stats, NULL, ret_call, error);
}

static void a_guest_counts_for_a_client(void **state)
{
    struct stats_call *call;
    struct error error;

    (void)state;
    assert_int_equal(ask(test.node.bound.volume_id, &call, &error), STATUS_OK);
    assert_false(test.guest->request.resizes);
    assert_false(test.guest->request.asks_address);
    assert_int_equal(test.guest->request.inability[ROUTE_AGENT], REASON_NONE);
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 7},
                                        .age_ns = 3 * NSEC_PER_SEC});
    assert_int_equal(test.told, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(test.stats.total, 7);
    assert_int_equal(test.stats.age_ms, 3000);
    assert_non_null(strstr(test.stats.condition, "the guest was read 3 s ago"));
}

static void why_a_guest_did_not_count_is_told(void **state)
{
    struct guest_reply reply = {.reason = REASON_AGENT_DENIED};
    struct stats_call *call;
    struct error error;

    (void)state;
    (void)error_set(&reply.error, 0, "by policy");
    assert_int_equal(ask(test.node.bound.volume_id, &call, &error), STATUS_OK);
    guest_answers(&reply);
    assert_int_equal(test.code, reason_code(REASON_AGENT_DENIED));
    assert_string_equal(test.error, "agent_denied: by policy");
}

static void an_unknown_volume_has_no_stats(void **state)
{
    struct stats_call *call;
    struct error error;

    (void)state;
    assert_int_equal(ask(4711, &call, &error), STATUS_NOT_FOUND);
    test.node.context.synced = false;
    assert_int_equal(ask(test.node.bound.volume_id, &call, &error), STATUS_UNAVAILABLE);
}

static void calls_of_one_sandbox_have_a_bound(void **state)
{
    struct stats_call *call[9];
    struct error error;

    (void)state;
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(ask(test.node.bound.volume_id, &call[i], &error), STATUS_OK);
    assert_int_equal(ask(test.node.bound.volume_id, &call[8], &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "8 such calls"));
    assert_null(reconciler_stats_cancel(call[0]));
    assert_int_equal(ask(test.node.bound.volume_id, &call[0], &error), STATUS_OK);
    /* Those that are left end with the clients. */
}

static void a_volume_is_found_by_its_path_or_its_device(void **state)
{
    static const struct {
        struct reconciler_target target;
        enum status_code code;
    } table[] = {
        {{.target_path = VOLUME_PATH}, STATUS_OK},
        {{.target_path = "/unknown"}, STATUS_NOT_FOUND},
        {{.target_path = "relative"}, STATUS_INVALID_ARGUMENT},
        {{.sandbox_id = "sandbox-1", .device = "/dev/disk"}, STATUS_OK},
        {{.device = "/dev/disk"}, STATUS_OK},
        {{.device = "/dev/other"}, STATUS_NOT_FOUND},
        {{.device = "other"}, STATUS_INVALID_ARGUMENT},
        {{.sandbox_id = "no/sandbox", .device = "/dev/disk"}, STATUS_INVALID_ARGUMENT},
        {{.sandbox_id = "sandbox-2", .device = "/dev/disk"}, STATUS_NOT_FOUND},
    };
    struct stats_call *call;
    struct error error;

    (void)state;
    for (size_t i = 0; i < array_length(table); i++) {
        assert_int_equal(stats_begin(test.clients, &table[i].target, on_stats, NULL, &call, &error),
                         table[i].code);
        if (table[i].code == STATUS_OK)
            (void)reconciler_stats_cancel(call);
    }
}

/* ---- resizes ---- */

static void on_expanded(void *userdata, enum status_code code,
                        const struct reconciler_capacity *capacity, const struct error *error)
{
    (void)userdata;
    note(code, error);
    test.capacity = *capacity;
}

static struct expansion *expand(uint64_t required, uint64_t limit, enum status_code code)
{
    const struct reconciler_expand asked = {
        .target = {.volume_id = test.node.bound.volume_id},
        .required_bytes = required,
        .limit_bytes = limit,
    };
    struct expansion *expansion = NULL;
    struct error error;

    assert_int_equal(expand_begin(test.clients, &asked, on_expanded, NULL, &expansion, &error),
                     code);
    return expansion;
}

static void set_state(enum volume_state volume_state)
{
    bool changed;

    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_set_state(the_store(), test.node.bound.volume_id, volume_state,
                                     REASON_NONE, &changed),
                     0);
    assert_int_equal(store_commit(the_store()), 0);
}

static void a_client_is_told_once_the_volume_is_in_sync(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    assert_int_equal(key_queue_count(&test.node.queue.volumes), 1);
    expansions_answer(test.clients);
    assert_int_equal(test.told, 0); /* nothing was decided since it asked */
    set_state(STATE_HOST_GROWN);
    pass();
    assert_int_equal(test.told, 0);
    set_state(STATE_IN_SYNC);
    pass();
    assert_int_equal(test.told, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(test.capacity.bytes, GIB);
    assert_false(test.capacity.is_owed);
}

static void a_range_that_cannot_be_is_refused(void **state)
{
    (void)state;
    assert_null(expand(2, 1, STATUS_INVALID_ARGUMENT));
}

static void a_pass_that_was_rolled_back_decided_nothing(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    set_state(STATE_IN_SYNC);
    assert_int_equal(expansions_note(test.clients, test.node.bound.volume_id), 0);
    expansions_forget(test.clients);
    expansions_answer(test.clients);
    assert_int_equal(test.told, 0);
}

static void a_client_waits_no_longer_than_crustd(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    test.node.context.stopping = true;
    expansions_answer(test.clients);
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "crustd stops");
}

static void another_database_ends_all_that_wait(void **state)
{
    (void)state;
    (void)expand(GIB, 0, STATUS_OK);
    assert_null(reconciler_expand_cancel(expand(GIB, 0, STATUS_OK)));
    expansions_end(test.clients);
    assert_int_equal(test.told, 1);
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
}

/* ---- stagings ---- */

static void on_staged(void *userdata, enum status_code code, const struct error *error)
{
    (void)userdata;
    note(code, error);
}

static enum status_code stage(const char *fs_type, const char *sandbox_id,
                              struct staging **ret_staging, struct error *error)
{
    const struct reconciler_stage asked = {
        .target_path = "/staged",
        .device = "/dev/none",
        .fs_type = fs_type,
        .sandbox_id = sandbox_id,
    };

    return stage_begin(test.clients, &asked, on_staged, NULL, ret_staging, error);
}

static bool is_staged(void)
{
    char name[STORE_KEY_BYTES], path[PATH_MAX];

    base64url_encode("/staged", strlen("/staged"), name);
    directory_of(LAYOUT_KATA, name, path);
    return access(path, F_OK) == 0;
}

/* The watcher's event about what a staging made. */
static void announce_staged(void)
{
    char name[STORE_KEY_BYTES];

    base64url_encode("/staged", strlen("/staged"), name);
    work_queue_add_directory(&test.node.queue, TREE_KATA_VOLUMES, name);
}

static void a_staging_is_answered_once_it_is_on_record(void **state)
{
    struct staging *staging;
    struct error error = {0};

    (void)state;
    test.node.config.crust.stage_layout = STAGE_KATA;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    assert_true(is_staged());
    assert_true(stagings_wait(test.clients));
    assert_false(stagings_are_due(test.clients));
    turn();
    assert_true(stagings_are_due(test.clients));
    assert_int_equal(test.told, 0);
    announce_staged();
    pass();
    assert_int_equal(test.told, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_true(key_queue_is_empty(&test.node.queue.directories[TREE_KATA_VOLUMES]));
    assert_int_equal(lines_of(the_store(), "volume_staged"), 1);
    assert_false(stagings_wait(test.clients));

    assert_int_equal(unstage_begin(test.clients, "/staged", on_staged, NULL, &staging, &error),
                     STATUS_OK);
    assert_false(is_staged());
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_UNAVAILABLE); /* not done yet */
    turn();
    pass();
    assert_int_equal(test.told, 2);
    assert_int_equal(lines_of(the_store(), "volume_unstaged"), 1);
}

static void what_was_staged_and_is_gone_is_told(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    test.vanishes = true;
    turn();
    pass();
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "what was staged is gone again");
    test.full = true;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    turn();
    pass();
    assert_int_equal(test.code, STATUS_RESOURCE_EXHAUSTED);
}

static void what_the_node_does_not_bear_out_is_refused(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("btrfs", NULL, &staging, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "ext4"));
    assert_int_equal(stage("ext4", "sandbox-2", &staging, &error), STATUS_UNAVAILABLE);
    assert_int_equal(key_queue_count(&test.node.queue.sandboxes), 1);
    assert_int_equal(stage("ext4", "sandbox-1", &staging, &error), STATUS_OK);
    test.node.context.synced = false;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_UNAVAILABLE);
}

static void a_store_that_fails_is_told_to_all_that_wait(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    assert_null(
        reconciler_stage_cancel(staging)); /* its client has gone; it is done all the same */
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    stagings_fail(test.clients, "disk full");
    assert_int_equal(test.told, 1);
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(test.error, "disk full"));
    assert_false(stagings_wait(test.clients));
}

static void nothing_is_promised_from_memory(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "not on disk"));
    assert_false(is_staged());
}

/* ---- the poll ---- */

static void a_guest_is_polled_and_put_on_record(void **state)
{
    struct stats_poll *poll = stats_poll_new(&test.node.context, test.clients);

    (void)state;
    test.node.config.guest.stats_seconds = 1;
    stats_poll_begin(poll);
    stats_poll_start(poll);
    while (!test.guest)
        turn();
    guest_answers(&(struct guest_reply){.stats = {.has_bytes = true, .total = 77, .used = 5}});
    while (!stats_poll_is_due(poll))
        turn();
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(stats_poll_record(poll), 0);
    assert_int_equal(store_commit(the_store()), 0);
    assert_false(stats_poll_is_due(poll));
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM guest_stats"), 1);
    stats_poll_stop(poll);
    assert_null(stats_poll_free(poll));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_guest_counts_for_a_client),
        TEST(why_a_guest_did_not_count_is_told),
        TEST(an_unknown_volume_has_no_stats),
        TEST(calls_of_one_sandbox_have_a_bound),
        TEST(a_volume_is_found_by_its_path_or_its_device),
        TEST(a_client_is_told_once_the_volume_is_in_sync),
        TEST(a_range_that_cannot_be_is_refused),
        TEST(a_pass_that_was_rolled_back_decided_nothing),
        TEST(a_client_waits_no_longer_than_crustd),
        TEST(another_database_ends_all_that_wait),
        TEST(a_staging_is_answered_once_it_is_on_record),
        TEST(what_was_staged_and_is_gone_is_told),
        TEST(what_the_node_does_not_bear_out_is_refused),
        TEST(a_store_that_fails_is_told_to_all_that_wait),
        cmocka_unit_test_setup_teardown(nothing_is_promised_from_memory, set_up_in_memory,
                                        tear_down),
        TEST(a_guest_is_polled_and_put_on_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
