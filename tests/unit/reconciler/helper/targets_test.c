/* SPDX-License-Identifier: Apache-2.0 */
/* targets_test.c - which volumes of a sandbox one helper is given, and which places of the guest;
 * and the routes to its guest. */

#include "config/config.h"
#include "observe/observed_sandbox.h"
#include "reconciler/core/context.h"
#include "reconciler/helper/helper.h"
#include "tests/unit/store/fixture.h"

enum { MANY = 2 * HELPER_VOLUMES };

static struct {
    struct config config;
    struct store *store;
    struct context context;
    int64_t sandbox_ref;
    struct helper_targets targets;
    const char *place[HELPER_CANDIDATES + 2]; /* of volumes that the records do not tell apart */
} test;

int claims_each_place(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                      pid_t vmm_pid, const char *path, claims_place *callback, void *userdata)
{
    int r = 0;

    assert_string_equal(sandbox_id, "sandbox-1");
    assert_int_equal(vmm_pid, 100);
    for (const char *const *place = test.place; r == 0 && *place; place++)
        r = callback(userdata, *place);
    return r;
}

static int set_up(void **state)
{
    memset(&test, 0, sizeof(test));
    config_defaults(&test.config);
    test.store = fixture_open(NULL, "boot-1");
    test.context = (struct context){.store = test.store, .config = &test.config, .root = -1};
    assert_int_equal(store_begin(test.store), 0);
    return 0;
}

static int tear_down(void **state)
{
    store_close(test.store);
    return 0;
}

static void set_state(struct store_volume *volume, enum volume_state state,
                      enum volume_reason reason)
{
    bool changed;

    assert_int_equal(store_set_state(test.store, volume, state, reason, &changed), 0);
}

/* A volume of the sandbox on a device of its own, mounted at the place; "": not told. */
static struct store_volume put_volume(uint32_t number, enum resize_policy policy,
                                      const char *guest_path)
{
    struct store_sandbox sandbox = sandbox_of("sandbox-1", NULL);
    struct store_device device = device_of(number, GIB);
    struct store_entry entry;
    char key[16], path[64];
    bool changed;
    int64_t volume_id, device_id;
    struct store_volume volume;

    (void)snprintf(key, sizeof(key), "key-%u", number);
    (void)snprintf(path, sizeof(path), "/volume/%u", number);
    entry = entry_of(key, path, number);
    entry.policy = policy;
    volume_id = put_entry(test.store, &entry, true);
    device_id = put_device(test.store, &device, true);
    assert_int_equal(store_put_sandbox(test.store, &sandbox, &test.sandbox_ref, &changed), 0);
    assert_int_equal(store_set_volume_device(test.store, volume_id, device_id, &changed), 0);
    assert_int_equal(
        store_open_binding(test.store, &(struct store_binding){.volume_id = volume_id,
                                                               .sandbox_ref = test.sandbox_ref,
                                                               .device_id = device_id,
                                                               .source = "sandbox-file",
                                                               .guest_path = guest_path,
                                                               .device_bytes = GIB,
                                                               .record = 1}),
        0);
    volume = get_volume(test.store, volume_id);
    set_state(&volume, STATE_IN_SYNC, REASON_NONE);
    return volume;
}

static void begin(bool grow)
{
    test.targets = (struct helper_targets){.grow = grow};
    assert_int_equal(
        helper_targets_begin(&test.context, "sandbox-1", test.sandbox_ref, &test.targets), 0);
}

static void complete(void)
{
    helper_targets_complete(&test.context, "sandbox-1", test.sandbox_ref, &test.targets);
}

static struct store_volume as_rust(struct store_volume volume)
{
    volume.runtime = RUNTIME_KATA_RS;
    volume.guest_path[0] = '\0';
    return volume;
}

/* ---- tests ---- */

static void a_volume_is_given_once_by_its_place(void **state)
{
    const struct store_volume volume = put_volume(1, POLICY_GROW, "/a");

    begin(true);
    helper_targets_add(&test.context, &volume, &test.targets);
    helper_targets_add(&test.context, &volume, &test.targets);
    assert_int_equal(test.targets.targets, 1);
    assert_int_equal(test.targets.target[0].volume_id, volume.volume_id);
    assert_int_equal(test.targets.target[0].device_bytes, GIB);
    assert_int_equal(test.targets.paths, 1);
    assert_string_equal(test.targets.path[0], "/a");
    assert_false(test.targets.withheld);
}

static void volumes_that_look_alike_share_their_places(void **state)
{
    const struct store_volume one = as_rust(put_volume(1, POLICY_GROW, "/known"));
    const struct store_volume other = as_rust(put_volume(2, POLICY_GROW, "/known-too"));

    test.place[0] = "/a";
    test.place[1] = "/b";
    begin(false);
    helper_targets_add(&test.context, &one, &test.targets);
    helper_targets_add(&test.context, &other, &test.targets);
    assert_int_equal(test.targets.targets, 2);
    assert_int_equal(test.targets.paths, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(test.targets.target[i].candidates, 2);
        assert_int_equal(test.targets.target[i].candidate[0], 0);
        assert_int_equal(test.targets.target[i].candidate[1], 1);
    }
}

static void a_volume_has_so_many_candidates_and_no_more(void **state)
{
    static char names[HELPER_CANDIDATES + 1][8];
    const struct store_volume volume = as_rust(put_volume(1, POLICY_GROW, "/known"));

    for (unsigned i = 0; i <= HELPER_CANDIDATES; i++) {
        (void)snprintf(names[i], sizeof(names[i]), "/%u", i);
        test.place[i] = names[i];
    }
    begin(false);
    helper_targets_add(&test.context, &volume, &test.targets);
    assert_int_equal(test.targets.target[0].candidates, HELPER_CANDIDATES);
    assert_int_equal(test.targets.paths, HELPER_CANDIDATES);
}

static void a_volume_without_a_place_is_not_a_target(void **state)
{
    static char longest[STORE_ADDRESS_BYTES + 1];
    const struct store_volume volume = as_rust(put_volume(1, POLICY_GROW, "/known"));

    begin(true);
    helper_targets_add(&test.context, &volume, &test.targets);
    assert_int_equal(test.targets.targets, 0);
    memset(longest, 'a', sizeof(longest) - 1);
    longest[0] = '/';
    test.place[0] = longest;
    helper_targets_add(&test.context, &volume, &test.targets);
    assert_int_equal(test.targets.targets, 0);
    assert_false(test.targets.withheld);
}

static void the_places_of_volumes_that_must_not_grow_are_withheld(void **state)
{
    const struct store_volume volume = as_rust(put_volume(1, POLICY_GROW, "/known"));

    (void)put_volume(2, POLICY_OBSERVE, "/b");
    test.place[0] = "/a";
    test.place[1] = "/b";
    begin(true);
    assert_int_equal(test.targets.forbidden, 1);
    helper_targets_add(&test.context, &volume, &test.targets);
    assert_true(test.targets.withheld);
    assert_int_equal(test.targets.paths, 1);
    assert_string_equal(test.targets.path[0], "/a");
    begin(false); /* reporting harms nobody */
    assert_int_equal(test.targets.forbidden, 0);
}

static void too_many_that_must_not_grow_leave_known_places_only(void **state)
{
    struct store_volume known = {0}, unknown;

    known = put_volume(1, POLICY_GROW, "/known");
    for (uint32_t i = 2; i <= MANY; i++) {
        char place[16];

        (void)snprintf(place, sizeof(place), "/%u", i);
        (void)put_volume(i, POLICY_NEVER, place);
    }
    test.place[0] = "/a";
    begin(true);
    assert_true(test.targets.all_forbidden);
    assert_int_equal(test.targets.forbidden, HELPER_VOLUMES);
    unknown = as_rust(known);
    helper_targets_add(&test.context, &unknown, &test.targets);
    assert_int_equal(test.targets.targets, 0);
    assert_true(test.targets.withheld);
    helper_targets_add(&test.context, &known, &test.targets);
    assert_int_equal(test.targets.targets, 1);
}

static void other_volumes_of_the_sandbox_go_along(void **state)
{
    struct store_volume bypassed, waiting;

    (void)put_volume(1, POLICY_GROW, "/a");
    (void)put_volume(2, POLICY_OBSERVE, "/b");
    bypassed = put_volume(3, POLICY_GROW, "/c");
    waiting = put_volume(4, POLICY_GROW, "/d");
    set_state(&bypassed, STATE_BLOCKED, REASON_BYPASSED);
    set_state(&waiting, STATE_HOST_GROWN, REASON_NONE);
    begin(true);
    complete();
    assert_int_equal(test.targets.paths, 1); /* those in sync, as far as they may grow */
    assert_string_equal(test.targets.path[0], "/a");
    begin(false);
    complete();
    assert_int_equal(test.targets.paths, 2); /* all that the guest has */
    assert_string_equal(test.targets.path[1], "/d");
}

static void a_helper_is_given_so_many_volumes_and_no_more(void **state)
{
    for (uint32_t i = 1; i <= MANY; i++) {
        char place[16];

        (void)snprintf(place, sizeof(place), "/%u", i);
        (void)put_volume(i, POLICY_GROW, place);
    }
    begin(true);
    complete();
    assert_int_equal(test.targets.targets, HELPER_VOLUMES);
    assert_int_equal(test.targets.paths, HELPER_VOLUMES);
}

/* ---- routes ---- */

static void routes_are_described_by_the_record(void **state)
{
    static const struct {
        struct store_volume volume;
        uint64_t most_bytes;
    } cases[] = {
        {{.device_bytes = 10}, 10},
        {{.device_bytes = 10, .hypervisor_bytes = 9}, 10},
        {{.device_bytes = 10, .hypervisor_bytes = 12}, 12},
        {{.device_bytes = 10, .largest_bytes = 14, .hypervisor_bytes = 12}, 14},
        {{.hypervisor_bytes = 12}, 0}, /* what is not known bounds nothing */
        {{.device_bytes = 10, .is_btrfs = true}, 0},
    };
    char shim_socket[GUEST_ADDRESS_BYTES];
    struct guest_request request;

    for (size_t i = 0; i < array_length(cases); i++) {
        struct store_volume volume = cases[i].volume;

        volume.vmm_pid = 100;
        strcpy(volume.sandbox_id, "s1");
        guest_routes_describe(&test.context, &volume, shim_socket, &request);
        assert_int_equal(request.most_bytes, cases[i].most_bytes);
        assert_int_equal(request.listener.vmm, 100); /* the sandbox's sockets are its VMM's */
        assert_string_equal(request.listener.sandbox_id, "s1");
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_volume_is_given_once_by_its_place),
        TEST(volumes_that_look_alike_share_their_places),
        TEST(a_volume_has_so_many_candidates_and_no_more),
        TEST(a_volume_without_a_place_is_not_a_target),
        TEST(the_places_of_volumes_that_must_not_grow_are_withheld),
        TEST(too_many_that_must_not_grow_leave_known_places_only),
        TEST(other_volumes_of_the_sandbox_go_along),
        TEST(a_helper_is_given_so_many_volumes_and_no_more),
        TEST(routes_are_described_by_the_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
