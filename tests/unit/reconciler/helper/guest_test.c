/* SPDX-License-Identifier: Apache-2.0 */
/* guest_test.c - which guests are read from their VMM's arguments, which VMM is asked itself, and
 * what either comes to. */
#include "tests/unit/reconciler/surroundings.h"

#include "reconciler/helper/targets.h"
#include "tests/unit/reconciler/fake_vmm.h"

static struct {
    struct surroundings node;
    enum hypervisor_kind kind;
    struct guest_traits traits; /* by the arguments */
    int unobservable;
    unsigned observed;
    struct helper_guest *guest;
    unsigned answers;
    struct guest_traits answered_traits;
    bool is_known;
    char error[ERROR_TEXT_BYTES];
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

static void on_guest(const struct guest_traits *traits, const struct error *error, void *userdata)
{
    assert_ptr_equal(userdata, &test);
    test.answers++;
    test.answered_traits = *traits;
    test.is_known = !error;
    (void)snprintf(test.error, sizeof(test.error), "%s", error ? error->text : "");
    test.guest = helper_guest_free(test.guest);
    loop_stop(&test.node.loop);
}

static int look_at(enum hypervisor_kind kind, const char *control_socket)
{
    struct store_helper_run sandbox;
    int r;

    assert_int_equal(
        store_get_helper_sandbox(test.node.context.store, test.node.bound.sandbox_ref, &sandbox),
        0);
    sandbox.hypervisor = test.kind = kind;
    (void)snprintf(sandbox.control_socket, sizeof(sandbox.control_socket), "%s", control_socket);
    r = helper_guest_new(&test.node.context, &sandbox, on_guest, &test, &test.guest);
    assert_int_equal(test.answers, 0); /* never from within */
    return r;
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
    assert_null(helper_guest_free(test.guest));
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
        assert_int_equal(look_at(table[i].kind, "/run/monitor.sock"), 0);
        loop_run(&test.node.loop);
        assert_int_equal(test.answers, 1);
        assert_int_equal(test.observed, i + 1);
        assert_int_equal(test.is_known, !table[i].error);
        assert_non_null(strstr(test.error, table[i].error ? table[i].error : ""));
        assert_true(test.answered_traits.is_confidential);
        assert_int_equal(test.answered_traits.share, GUEST_SHARE_NONE);
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
        assert_int_equal(look_at(HYPERVISOR_CLOUD_HYPERVISOR, "/run/clh-api.sock"), 0);
        assert_int_equal(fake_vmm->kind, HYPERVISOR_CLOUD_HYPERVISOR);
        assert_int_equal(fake_vmm->request.act, HYPERVISOR_DESCRIBE);
        assert_int_equal(fake_vmm->request.root, test.node.context.root);
        assert_int_equal(fake_vmm->request.vmm_pid, 100);
        assert_int_equal(fake_vmm->request.allowed_ns, 7 * NSEC_PER_SEC);
        vmm_answers(&(struct hypervisor_reply){.guest = table[i].said});
        assert_int_equal(test.answers, 1);
        assert_true(test.is_known);
        assert_int_equal(test.answered_traits.is_confidential, table[i].said.is_confidential);
        assert_int_equal(test.answered_traits.share, table[i].share);
    }
    assert_int_equal(test.observed, 0);
}

static void cloud_hypervisor_without_a_socket_is_known_to_have_none(void **state)
{
    assert_int_equal(look_at(HYPERVISOR_CLOUD_HYPERVISOR, ""), 0);
    assert_null(fake_vmm->request.control_socket);
}

static void a_vmm_that_does_not_answer_leaves_its_guest_unknown(void **state)
{
    struct hypervisor_reply reply = {.outcome = HYPERVISOR_UNREACHABLE};

    (void)error_set(&reply.error, 0, "silent");
    assert_int_equal(look_at(HYPERVISOR_CLOUD_HYPERVISOR, "/run/clh-api.sock"), 0);
    vmm_answers(&reply);
    assert_false(test.is_known);
    assert_string_equal(test.error, "silent");
}

static void a_call_that_cannot_be_made_is_refused(void **state)
{
    fake_vmm_refused = -ENOMEM;
    assert_int_equal(look_at(HYPERVISOR_CLOUD_HYPERVISOR, "/run/clh-api.sock"), -ENOMEM);
    assert_null(test.guest);
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
