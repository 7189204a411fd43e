/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes_test.c - VMs come, change and go, with what they were able to do. */
#include "tests/unit/store/fixture.h"

static void another_vmm_is_another_sandbox(void **state)
{
    struct store *store = store_of(state);
    struct bound bound = put_bound(store);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    int64_t ref;

    sandbox.vmm_start_ns++;
    ref = put_sandbox(store, &sandbox, true);
    assert_int_not_equal(ref, bound.sandbox_ref);
    assert_int_equal(get_volume(store, bound.volume_id).binding_id, 0);
    assert_int_equal(get_volume(store, bound.volume_id).sandbox_ref, ref);
    assert_int_equal(lines_of(store, "sandbox_gone"), 1);
    assert_int_equal(lines_of(store, "mapping_closed"), 1);
    assert_text_of(store, "SELECT sandbox_id FROM journal WHERE kind = 'mapping_closed'",
                   "sandbox-1");
}

static void an_address_that_was_learned_stays(void **state)
{
    struct store *store = store_of(state);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", NULL);
    int64_t ref;

    sandbox.agent_address = NULL;
    ref = put_sandbox(store, &sandbox, true);
    assert_int_equal(store_set_agent_address(store, ref, "unix:///a"), 0);
    assert_int_equal(store_set_ability(store, ref, ROUTE_AGENT, "able"), 0);
    (void)put_sandbox(store, &sandbox, false);
    assert_text_of(store, "SELECT agent_address FROM audit_sandboxes", "unix:///a");
    assert_text_of(store, "SELECT agent_ability FROM sandboxes", "able");
    assert_int_equal(lines_of(store, "sandbox_changed"), 1);
    sandbox.agent_address = "vsock://3:1024";
    (void)put_sandbox(store, &sandbox, true);
    assert_text_of(store, "SELECT agent_address FROM audit_sandboxes", "vsock://3:1024");
    assert_text_of(store, "SELECT agent_ability FROM sandboxes", NULL);
}

/* An orphan's bundle is gone, and a person who is to end it wants to know whose it was. */
static void a_pod_outlasts_its_bundle(void **state)
{
    struct store *store = store_of(state);
    struct store_sandbox sandbox = sandbox_of("sandbox-1", NULL);

    (void)put_sandbox(store, &sandbox, true);
    sandbox.pod_namespace = sandbox.pod_name = NULL;
    (void)put_sandbox(store, &sandbox, false);
    assert_text_of(store, "SELECT pod_namespace || '/' || pod_name FROM audit_sandboxes",
                   "default/pod");
}

static bool set_orphaned(struct store *store, bool orphaned, const struct store_drive *held)
{
    bool changed;

    assert_int_equal(store_set_orphaned(store, "sandbox-1", orphaned, held, held ? 1 : 0, &changed),
                     0);
    return changed;
}

/* Kata's VM factory: the shim knows the VM by another id. */
static void a_vmm_of_two_sandboxes_is_no_orphan(void **state)
{
    struct store *store = store_of(state);
    struct store_sandbox sandbox = sandbox_of("vm-1", NULL);

    (void)put_bound(store);
    (void)put_sandbox(store, &sandbox, true);
    assert_false(set_orphaned(store, true, NULL));
    assert_int_equal(number_of(store, "SELECT count(*) FROM audit_sandboxes"
                                      " WHERE status = 'alive'"),
                     2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MODEL(another_vmm_is_another_sandbox),
        MODEL(an_address_that_was_learned_stays),
        MODEL(a_vmm_of_two_sandboxes_is_no_orphan),
        MODEL(a_pod_outlasts_its_bundle),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
