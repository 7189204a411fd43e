/* SPDX-License-Identifier: Apache-2.0 */
/* guest_traits_test.c - what a QEMU's arguments tell of its guest. */
#include "tests/unit/test.h"

#include "observe/guest_traits.h"

#define TRAITS(arguments) traits_of(arguments, sizeof(arguments))

static struct guest_traits traits_of(const char *arguments, size_t length)
{
    struct guest_traits traits = {0};

    guest_traits_from_arguments(arguments, length, &traits);
    return traits;
}

static void confidential_guests_are_known(void **state)
{
    (void)state;
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
    (void)state;
    assert_int_equal(TRAITS("qemu\0-device\0vhost-user-fs-pci,chardev=char0,tag=kataShared").share,
                     GUEST_SHARE_DIRECTORY);
    assert_int_equal(TRAITS("qemu\0-device\0virtio-blk-pci,drive=d").share, GUEST_SHARE_NONE);
    assert_int_equal(TRAITS("qemu\0-name\0sandbox-a").share, GUEST_SHARE_UNKNOWN);
    assert_int_equal(TRAITS("").share, GUEST_SHARE_UNKNOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confidential_guests_are_known),
        cmocka_unit_test(a_shared_directory_is_a_device),
    };

    return cmocka_run_group_tests_name("guest_traits", tests, NULL, NULL);
}
