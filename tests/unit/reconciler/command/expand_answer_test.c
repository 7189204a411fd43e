/* SPDX-License-Identifier: Apache-2.0 */
/* expand_answer_test.c - each state and reason in the words of a status. */
#include "tests/unit/test.h"

#include <stdio.h>
#include <string.h>

#include "lib/cleanup.h"
#include "model/reason.h"
#include "reconciler/command/expand_answer.h"

enum { SIZE = 1000 };

struct setting {
    struct store_volume volume;
    struct expand_facts facts;
};

static struct setting make(const char *state, const char *reason)
{
    struct setting setting = {.volume = {.volume_id = 7, .status = STORE_PRESENT}};

    setting.volume.state = state_from_name(state);
    setting.volume.reason = reason_from_name(reason);
    assert_string_equal(state_name(setting.volume.state), state);
    assert_string_equal(reason_name(setting.volume.reason), reason);
    setting.volume.device_bytes = SIZE;
    setting.volume.device_id = 3;
    setting.facts.usable_bytes = SIZE;
    return setting;
}

static int judge(struct setting *setting)
{
    struct error error = {0};
    int code;

    setting->facts.volume = &setting->volume;
    code = expand_answer(&setting->facts, &error);
    assert_int_equal(code > STATUS_OK, error.text[0] != '\0');
    return code;
}

static int judge_state(const char *state, const char *reason)
{
    struct setting setting = make(state, reason);

    return judge(&setting);
}

static void failures_that_retries_cannot_change(void **state)
{
    struct setting removed = make("unmanaged", "none");

    (void)state;
    removed.volume.status = STORE_REMOVED;
    assert_int_equal(judge(&removed), STATUS_UNAVAILABLE);
    removed.volume.status = STORE_QUARANTINED;
    assert_int_equal(judge(&removed), STATUS_UNAVAILABLE);
    assert_int_equal(judge_state("unmanaged", "policy"), STATUS_FAILED_PRECONDITION);
    assert_int_equal(judge_state("unmanaged", "not_a_block_device"), STATUS_FAILED_PRECONDITION);
    assert_int_equal(judge_state("unmanaged", "invalid_mount_info"), STATUS_UNAVAILABLE);
    assert_int_equal(judge_state("shrunk", "none"), STATUS_OUT_OF_RANGE);
    assert_int_equal(judge_state("blocked", "no_device"), STATUS_UNAVAILABLE);
    assert_int_equal(judge_state("blocked", "multiple_sandboxes"), STATUS_UNAVAILABLE);
    assert_int_equal(judge_state("blocked", "device_shared"), STATUS_UNAVAILABLE);
    assert_int_equal(judge_state("blocked", "host_in_use"), STATUS_UNAVAILABLE);
    assert_int_equal(judge_state("blocked", "identity_mismatch"), STATUS_UNAVAILABLE);
    assert_int_equal(judge_state("blocked", "bypassed"), STATUS_UNAVAILABLE);
    assert_int_equal(judge_state("blocked", "entries_disagree"), STATUS_UNAVAILABLE);
}

/* The kubelet asks before the pod's sandbox exists. */
static void before_there_is_a_sandbox(void **state)
{
    struct setting setting = make("unbound", "none");

    (void)state;
    assert_int_equal(judge(&setting), EXPAND_LATER);
    setting.facts.required_bytes = SIZE;
    assert_int_equal(judge(&setting), EXPAND_LATER);
    setting.facts.required_bytes = SIZE + 1;
    assert_int_equal(judge(&setting), STATUS_UNAVAILABLE);
    setting.facts.required_bytes = 0;
    setting.facts.limit_bytes = SIZE - 1;
    assert_int_equal(judge(&setting), STATUS_OUT_OF_RANGE);
    setting.facts.limit_bytes = 0;
    setting.facts.observes = true;
    assert_int_equal(judge(&setting), STATUS_FAILED_PRECONDITION);
    setting.facts.observes = false;
    setting.volume.device_id = 0;
    assert_int_equal(judge(&setting), STATUS_UNAVAILABLE);
}

static void sizes(void **state)
{
    struct setting setting = make("in_sync", "none");

    (void)state;
    setting.volume.guest_synced_bytes = SIZE;
    assert_int_equal(judge(&setting), STATUS_OK);
    setting.facts.required_bytes = SIZE;
    setting.facts.limit_bytes = SIZE;
    assert_int_equal(judge(&setting), STATUS_OK);
    setting.facts.required_bytes = SIZE + 1;
    setting.facts.limit_bytes = 0;
    assert_int_equal(judge(&setting), STATUS_UNAVAILABLE);
    setting.facts.usable_bytes = SIZE + 1; /* a LUKS header is not missing */
    assert_int_equal(judge(&setting), STATUS_OK);
    setting.facts.required_bytes = 0;
    setting.facts.limit_bytes = SIZE - 1;
    assert_int_equal(judge(&setting), STATUS_OUT_OF_RANGE);
}

static void a_layer_that_has_not_followed(void **state)
{
    static const char *const reasons[] = {"host_stale", "host_layer_pending"};

    (void)state;
    for (size_t i = 0; i < array_length(reasons); i++) {
        struct setting setting = make("in_sync", reasons[i]);

        setting.volume.guest_synced_bytes = SIZE;
        assert_int_equal(judge(&setting), STATUS_OK);
        setting.facts.usable_bytes = 2 * SIZE;
        setting.facts.required_bytes = SIZE + 1;
        assert_int_equal(judge(&setting), STATUS_UNAVAILABLE);
    }
}

static void resizes_under_way(void **state)
{
    struct setting setting = make("in_sync", "none");

    (void)state;
    assert_int_equal(judge_state("host_grown", "none"), EXPAND_WAIT);
    assert_int_equal(judge_state("block_grown", "none"), EXPAND_WAIT);
    assert_int_equal(judge_state("unknown", "none"), EXPAND_WAIT);
    assert_int_equal(judge(&setting), EXPAND_WAIT); /* to be synchronised once */
    setting.facts.observes = true;
    assert_int_equal(judge(&setting), STATUS_FAILED_PRECONDITION);
    setting = make("host_grown", "policy");
    setting.facts.observes = true;
    assert_int_equal(judge(&setting), STATUS_FAILED_PRECONDITION);
}

/* A failure of before the client asked is none. */
static void attempts(void **state)
{
    static const struct {
        const char *state, *reason;
        int code;
    } cases[] = {
        {"blocked", "monitor_missing", STATUS_UNAVAILABLE},
        {"blocked", "hypervisor_busy", STATUS_UNAVAILABLE},
        {"blocked", "hypervisor_unreachable", STATUS_UNAVAILABLE},
        {"blocked", "hypervisor_unsupported", STATUS_UNAVAILABLE},
        {"blocked", "hypervisor_version", STATUS_UNAVAILABLE},
        {"blocked", "hypervisor_refused", STATUS_UNAVAILABLE},
        {"blocked", "drive_not_found", STATUS_UNAVAILABLE},
        {"blocked", "read_only", STATUS_FAILED_PRECONDITION},
        {"unknown", "monitor_missing", STATUS_UNAVAILABLE},
        {"block_grown", "agent_unreachable", STATUS_UNAVAILABLE},
        {"block_grown", "agent_unsupported", STATUS_UNAVAILABLE},
        {"block_grown", "agent_denied", STATUS_FAILED_PRECONDITION},
        {"block_grown", "agent_failed", STATUS_UNAVAILABLE},
        {"block_grown", "guest_path_unknown", STATUS_UNAVAILABLE},
        {"block_grown", "guest_layer_unsupported", STATUS_FAILED_PRECONDITION},
    };

    (void)state;
    for (size_t i = 0; i < array_length(cases); i++) {
        struct setting setting = make(cases[i].state, cases[i].reason);

        setting.volume.hypervisor_reason = setting.volume.reason;
        assert_int_equal(judge(&setting), EXPAND_WAIT);
        setting.volume.attempts = 1;
        assert_int_equal(judge(&setting), cases[i].code);
    }
}

/* In sync as far as the host can see, while the guest could not be asked. */
static void a_guest_that_could_not(void **state)
{
    struct setting setting = make("in_sync", "unverified");

    (void)state;
    setting.volume.guest_reason = REASON_AGENT_UNSUPPORTED;
    assert_int_equal(judge(&setting), EXPAND_WAIT);
    setting.volume.attempts = 1;
    assert_int_equal(judge(&setting), STATUS_UNAVAILABLE);
    setting.volume.guest_synced_bytes = SIZE;
    assert_int_equal(judge(&setting), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failures_that_retries_cannot_change),
        cmocka_unit_test(before_there_is_a_sandbox),
        cmocka_unit_test(sizes),
        cmocka_unit_test(resizes_under_way),
        cmocka_unit_test(a_layer_that_has_not_followed),
        cmocka_unit_test(attempts),
        cmocka_unit_test(a_guest_that_could_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
