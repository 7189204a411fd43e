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
    struct helpers *helpers;
} test;

/* How many volumes were queued to be decided again. */
static size_t queued(void)
{
    return key_queue_count(&test.node.queue.volumes);
}

static int set_up(void **state)
{
    (void)state;
    memset(&test, 0, sizeof(test));
    fake_vmm_refused = 0;
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    test.helpers = helpers_new(&test.node.context);
    test.actor = actor_new(&test.node.context, test.helpers);
    assert_non_null(test.actor);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(actor_free(test.actor));
    assert_null(helpers_free(test.helpers));
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
    assert_true(actor_has_decided(test.actor));
    actor_start(test.actor);
    assert_false(actor_has_decided(test.actor));
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

static void an_act_goes_from_its_intent_to_its_record(void **state)
{
    int64_t taken = 0;

    (void)state;
    decide_on(ACTION_RESIZE_HYPERVISOR);
    assert_null(fake_vmm); /* not before the commit */
    assert_true(lines_of(the_store(), "resize_hypervisor_intended") == 1);
    assert_true(actor_is_acting(test.actor, test.node.bound.volume_id));
    actor_start(test.actor);
    assert_int_equal(actor_count_running(test.actor), 1);
    assert_int_equal(fake_vmm->kind, HYPERVISOR_QEMU);
    assert_int_equal(fake_vmm->request.act, HYPERVISOR_RESIZE);
    assert_int_equal(fake_vmm->request.bytes, GIB);
    assert_in_range(fake_vmm->request.deadline_ns, 1,
                    test.node.config.resize.call_timeout_seconds * NSEC_PER_SEC);
    vmm_answers(&(struct hypervisor_reply){
        .bytes = 2 * GIB, .list = HYPERVISOR_LIST_HAS, .drive_id = "drive-9", .version = "8.2"});
    assert_int_equal(actor_count_running(test.actor), 0);
    assert_false(actor_is_acting(test.actor, test.node.bound.volume_id));
    assert_int_equal(queued(), 0);
    record();
    assert_true(work_queue_take_volume(&test.node.queue, &taken));
    assert_int_equal(taken, test.node.bound.volume_id);
    assert_int_equal(the_volume().hypervisor_bytes, 2 * GIB);
    assert_int_equal(the_volume().attempts, 0);
}

static void a_failure_that_heals_is_tried_again_later(void **state)
{
    struct hypervisor_reply reply = {.outcome = HYPERVISOR_UNREACHABLE};

    (void)state;
    (void)error_set(&reply.error, 0, "no answer");
    begin(ACTION_QUERY_HYPERVISOR);
    assert_int_equal(fake_vmm->request.act, HYPERVISOR_QUERY);
    vmm_answers(&reply);
    record();
    assert_int_equal(the_volume().hypervisor_reason, REASON_HYPERVISOR_UNREACHABLE);
    assert_int_equal(the_volume().attempts, 1);
    assert_true(the_volume().next_attempt_ns > clock_boottime());
}

static void a_failure_that_does_not_heal_waits_for_a_change(void **state)
{
    (void)state;
    begin(ACTION_RESIZE_HYPERVISOR);
    vmm_answers(&(struct hypervisor_reply){.outcome = HYPERVISOR_UNSUPPORTED});
    record();
    assert_int_equal(the_volume().attempts, 1);
    assert_int_equal(the_volume().next_attempt_ns, 0);
}

static void a_device_that_grew_meanwhile_starts_anew(void **state)
{
    const struct store_device larger = device_of(1, 4 * GIB);

    (void)state;
    begin(ACTION_RESIZE_HYPERVISOR);
    assert_int_equal(store_begin(the_store()), 0);
    (void)put_device(the_store(), &larger, true);
    assert_int_equal(store_commit(the_store()), 0);
    vmm_answers(&(struct hypervisor_reply){.outcome = HYPERVISOR_UNREACHABLE});
    record();
    assert_int_equal(the_volume().attempts, 0);
}

static void a_call_that_cannot_be_made_is_a_failure(void **state)
{
    (void)state;
    fake_vmm_refused = -ENOMEM;
    begin(ACTION_QUERY_HYPERVISOR);
    assert_int_equal(actor_count_running(test.actor), 0);
    record();
    assert_int_equal(the_volume().hypervisor_reason, REASON_HYPERVISOR_UNREACHABLE);
}

static void a_volume_acts_once_at_a_time(void **state)
{
    (void)state;
    begin(ACTION_QUERY_HYPERVISOR);
    decide_on(ACTION_QUERY_HYPERVISOR);
    assert_false(actor_has_decided(test.actor));
    assert_false(actor_has_next_volume(test.actor));
}

static void another_volume_of_the_sandbox_waits_for_its_slot(void **state)
{
    struct store_volume other = the_volume();
    int64_t next = 0;

    (void)state;
    begin(ACTION_QUERY_HYPERVISOR);
    other.volume_id = 99;
    assert_int_equal(actor_decide(test.actor, &other, ACTION_RESIZE_GUEST), 0);
    assert_false(actor_has_decided(test.actor));
    assert_false(actor_next_volume(test.actor, &next));
    vmm_answers(&(struct hypervisor_reply){.bytes = GIB});
    record();
    assert_true(actor_has_next_volume(test.actor));
    assert_true(actor_next_volume(test.actor, &next));
    assert_int_equal(next, 99);
    assert_false(actor_take_loss(test.actor));
}

static void overruled_and_rolled_back_actions_never_start(void **state)
{
    (void)state;
    decide_on(ACTION_QUERY_HYPERVISOR);
    actor_withdraw(test.actor, test.node.bound.volume_id, ACTION_QUERY_HYPERVISOR);
    assert_true(actor_has_decided(test.actor)); /* it is what was decided again */
    actor_withdraw(test.actor, test.node.bound.volume_id, ACTION_NONE);
    assert_false(actor_has_decided(test.actor));
    decide_on(ACTION_QUERY_HYPERVISOR);
    actor_drop(test.actor);
    actor_start(test.actor);
    assert_null(fake_vmm);
    decide_on(ACTION_QUERY_HYPERVISOR); /* the slot is free again */
    assert_true(actor_has_decided(test.actor));
}

static void an_act_for_a_binding_that_is_gone_is_cancelled(void **state)
{
    struct store_volume volume = the_volume();

    (void)state;
    begin(ACTION_QUERY_HYPERVISOR);
    actor_cancel_stale(test.actor, &volume);
    assert_non_null(fake_vmm);
    volume.binding_id++;
    actor_cancel_stale(test.actor, &volume);
    assert_null(fake_vmm);
    assert_int_equal(actor_count_running(test.actor), 0);
}

static void result_for_a_closed_binding_is_ignored(void **state)
{
    (void)state;
    begin(ACTION_QUERY_HYPERVISOR);
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_close_binding(the_store(), test.node.bound.volume_id), 0);
    assert_int_equal(store_commit(the_store()), 0);
    vmm_answers(&(struct hypervisor_reply){.outcome = HYPERVISOR_REFUSED});
    record();
    assert_int_equal(the_volume().attempts, 0);
    assert_int_equal(queued(), 1);
}

static void a_paused_vm_has_taken_the_size_and_is_asked_again(void **state)
{
    struct hypervisor_reply reply = {
        .outcome = HYPERVISOR_PAUSED, .bytes = GIB, .list = HYPERVISOR_LIST_HAS};

    (void)state;
    (void)error_set(&reply.error, 0, "the VM is paused: QEMU's status is io-error");
    begin(ACTION_RESIZE_HYPERVISOR);
    vmm_answers(&reply);
    record();
    assert_int_equal(the_volume().hypervisor_bytes, GIB);
    assert_int_equal(the_volume().hypervisor_reason, REASON_VM_PAUSED);
    assert_non_null(strstr(the_volume().hypervisor_error, "io-error"));
    assert_true(the_volume().obstacle_known);
    assert_int_equal(the_volume().obstacle, REASON_NONE);
    assert_int_equal(the_volume().attempts, 1);
    assert_int_not_equal(the_volume().next_attempt_ns, 0);
}

static void a_disk_that_somebody_set_back_is_counted(void **state)
{
    (void)state;
    for (unsigned times = 0; times < 2; times++) {
        begin(ACTION_RESIZE_HYPERVISOR);
        vmm_answers(&(struct hypervisor_reply){.bytes = GIB, .list = HYPERVISOR_LIST_HAS});
        record();
        assert_int_equal(the_volume().undone, times);
        begin(ACTION_QUERY_HYPERVISOR);
        vmm_answers(&(struct hypervisor_reply){.bytes = GIB / 2, .list = HYPERVISOR_LIST_HAS});
        record();
        assert_int_equal(the_volume().undone, times + 1);
    }
}

static void a_guest_that_falls_silent_has_its_vmm_asked_once(void **state)
{
    (void)state;
    begin(ACTION_QUERY_HYPERVISOR);
    vmm_answers(&(struct hypervisor_reply){.bytes = GIB, .list = HYPERVISOR_LIST_HAS});
    record();
    begin(ACTION_RESIZE_GUEST);
    guest_answers(&(struct guest_reply){.reason = REASON_AGENT_UNREACHABLE});
    record();
    assert_true(the_volume().list_again);
    begin(ACTION_QUERY_HYPERVISOR);
    vmm_answers(&(struct hypervisor_reply){.bytes = GIB, .list = HYPERVISOR_LIST_HAS});
    record();
    begin(ACTION_RESIZE_GUEST);
    guest_answers(&(struct guest_reply){.reason = REASON_AGENT_UNREACHABLE});
    record();
    assert_false(the_volume().list_again);
}

static void a_guest_that_has_grown_is_on_record(void **state)
{
    (void)state;
    begin(ACTION_RESIZE_GUEST);
    assert_true(fake_guest->request.resizes);
    assert_true(fake_guest->request.asks_address);
    assert_int_equal(fake_guest->request.bytes, GIB);
    assert_int_equal(fake_guest->request.order[0], ROUTE_COMPANION);
    assert_string_equal(fake_guest->request.agent_address, "vsock://3:1024");
    assert_non_null(strstr(fake_guest->request.shim_socket, "/sandbox-1/shim-monitor.sock"));
    guest_answers(&(struct guest_reply){
        .stats = {.has_bytes = true, .total = GIB / 2, .used = 5},
        .ability = {[ROUTE_COMPANION] = "agent_unsupported", [ROUTE_AGENT] = "able"},
    });
    record();
    assert_int_equal(the_volume().guest_synced_bytes, GIB);
    assert_int_equal(the_volume().guest_reason, REASON_NONE);
    assert_string_equal(the_volume().ability[ROUTE_COMPANION], "agent_unsupported");
    assert_string_equal(the_volume().ability[ROUTE_AGENT], "able");
    assert_string_equal(the_volume().ability[ROUTE_SHIM], "");
    begin(ACTION_RESIZE_GUEST); /* what is known unable is passed over */
    assert_int_equal(fake_guest->request.inability[ROUTE_COMPANION], REASON_AGENT_UNSUPPORTED);
    assert_int_equal(fake_guest->request.inability[ROUTE_AGENT], REASON_NONE);
}

static void a_guest_that_failed_has_not_grown(void **state)
{
    struct guest_reply reply = {.reason = REASON_AGENT_FAILED};

    (void)state;
    (void)error_set(&reply.error, 0, "ENOSPC");
    begin(ACTION_RESIZE_GUEST);
    guest_answers(&reply);
    record();
    assert_int_equal(the_volume().guest_reason, REASON_AGENT_FAILED);
    assert_int_equal(the_volume().attempts, 1);
}

static void a_guest_that_is_growing_has_not_failed(void **state)
{
    struct guest_reply reply = {.reason = REASON_GROWING};

    (void)state;
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
    (void)state;
    begin(ACTION_RESIZE_GUEST);
    (void)snprintf(fake_guest->request.agent_address, fake_guest->request.agent_address_size,
                   "vsock://9:1024");
    guest_answers(&(struct guest_reply){.reason = REASON_AGENT_DENIED, .address_learned = true});
    record();
    assert_string_equal(the_volume().agent_address, "vsock://9:1024");
}

static void an_act_that_waits_for_a_helper_rests(void **state)
{
    struct store_volume other = the_volume();
    struct helper_call *call;

    (void)state;
    actor_set_parallel(test.actor, 1);
    begin(ACTION_RESIZE_GUEST);
    other.volume_id = 99;
    other.sandbox_ref = 77;
    assert_int_equal(actor_decide(test.actor, &other, ACTION_QUERY_HYPERVISOR), 0);
    assert_false(actor_has_decided(test.actor));
    assert_int_equal(
        fake_guest->request.helper->begin(fake_guest->request.owner, 1, NULL, NULL, &call), 0);
    assert_int_equal(fake_guest->request.helper->is_possible(fake_guest->request.owner),
                     helper_is_possible(&test.node.config, &other));
    assert_true(actor_has_next_volume(test.actor));
    assert_null(fake_guest->request.helper->free(call));
}

static void all_is_forgotten_at_once(void **state)
{
    (void)state;
    begin(ACTION_QUERY_HYPERVISOR);
    actor_reset(test.actor);
    assert_null(fake_vmm);
    assert_int_equal(actor_count_running(test.actor), 0);
    begin(ACTION_RESIZE_GUEST);
    assert_non_null(fake_guest);
}

static void a_disk_that_announced_nothing_is_not_rescanned(void **state)
{
    const struct store_volume volume = the_volume();
    bool may = true;

    (void)state;
    assert_int_equal(actor_may_rescan(test.actor, &volume, &may), 0);
    assert_false(may);
    begin(ACTION_RESCAN_DISK); /* it has gone meanwhile: the kernel is told nothing */
    record();
    assert_int_equal(queued(), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_act_goes_from_its_intent_to_its_record),
        TEST(a_failure_that_heals_is_tried_again_later),
        TEST(a_failure_that_does_not_heal_waits_for_a_change),
        TEST(a_device_that_grew_meanwhile_starts_anew),
        TEST(a_call_that_cannot_be_made_is_a_failure),
        TEST(a_volume_acts_once_at_a_time),
        TEST(another_volume_of_the_sandbox_waits_for_its_slot),
        TEST(overruled_and_rolled_back_actions_never_start),
        TEST(an_act_for_a_binding_that_is_gone_is_cancelled),
        TEST(result_for_a_closed_binding_is_ignored),
        TEST(a_paused_vm_has_taken_the_size_and_is_asked_again),
        TEST(a_disk_that_somebody_set_back_is_counted),
        TEST(a_guest_that_falls_silent_has_its_vmm_asked_once),
        TEST(a_guest_that_has_grown_is_on_record),
        TEST(a_guest_that_failed_has_not_grown),
        TEST(a_guest_that_is_growing_has_not_failed),
        TEST(agent_address_from_the_shim_is_recorded),
        TEST(an_act_that_waits_for_a_helper_rests),
        TEST(all_is_forgotten_at_once),
        TEST(a_disk_that_announced_nothing_is_not_rescanned),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
