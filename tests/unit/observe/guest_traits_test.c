/* SPDX-License-Identifier: Apache-2.0 */
/* guest_traits_test.c - what is known of a guest by its VMM's kind and arguments. */
#include "tests/unit/test.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "observe/kata.h"

#define TRAITS(arguments) traits_of(arguments, sizeof(arguments))

static struct guest_traits traits_of(const char *arguments, size_t length)
{
    struct guest_traits traits = {0};

    guest_traits_from_arguments(arguments, length, &traits);
    return traits;
}

static void confidential_guests_are_known(void **state)
{
    assert_true(
        TRAITS("qemu\0-machine\0q35,accel=kvm,confidential-guest-support=snp").is_confidential);
    assert_true(TRAITS("qemu\0-object\0sev-snp-guest,id=snp,cbitpos=51").is_confidential);
    assert_true(
        TRAITS("qemu\0-object\0{\"qom-type\":\"tdx-guest\",\"id\":\"tdx\"}").is_confidential);
    assert_true(TRAITS("qemu\0-object\0s390-pv-guest,id=pv0").is_confidential);
    assert_true(TRAITS("qemu\0-machine\0q35,memory-encryption=sev").is_confidential);
    assert_false(
        TRAITS("qemu\0-machine\0q35,accel=kvm\0-object\0memory-backend-file,id=m").is_confidential);
}

static void a_shared_directory_is_a_device(void **state)
{
    assert_int_equal(TRAITS("qemu\0-device\0vhost-user-fs-pci,chardev=char0,tag=kataShared").share,
                     GUEST_SHARE_DIRECTORY);
    assert_int_equal(TRAITS("qemu\0-device\0virtio-blk-pci,drive=d").share, GUEST_SHARE_NONE);
    assert_int_equal(TRAITS("qemu\0-name\0sandbox-a").share, GUEST_SHARE_UNKNOWN);
    assert_int_equal(TRAITS("").share, GUEST_SHARE_UNKNOWN);
}

static int observe(enum hypervisor_kind kind, struct guest_traits *ret_traits)
{
    struct observe_sandbox_paths paths = {.root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC),
                                          .kata_go_sandboxes = "/nonexistent"};
    int r = guest_traits_observe(&paths, kind, "sandbox-1", getpid(), ret_traits);

    assert_int_equal(close(paths.root), 0);
    return r;
}

/* A kind that is new is untold until somebody says what tells of its guests. */
static void guest_traits_are_unknown_for_other_kinds(void **state)
{
    struct guest_traits traits;

    for (int kind = 0; kind < HYPERVISOR_KINDS; kind++) {
        if (kind != HYPERVISOR_QEMU && kind != HYPERVISOR_FIRECRACKER)
            assert_int_equal(observe((enum hypervisor_kind)kind, &traits), -EOPNOTSUPP);
        if (kind != HYPERVISOR_CLOUD_HYPERVISOR)
            assert_int_not_equal(hypervisor_guest_source((enum hypervisor_kind)kind),
                                 HYPERVISOR_GUEST_BY_CALL);
    }
    assert_int_equal(hypervisor_guest_source(HYPERVISOR_CLOUD_HYPERVISOR),
                     HYPERVISOR_GUEST_BY_CALL);
    assert_int_equal(observe(HYPERVISOR_QEMU, &traits), 0); /* this process's arguments */
    assert_int_equal(traits.share, GUEST_SHARE_UNKNOWN);
    assert_int_equal(observe(HYPERVISOR_FIRECRACKER, &traits), 0);
    assert_false(traits.is_confidential);
    assert_int_equal(traits.share, GUEST_SHARE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confidential_guests_are_known),
        cmocka_unit_test(a_shared_directory_is_a_device),
        cmocka_unit_test(guest_traits_are_unknown_for_other_kinds),
    };

    return cmocka_run_group_tests_name("guest_traits", tests, NULL, NULL);
}
