/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox_arguments_test.c - which sandbox the arguments of VMMs and shims name. */
#include "tests/unit/test.h"

#include <string.h>

#include "lib/buffer.h"
#include "observe/observed_sandbox.h"

enum { LONGEST = OBSERVE_SANDBOX_ID_BYTES - 1, CROWD = 5000 };

static struct sandbox_arguments named;

/* arguments: each followed by a NUL, the last one by that of the literal. */
#define READ(arguments) read_bytes(arguments, sizeof(arguments))

static bool read_bytes(const char *bytes, size_t length)
{
    struct buffer arguments = BUFFER_INIT(64 * 1024);
    bool found;

    assert_int_equal(buffer_append(&arguments, bytes, length), 0);
    found = sandbox_arguments_read(&arguments, &named);
    buffer_done(&arguments);
    return found;
}

static void expect(enum process_role role, const char *id, enum hypervisor_kind hypervisor)
{
    assert_int_equal(named.role, role);
    assert_string_equal(named.id, id);
    assert_int_equal(named.hypervisor, hypervisor);
}

static void qemu_names_its_sandbox_and_its_guest_cid(void **state)
{
    assert_true(READ("/usr/bin/qemu-system-x86_64\0-name\0sandbox-1d,debug-threads=on\0-device\0"
                     "vhost-vsock-pci,disable-modern=false,guest-cid=77,id=vsock-77"));
    expect(PROCESS_VMM, "1d", HYPERVISOR_QEMU);
    assert_int_equal(named.guest_cid, 77);
    assert_true(READ("qemu-system-x86_64\0-name\0sandbox-1d"));
    expect(PROCESS_VMM, "1d", HYPERVISOR_QEMU);
    assert_int_equal(named.guest_cid, 0);
    assert_false(READ("qemu-system-x86_64\0-name\0a-machine"));
    assert_false(READ("qemu-system-x86_64\0-name\0sandbox-,debug-threads=on"));
    assert_false(READ("qemu-system-x86_64\0-name"));
}

static void only_cids_of_guests_are_taken(void **state)
{
    assert_true(READ("qemu\0-name\0sandbox-1d\0vhost-vsock-pci,guest-cid=2"));
    assert_int_equal(named.guest_cid, 0); /* the host */
    assert_true(READ("qemu\0-name\0sandbox-1d\0vhost-vsock-pci,guest-cid=4294967295"));
    assert_int_equal(named.guest_cid, 0); /* VMADDR_CID_ANY */
    assert_true(READ("qemu\0-name\0sandbox-1d\0vhost-vsock-pci,guest-cid=77x"));
    assert_int_equal(named.guest_cid, 0);
    assert_true(READ("qemu\0-name\0sandbox-1d\0vhost-vsock-pci,x-guest-cid=77"));
    assert_int_equal(named.guest_cid, 0);
    assert_true(READ("qemu\0-name\0sandbox-1d\0guest-cid=3,a\0vhost-vsock-pci,guest-cid=77"));
    assert_int_equal(named.guest_cid, 3);
}

static void cloud_hypervisor_names_its_sandbox_by_its_socket(void **state)
{
    assert_true(READ("/opt/kata/bin/cloud-hypervisor\0--api-socket\0/run/vc/vm/1d/clh-api.sock"));
    expect(PROCESS_VMM, "1d", HYPERVISOR_CLOUD_HYPERVISOR);
    assert_true(READ("cloud-hypervisor\0--api-socket\0/run/kata/1d/root/ch-api.sock"));
    expect(PROCESS_VMM, "1d", HYPERVISOR_CLOUD_HYPERVISOR);
    assert_false(READ("cloud-hypervisor\0--api-socket\0ch-api.sock"));
    assert_false(READ("cloud-hypervisor\0--api-socket\0/ch-api.sock"));
    assert_false(READ("cloud-hypervisor\0--api-socket\0root/run/ch-api.sock"));
}

static void firecracker_names_its_sandbox_by_its_id_or_its_socket(void **state)
{
    assert_true(READ("/firecracker\0--id\0001d"));
    expect(PROCESS_VMM, "1d", HYPERVISOR_FIRECRACKER);
    assert_true(READ("firecracker\0--api-sock\0/run/kata/1d/root/run/fc.sock"));
    expect(PROCESS_VMM, "1d", HYPERVISOR_FIRECRACKER);
}

static void a_jailer_is_no_vmm(void **state)
{
    assert_false(READ("/opt/kata/bin/jailer\0--id\0001d"));
}

static void a_shim_names_its_sandbox_unless_it_runs_a_command(void **state)
{
    assert_true(READ("containerd-shim-kata-v2\0-namespace\0k8s.io\0-id\0001d\0-debug"));
    expect(PROCESS_SHIM, "1d", HYPERVISOR_UNKNOWN);
    assert_false(READ("containerd-shim-kata-v2\0-namespace\0k8s.io\0-id\0001d\0start"));
    assert_false(READ("containerd-shim-kata-v2\0-namespace\0k8s.io\0-id\0001d\0delete"));
}

static void the_first_id_counts(void **state)
{
    assert_true(READ("qemu\0-name\0sandbox-1d\0-id\0another"));
    expect(PROCESS_VMM, "1d", HYPERVISOR_QEMU);
}

/* length: of the id. */
static bool read_id(size_t length)
{
    char bytes[sizeof("shim\0-id\0") + LONGEST + 1] = "shim\0-id\0";
    const size_t at = sizeof("shim\0-id\0") - 1;

    memset(bytes + at, 'x', length);
    return read_bytes(bytes, at + length + 1);
}

static void an_id_that_is_empty_or_too_long_is_none(void **state)
{
    assert_true(read_id(LONGEST));
    assert_int_equal(strlen(named.id), LONGEST);
    assert_false(read_id(LONGEST + 1));
    assert_false(read_id(0));
}

static void an_option_behind_thousands_of_arguments_is_not_found(void **state)
{
    static char bytes[2 * CROWD + sizeof("-id\0001d")];

    for (size_t i = 0; i < CROWD; i++)
        bytes[2 * i] = 'x';
    memcpy(bytes + sizeof(bytes) - sizeof("-id\0001d"), "-id\0001d", sizeof("-id\0001d"));
    assert_false(read_bytes(bytes, sizeof(bytes)));
    assert_true(read_bytes(bytes + 2 * (CROWD - 100), sizeof(bytes) - 2 * (CROWD - 100)));
    expect(PROCESS_SHIM, "1d", HYPERVISOR_UNKNOWN);
}

static void no_arguments_name_nothing(void **state)
{
    assert_false(read_bytes("", 0));
    assert_false(READ(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qemu_names_its_sandbox_and_its_guest_cid),
        cmocka_unit_test(only_cids_of_guests_are_taken),
        cmocka_unit_test(cloud_hypervisor_names_its_sandbox_by_its_socket),
        cmocka_unit_test(firecracker_names_its_sandbox_by_its_id_or_its_socket),
        cmocka_unit_test(a_jailer_is_no_vmm),
        cmocka_unit_test(a_shim_names_its_sandbox_unless_it_runs_a_command),
        cmocka_unit_test(the_first_id_counts),
        cmocka_unit_test(an_id_that_is_empty_or_too_long_is_none),
        cmocka_unit_test(an_option_behind_thousands_of_arguments_is_not_found),
        cmocka_unit_test(no_arguments_name_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
