/* SPDX-License-Identifier: Apache-2.0 */
/* expand_answer_test.c - each state and reason in the words of a status. */
#include "tests/unit/test.h"

#include <string.h>

#include "lib/cleanup.h"
#include "model/reason.h"
#include "reconciler/command/clients.h"
#include "store/store.h"

enum { SIZE = 1000 };

/* A volume on a device of SIZE bytes, of which as many are usable where `usable` is 0. */
static const struct {
    const char *state, *reason;
    int code;
    uint64_t guest_bytes, required, limit, usable;
    enum resize_policy policy;
    bool was_tried, has_no_device;
} cases[] = {
    /* what retries cannot change */
    {"unmanaged", "policy", .code = STATUS_FAILED_PRECONDITION},
    {"unmanaged", "not_a_block_device", .code = STATUS_FAILED_PRECONDITION},
    {"unmanaged", "invalid_mount_info", .code = STATUS_UNAVAILABLE},
    {"shrunk", "none", .code = STATUS_OUT_OF_RANGE},
    {"blocked", "no_device", .code = STATUS_UNAVAILABLE},
    {"blocked", "multiple_sandboxes", .code = STATUS_UNAVAILABLE},
    {"blocked", "device_shared", .code = STATUS_UNAVAILABLE},
    {"blocked", "host_in_use", .code = STATUS_UNAVAILABLE},
    {"blocked", "identity_mismatch", .code = STATUS_UNAVAILABLE},
    {"blocked", "bypassed", .code = STATUS_UNAVAILABLE},
    {"blocked", "entries_disagree", .code = STATUS_UNAVAILABLE},
    /* the kubelet asks before the pod's sandbox exists */
    {"unbound", "none", .code = EXPAND_LATER},
    {"unbound", "none", .code = EXPAND_LATER, .required = SIZE},
    {"unbound", "none", .code = STATUS_UNAVAILABLE, .required = SIZE + 1},
    {"unbound", "none", .code = STATUS_OUT_OF_RANGE, .limit = SIZE - 1},
    {"unbound", "none", .code = STATUS_FAILED_PRECONDITION, .policy = POLICY_OBSERVE},
    {"unbound", "none", .code = STATUS_UNAVAILABLE, .has_no_device = true},
    /* sizes, of which a LUKS header is not missing */
    {"in_sync", "none", .code = STATUS_OK, .guest_bytes = SIZE},
    {"in_sync", "none", .code = STATUS_OK, .guest_bytes = SIZE, .required = SIZE, .limit = SIZE},
    {"in_sync", "none", .code = STATUS_UNAVAILABLE, .guest_bytes = SIZE, .required = SIZE + 1},
    {"in_sync", "none", .code = STATUS_OK, .guest_bytes = SIZE, .required = SIZE + 1,
     .usable = SIZE + 1},
    {"in_sync", "none", .code = STATUS_OUT_OF_RANGE, .guest_bytes = SIZE, .limit = SIZE - 1},
    /* a layer that has not followed */
    {"in_sync", "host_stale", .code = STATUS_OK, .guest_bytes = SIZE},
    {"in_sync", "host_stale", .code = STATUS_UNAVAILABLE, .guest_bytes = SIZE, .required = SIZE + 1,
     .usable = 2 * SIZE},
    {"in_sync", "host_layer_pending", .code = STATUS_OK, .guest_bytes = SIZE},
    {"in_sync", "host_layer_pending", .code = STATUS_UNAVAILABLE, .guest_bytes = SIZE,
     .required = SIZE + 1, .usable = 2 * SIZE},
    /* under way; in sync: to be synchronised once */
    {"host_grown", "none", .code = EXPAND_WAIT},
    {"block_grown", "none", .code = EXPAND_WAIT},
    {"unknown", "none", .code = EXPAND_WAIT},
    {"in_sync", "none", .code = EXPAND_WAIT},
    {"in_sync", "none", .code = STATUS_FAILED_PRECONDITION, .policy = POLICY_OBSERVE},
    {"host_grown", "policy", .code = STATUS_FAILED_PRECONDITION, .policy = POLICY_OBSERVE},
    /* a regular file, which is behind in its VM or in the guest alone */
    {"unbound", "none", .code = EXPAND_LATER, .policy = POLICY_GUEST},
    {"detached", "none", .code = EXPAND_LATER, .policy = POLICY_GUEST},
    {"host_grown", "policy", .code = STATUS_FAILED_PRECONDITION, .policy = POLICY_GUEST},
    {"unknown", "none", .code = STATUS_FAILED_PRECONDITION, .policy = POLICY_GUEST},
    {"unknown", "monitor_missing", .code = STATUS_UNAVAILABLE, .was_tried = true,
     .policy = POLICY_GUEST},
    {"in_sync", "none", .code = EXPAND_WAIT, .policy = POLICY_GUEST},
    {"in_sync", "none", .code = STATUS_OK, .guest_bytes = SIZE, .policy = POLICY_GUEST},
    {"block_grown", "none", .code = EXPAND_WAIT, .policy = POLICY_GUEST},
    {"block_grown", "agent_failed", .code = STATUS_UNAVAILABLE, .was_tried = true,
     .policy = POLICY_GUEST},
    /* attempts */
    {"blocked", "monitor_missing", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"blocked", "hypervisor_busy", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"blocked", "hypervisor_unreachable", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"blocked", "hypervisor_unsupported", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"blocked", "hypervisor_version", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"blocked", "hypervisor_refused", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"blocked", "drive_not_found", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"blocked", "read_only", .code = STATUS_FAILED_PRECONDITION, .was_tried = true},
    {"unknown", "monitor_missing", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"block_grown", "agent_unreachable", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"block_grown", "agent_unsupported", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"block_grown", "agent_denied", .code = STATUS_FAILED_PRECONDITION, .was_tried = true},
    {"block_grown", "agent_failed", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"block_grown", "guest_path_unknown", .code = STATUS_UNAVAILABLE, .was_tried = true},
    {"block_grown", "guest_layer_unsupported", .code = STATUS_FAILED_PRECONDITION,
     .was_tried = true},
};

static int judge(struct expand_facts *facts)
{
    struct error error = {0};
    int code = expand_answer(facts, &error);

    assert_int_equal(code > STATUS_OK, error.text[0] != '\0');
    return code;
}

/* A failure of before the client asked is none. */
static void each_state_has_its_answer(void **state)
{
    for (size_t i = 0; i < array_length(cases); i++) {
        struct store_volume volume = {
            .volume_id = 7,
            .status = STORE_PRESENT,
            .state = state_from_name(cases[i].state),
            .reason = reason_from_name(cases[i].reason),
            .device_bytes = SIZE,
            .device_id = cases[i].has_no_device ? 0 : 3,
            .guest_synced_bytes = cases[i].guest_bytes,
            .grows_file_system = true,
        };
        struct expand_facts facts = {
            .volume = &volume,
            .usable_bytes = cases[i].usable ? cases[i].usable : SIZE,
            .required_bytes = cases[i].required,
            .limit_bytes = cases[i].limit,
            .policy = cases[i].policy,
        };

        if (cases[i].was_tried) {
            volume.hypervisor_reason = volume.reason;
            assert_int_equal(judge(&facts), EXPAND_WAIT);
            volume.attempts = 1;
        }
        if (judge(&facts) != cases[i].code)
            fail_msg("case %zu, %s/%s: not %d", i, cases[i].state, cases[i].reason, cases[i].code);
    }
}

static void a_volume_that_is_gone_may_come_back(void **state)
{
    struct store_volume volume = {.status = STORE_REMOVED};
    struct expand_facts facts = {.volume = &volume};

    assert_int_equal(judge(&facts), STATUS_UNAVAILABLE);
    volume.status = STORE_QUARANTINED;
    assert_int_equal(judge(&facts), STATUS_UNAVAILABLE);
}

/* The guest has no part in it. */
static void a_raw_block_claim_is_done_once_the_vm_has_the_size(void **state)
{
    struct store_volume volume = {.state = STATE_HOST_GROWN,
                                  .device_bytes = SIZE,
                                  .device_id = 3,
                                  .is_block_claim = true,
                                  .status = STORE_PRESENT};
    struct expand_facts facts = {.volume = &volume, .usable_bytes = SIZE};

    assert_int_equal(judge(&facts), EXPAND_WAIT);
    volume.state = STATE_IN_SYNC;
    assert_int_equal(judge(&facts), STATUS_OK);
    volume.grows_file_system = true; /* its pod wants that */
    assert_int_equal(judge(&facts), EXPAND_WAIT);
    volume.state = STATE_BLOCKED;
    volume.reason = REASON_POLICY;
    assert_int_equal(judge(&facts), STATUS_FAILED_PRECONDITION);
}

/* In sync as far as the host can see, while the guest could not be asked. */
static void a_guest_that_could_not(void **state)
{
    struct store_volume volume = {.state = STATE_IN_SYNC,
                                  .reason = REASON_UNVERIFIED,
                                  .guest_reason = REASON_AGENT_UNSUPPORTED,
                                  .device_bytes = SIZE,
                                  .device_id = 3,
                                  .grows_file_system = true,
                                  .status = STORE_PRESENT};
    struct expand_facts facts = {.volume = &volume, .usable_bytes = SIZE};

    assert_int_equal(judge(&facts), EXPAND_WAIT);
    volume.attempts = 1;
    assert_int_equal(judge(&facts), STATUS_UNAVAILABLE);
    volume.guest_synced_bytes = SIZE;
    assert_int_equal(judge(&facts), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_state_has_its_answer),
        cmocka_unit_test(a_volume_that_is_gone_may_come_back),
        cmocka_unit_test(a_raw_block_claim_is_done_once_the_vm_has_the_size),
        cmocka_unit_test(a_guest_that_could_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
