/* SPDX-License-Identifier: Apache-2.0 */
/* guest_test.c - which guests are read from their VMM's arguments, which VMM is asked itself, and
 * what either comes to. */
#include "tests/unit/reconciler/surroundings.h"

#include "reconciler/helper/helper.h"
#include "tests/unit/reconciler/fake_vmm.h"

static struct {
    struct surroundings node;
    enum hypervisor_kind kind;
    struct guest_traits traits; /* by the arguments */
    int unobservable;
    unsigned observed;
    struct helper_guest guest;
    unsigned answers;
} test;

int guest_traits_observe(const struct observe_sandbox_paths *paths, enum hypervisor_kind kind,
                         const char *sandbox_id, pid_t vmm_pid, struct guest_traits *ret_traits)
{
    assert_string_equal(paths->kata_go_sandboxes, test.node.config.paths.kata_go_sandboxes);
    assert_int_equal(kind, test.kind);
    assert_string_equal(sandbox_id, "sandbox-1");
    assert_int_equal(vmm_pid, 100);
    test.observed++;
    *ret_traits = test.traits;
    return test.unobservable;
}

static void on_guest(struct helper_guest *guest)
{
    assert_ptr_equal(guest, &test.guest);
    test.answers++;
}

static void look_at(enum hypervisor_kind kind, const char *control_socket)
{
    struct store_helper_run sandbox;

    assert_int_equal(
        store_get_helper_sandbox(test.node.context.store, test.node.bound.sandbox_ref, &sandbox),
        0);
    sandbox.hypervisor = test.kind = kind;
    (void)snprintf(sandbox.control_socket, sizeof(sandbox.control_socket), "%s", control_socket);
    helper_guest_start(&test.guest, &test.node.context, &sandbox, on_guest);
}

static int set_up(void **state)
{
    memset(&test, 0, sizeof(test));
    fake_vmm_refused = 0;
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    return 0;
}

static int tear_down(void **state)
{
    helper_guest_stop(&test.guest);
    assert_null(fake_vmm);
    surroundings_end(&test.node);
    return 0;
}

static void other_guests_are_read_from_their_vmms_arguments(void **state)
{
    static const struct {
        enum hypervisor_kind kind;
        int unobservable;
        const char *error; /* NULL: it is known */
    } table[] = {
        {HYPERVISOR_QEMU, 0, NULL},
        {HYPERVISOR_FIRECRACKER, 0, NULL},
        {HYPERVISOR_QEMU, -ENOENT, "arguments of its process"},
        {HYPERVISOR_DRAGONBALL, -EOPNOTSUPP, "does not know how to find out"},
    };

    test.traits = (struct guest_traits){.is_confidential = true, .share = GUEST_SHARE_NONE};
    for (size_t i = 0; i < array_length(table); i++) {
        test.answers = 0;
        test.unobservable = table[i].unobservable;
        look_at(table[i].kind, "/run/monitor.sock");
        assert_int_equal(test.answers, 1);
        assert_int_equal(test.observed, i + 1);
        assert_int_equal(test.guest.is_known, !table[i].error);
        assert_non_null(strstr(test.guest.error.text, table[i].error ? table[i].error : ""));
        assert_true(test.guest.traits.is_confidential);
        assert_int_equal(test.guest.traits.share, GUEST_SHARE_NONE);
    }
}

static void cloud_hypervisor_is_asked_itself(void **state)
{
    static const struct {
        struct hypervisor_guest said;
        enum guest_share share;
    } table[] = {
        {{.has_share = true}, GUEST_SHARE_DIRECTORY},
        {{.is_confidential = true}, GUEST_SHARE_NONE},
    };

    test.node.config.resize.call_timeout_seconds = 7;
    for (size_t i = 0; i < array_length(table); i++) {
        test.answers = 0;
        look_at(HYPERVISOR_CLOUD_HYPERVISOR, "/run/clh-api.sock");
        assert_int_equal(test.answers, 0);
        assert_int_equal(fake_vmm->kind, HYPERVISOR_CLOUD_HYPERVISOR);
        assert_int_equal(fake_vmm->request.act, HYPERVISOR_DESCRIBE);
        assert_int_equal(fake_vmm->request.root, test.node.context.root);
        assert_int_equal(fake_vmm->request.vmm_pid, 100);
        assert_int_equal(fake_vmm->request.allowed_ns, 7 * NSEC_PER_SEC);
        vmm_answers(&(struct hypervisor_reply){.guest = table[i].said});
        assert_int_equal(test.answers, 1);
        assert_true(test.guest.is_known);
        assert_int_equal(test.guest.traits.is_confidential, table[i].said.is_confidential);
        assert_int_equal(test.guest.traits.share, table[i].share);
    }
    assert_int_equal(test.observed, 0);
}

static void cloud_hypervisor_without_a_socket_is_known_to_have_none(void **state)
{
    look_at(HYPERVISOR_CLOUD_HYPERVISOR, "");
    assert_null(fake_vmm->request.control_socket);
}

static void a_vmm_that_does_not_answer_leaves_its_guest_unknown(void **state)
{
    struct hypervisor_reply reply = {.outcome = HYPERVISOR_UNREACHABLE};

    (void)error_set(&reply.error, 0, "silent");
    look_at(HYPERVISOR_CLOUD_HYPERVISOR, "/run/clh-api.sock");
    vmm_answers(&reply);
    assert_false(test.guest.is_known);
    assert_string_equal(test.guest.error.text, "silent");
}

static void a_call_that_cannot_be_made_is_refused(void **state)
{
    fake_vmm_refused = -ENOMEM;
    look_at(HYPERVISOR_CLOUD_HYPERVISOR, "/run/clh-api.sock");
    assert_int_equal(test.answers, 1);
    assert_false(test.guest.is_known);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(other_guests_are_read_from_their_vmms_arguments),
        TEST(cloud_hypervisor_is_asked_itself),
        TEST(cloud_hypervisor_without_a_socket_is_known_to_have_none),
        TEST(a_vmm_that_does_not_answer_leaves_its_guest_unknown),
        TEST(a_call_that_cannot_be_made_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
