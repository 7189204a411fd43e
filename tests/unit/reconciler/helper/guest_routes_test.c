/* SPDX-License-Identifier: Apache-2.0 */
/* guest_routes_test.c - how large a volume's file system can be. */
#include "tests/unit/test.h"

#include "config/config.h"
#include "reconciler/core/context.h"
#include "reconciler/helper/targets.h"
#include "store/store.h"

static uint64_t most_bytes_of(struct store_volume volume)
{
    static struct config config;
    const struct context context = {.config = &config};
    char shim_socket[GUEST_ADDRESS_BYTES];
    struct guest_request request;

    guest_routes_describe(&context, &volume, shim_socket, &request);
    return request.most_bytes;
}

static void a_file_system_is_as_large_as_its_device_was_at_most(void **state)
{
    (void)state;
    assert_int_equal(most_bytes_of((struct store_volume){.device_bytes = 10}), 10);
    assert_int_equal(
        most_bytes_of((struct store_volume){.device_bytes = 10, .hypervisor_bytes = 9}), 10);
    assert_int_equal(
        most_bytes_of((struct store_volume){.device_bytes = 10, .hypervisor_bytes = 12}), 12);
    assert_int_equal(most_bytes_of((struct store_volume){
                         .device_bytes = 10, .largest_bytes = 14, .hypervisor_bytes = 12}),
                     14);
}

static void what_is_not_known_bounds_nothing(void **state)
{
    (void)state;
    assert_int_equal(most_bytes_of((struct store_volume){.hypervisor_bytes = 12}), 0);
    assert_int_equal(most_bytes_of((struct store_volume){.device_bytes = 10, .is_btrfs = true}), 0);
}

static void the_sandboxs_sockets_are_its_vmms(void **state)
{
    static struct config config;
    const struct context context = {.config = &config};
    struct store_volume volume = {.vmm_pid = 100, .sandbox_id = "s1"};
    char shim_socket[GUEST_ADDRESS_BYTES];
    struct guest_request request;

    (void)state;
    guest_routes_describe(&context, &volume, shim_socket, &request);
    assert_int_equal(request.listener.vmm, 100);
    assert_string_equal(request.listener.sandbox_id, "s1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_system_is_as_large_as_its_device_was_at_most),
        cmocka_unit_test(what_is_not_known_bounds_nothing),
        cmocka_unit_test(the_sandboxs_sockets_are_its_vmms),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
