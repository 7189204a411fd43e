/* SPDX-License-Identifier: Apache-2.0 */
/* hypervisor_test.c - the names that hypervisors and runtimes have, ours, Kata's and the kernel's.
 */
#include "model/sandbox.h"

#include "tests/unit/test.h"

static void every_name_leads_back(void **state)
{
    static const char *const names[HYPERVISOR_KINDS] = {
        [HYPERVISOR_QEMU] = "qemu",
        [HYPERVISOR_CLOUD_HYPERVISOR] = "cloud-hypervisor",
        [HYPERVISOR_FIRECRACKER] = "firecracker",
        [HYPERVISOR_DRAGONBALL] = "dragonball",
        [HYPERVISOR_STRATOVIRT] = "stratovirt",
        [HYPERVISOR_OPENVMM] = "openvmm",
        [HYPERVISOR_REMOTE] = "remote",
        [HYPERVISOR_UNKNOWN] = "unknown",
    };

    for (unsigned kind = 0; kind < HYPERVISOR_KINDS; kind++) {
        if (!hypervisor_name(kind) || !names[kind])
            fail_msg("kind %u lacks a row in model/sandbox.c or here", kind);
        assert_string_equal(hypervisor_name(kind), names[kind]);
        assert_int_equal(hypervisor_kind_from_name(names[kind]), kind);
        assert_non_null(hypervisor_title(kind));
    }
    assert_int_equal(hypervisor_kind_from_name(""), HYPERVISOR_UNKNOWN);
    assert_int_equal(hypervisor_kind_from_name(NULL), HYPERVISOR_UNKNOWN);
}

static void kata_writes_them_in_its_own_way(void **state)
{
    assert_int_equal(hypervisor_kind_from_name("clh"), HYPERVISOR_CLOUD_HYPERVISOR);
    assert_int_equal(hypervisor_kind_from_name("QEMU"), HYPERVISOR_QEMU);
    assert_int_equal(hypervisor_kind_from_name("acrn"), HYPERVISOR_UNKNOWN);
    assert_int_equal(hypervisor_kind_from_name(""), HYPERVISOR_UNKNOWN);
    assert_int_equal(hypervisor_kind_from_name(NULL), HYPERVISOR_UNKNOWN);
}

static void programs_are_known_by_how_their_names_begin(void **state)
{
    assert_int_equal(hypervisor_kind_from_program("qemu-system-x86_64"), HYPERVISOR_QEMU);
    assert_int_equal(hypervisor_kind_from_program("cloud-hypervisor"), HYPERVISOR_CLOUD_HYPERVISOR);
    assert_int_equal(hypervisor_kind_from_program("firecracker-v1.12"), HYPERVISOR_FIRECRACKER);
    assert_int_equal(hypervisor_kind_from_program("stratovirt"), HYPERVISOR_STRATOVIRT);
    assert_int_equal(hypervisor_kind_from_program("dragonball"), HYPERVISOR_UNKNOWN);
    assert_int_equal(hypervisor_kind_from_program("remote"), HYPERVISOR_UNKNOWN);
    assert_int_equal(hypervisor_kind_from_program("unknown"), HYPERVISOR_UNKNOWN);
    assert_int_equal(hypervisor_kind_from_program("bash"), HYPERVISOR_UNKNOWN);
    assert_int_equal(hypervisor_kind_from_program(""), HYPERVISOR_UNKNOWN);
}

static void every_runtime_leads_back(void **state)
{
    for (unsigned i = 0; i < RUNTIMES; i++)
        assert_int_equal(runtime_from_name(runtime_name(i)), i);
    assert_string_equal(runtime_name(RUNTIME_KATA_GO), "kata-go");
    assert_string_equal(runtime_name(RUNTIME_KATA_RS), "kata-rs");
    assert_int_equal(runtime_from_name(""), RUNTIME_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_leads_back),
        cmocka_unit_test(kata_writes_them_in_its_own_way),
        cmocka_unit_test(programs_are_known_by_how_their_names_begin),
        cmocka_unit_test(every_runtime_leads_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
