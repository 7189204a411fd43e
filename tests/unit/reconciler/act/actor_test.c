/* SPDX-License-Identifier: Apache-2.0 */
/* actor_test.c - acts from their decision to their record, on a VMM and a guest that answer as the
 * test says. */
#include "tests/unit/reconciler/surroundings.h"

#include "reconciler/act/actor.h"
#include "reconciler/helper/helper.h"
#include "tests/unit/reconciler/fake_guest.h"
#include "tests/unit/reconciler/fake_vmm.h"

static struct {
    struct surroundings node;
    struct actor *actor;
} test;

/* How many volumes were queued to be decided again. */
static size_t queued(void)
{
    return key_queue_count(&test.node.queue.keys[KEYS_VOLUMES]);
}

static int set_up(void **state)
{
    memset(&test, 0, sizeof(test));
    fake_vmm_refused = 0;
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    test.node.context.helpers = helpers_new(&test.node.context);
    test.actor = actor_new(&test.node.context);
    assert_non_null(test.actor);
    return 0;
}

static int tear_down(void **state)
{
    assert_null(actor_free(test.actor));
    assert_null(helpers_free(test.node.context.helpers));
    assert_null(fake_vmm);
    assert_null(fake_guest);
    surroundings_end(&test.node);
    return 0;
}

static struct store *the_store(void)
{
    return test.node.context.store;
}

static struct store_volume the_volume(void)
{
    return get_volume(the_store(), test.node.bound.volume_id);
}

static void decide_on(enum decide_action action)
{
    const struct store_volume volume = the_volume();

    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(actor_decide(test.actor, &volume, action), 0);
    assert_int_equal(store_commit(the_store()), 0);
}

static void begin(enum decide_action action)
{
    decide_on(action);
    assert_int_equal(actor_count(test.actor), 1);
    actor_start(test.actor);
}

static void record(void)
{
    assert_true(actor_has_results(test.actor));
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(actor_record(test.actor), 0);
    assert_int_equal(store_commit(the_store()), 0);
    assert_false(actor_has_results(test.actor));
}

/* ---- tests ---- */

static void a_call_that_cannot_be_made_is_a_failure(void **state)
{
    fake_vmm_refused = -ENOMEM;
    begin(ACTION_QUERY_HYPERVISOR);
    assert_int_equal(actor_count(test.actor), 0);
    record();
    assert_int_equal(the_volume().hypervisor_reason, REASON_HYPERVISOR_UNREACHABLE);
}

static void overruled_and_rolled_back_actions_never_start(void **state)
{
    decide_on(ACTION_QUERY_HYPERVISOR);
    actor_withdraw(test.actor, test.node.bound.volume_id, ACTION_QUERY_HYPERVISOR);
    assert_int_equal(actor_count(test.actor), 1); /* it is what was decided again */
    actor_withdraw(test.actor, test.node.bound.volume_id, ACTION_NONE);
    assert_int_equal(actor_count(test.actor), 0);
    decide_on(ACTION_QUERY_HYPERVISOR);
    actor_drop(test.actor);
    actor_start(test.actor);
    assert_null(fake_vmm);
    decide_on(ACTION_QUERY_HYPERVISOR); /* the slot is free again */
    assert_int_equal(actor_count(test.actor), 1);
}

/* It may act once the intent is committed; vmm_answers() asserts that. */
static void a_resize_reads_ahead(void **state)
{
    decide_on(ACTION_RESIZE_HYPERVISOR);
    assert_true(fake_vmm->request.is_ahead);
    actor_drop(test.actor);
    assert_null(fake_vmm);
    begin(ACTION_RESIZE_HYPERVISOR);
    vmm_answers(&(struct hypervisor_reply){.bytes = GIB, .list = HYPERVISOR_LIST_HAS});
    record();
    assert_int_equal(the_volume().hypervisor_bytes, GIB);
}

static void an_act_for_a_binding_that_is_gone_is_cancelled(void **state)
{
    struct store_volume volume = the_volume();

    begin(ACTION_QUERY_HYPERVISOR);
    actor_cancel_stale(test.actor, &volume);
    assert_non_null(fake_vmm);
    volume.binding_id++;
    actor_cancel_stale(test.actor, &volume);
    assert_null(fake_vmm);
    assert_int_equal(actor_count(test.actor), 0);
}

static void result_for_a_closed_binding_is_ignored(void **state)
{
    begin(ACTION_QUERY_HYPERVISOR);
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_close_binding(the_store(), test.node.bound.volume_id), 0);
    assert_int_equal(store_commit(the_store()), 0);
    vmm_answers(&(struct hypervisor_reply){.outcome = HYPERVISOR_REFUSED});
    record();
    assert_int_equal(the_volume().attempts, 0);
    assert_int_equal(queued(), 1);
}

static void a_guest_that_falls_silent_has_its_vmm_asked_once(void **state)
{
    for (unsigned times = 0; times < 2; times++) {
        begin(ACTION_QUERY_HYPERVISOR);
        vmm_answers(&(struct hypervisor_reply){.bytes = GIB, .list = HYPERVISOR_LIST_HAS});
        record();
        begin(ACTION_RESIZE_GUEST);
        guest_answers(&(struct guest_reply){.reason = REASON_AGENT_UNREACHABLE});
        record();
        assert_int_equal(the_volume().list_again, times == 0);
    }
}

static void a_guest_that_is_growing_has_not_failed(void **state)
{
    struct guest_reply reply = {.reason = REASON_GROWING};

    (void)error_set(&reply.error, 0, "1 of 2 bytes");
    begin(ACTION_RESIZE_GUEST);
    guest_answers(&reply);
    record();
    assert_int_equal(the_volume().guest_reason, REASON_GROWING);
    assert_int_equal(the_volume().attempts, 0);
    assert_true(the_volume().next_attempt_ns > 0);
}

static void agent_address_from_the_shim_is_recorded(void **state)
{
    begin(ACTION_RESIZE_GUEST);
    (void)snprintf(fake_guest->request.agent_address, fake_guest->request.agent_address_size,
                   "vsock://9:1024");
    guest_answers(&(struct guest_reply){.reason = REASON_AGENT_DENIED, .address_learned = true});
    record();
    assert_string_equal(the_volume().agent_address, "vsock://9:1024");
}

static void a_disk_that_announced_nothing_is_not_rescanned(void **state)
{
    const struct store_volume volume = the_volume();
    struct store_disk disk;

    assert_int_equal(act_rescan_find(the_store(), &volume, &disk), STORE_NOT_FOUND);
    begin(ACTION_RESCAN_DISK); /* it has gone meanwhile: the kernel is told nothing */
    record();
    assert_int_equal(queued(), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_call_that_cannot_be_made_is_a_failure),
        TEST(overruled_and_rolled_back_actions_never_start),
        TEST(a_resize_reads_ahead),
        TEST(an_act_for_a_binding_that_is_gone_is_cancelled),
        TEST(result_for_a_closed_binding_is_ignored),
        TEST(a_guest_that_falls_silent_has_its_vmm_asked_once),
        TEST(a_guest_that_is_growing_has_not_failed),
        TEST(agent_address_from_the_shim_is_recorded),
        TEST(a_disk_that_announced_nothing_is_not_rescanned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
