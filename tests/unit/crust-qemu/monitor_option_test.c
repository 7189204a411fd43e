/* SPDX-License-Identifier: Apache-2.0 */
/* monitor_option_test.c - arguments as Kata gives them to QEMU, and others. */
#include "tests/unit/test.h"

#include <string.h>

#include "crust-qemu/monitor_option.h"

#define ID "0c1c7a1ec3bb9e3b2a1d6ad3cb7c5b0f5b2fd4f1d9a1c2e3f405162738495a6b"

static bool ask(struct monitor_option *option, const char *const *arguments)
{
    return monitor_option(arguments, MONITOR_DIRECTORY, option);
}

#define ARGUMENTS(...)                                                                             \
    (const char *const[])                                                                          \
    {                                                                                              \
        "qemu-system-x86_64", __VA_ARGS__, NULL                                                    \
    }

static void a_sandbox_gets_a_monitor_of_its_name(void **state)
{
    struct monitor_option option;

    assert_true(ask(&option, ARGUMENTS("-name", "sandbox-" ID ",debug-threads=on", "-m", "2048M")));
    assert_string_equal(option.path, "/run/crustd/qemu/" ID ".sock");
    assert_string_equal(option.value, "unix:/run/crustd/qemu/" ID ".sock,server=on,wait=off");
    assert_true(ask(&option, ARGUMENTS("--name", "sandbox-a.b_c-1")));
    assert_string_equal(option.path, "/run/crustd/qemu/a.b_c-1.sock");
}

static void other_machines_get_none(void **state)
{
    struct monitor_option option;

    assert_false(ask(&option, ARGUMENTS("--version")));
    assert_false(ask(&option, ARGUMENTS("-name")));
    assert_false(ask(&option, ARGUMENTS("-name", "mine")));
    assert_false(ask(&option, ARGUMENTS("-m", "sandbox-a")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-,process=x")));
}

static void sandbox_names_unfit_for_files_get_no_monitor(void **state)
{
    struct monitor_option option;

    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-../../etc/x")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a/../../../etc/x")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a/b")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-..")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-.hidden")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a b")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a\n")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a=b")));
}

static void several_names_get_none(void **state)
{
    struct monitor_option option;

    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a", "-name", "sandbox-b")));
    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a", "-name", "b")));
}

static void a_path_is_as_long_as_a_socket_may_have(void **state)
{
    struct monitor_option option;
    char name[MONITOR_PATH_BYTES + 16] = "sandbox-";
    size_t room = MONITOR_PATH_BYTES - 1 - strlen(MONITOR_DIRECTORY "/.sock");

    memset(name + strlen("sandbox-"), 'x', room);
    assert_true(ask(&option, ARGUMENTS("-name", name)));
    assert_int_equal(strlen(option.path), MONITOR_PATH_BYTES - 1);
    name[strlen("sandbox-") + room] = 'x';
    assert_false(ask(&option, ARGUMENTS("-name", name)));
}

static void a_socket_is_asked_for_once(void **state)
{
    struct monitor_option option;

    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a", "-qmp",
                                        "unix:/run/crustd/qemu/a.sock,server=on,wait=off")));
    assert_true(
        ask(&option, ARGUMENTS("-qmp", "unix:fd=3,server=on,wait=off", "-name", "sandbox-a")));
}

static void a_confidential_guest_keeps_its_command_line(void **state)
{
    struct monitor_option option;

    assert_false(ask(&option, ARGUMENTS("-name", "sandbox-a", "-machine",
                                        "q35,accel=kvm,confidential-guest-support=sev")));
    assert_false(
        ask(&option, ARGUMENTS("-machine", "q35,memory-encryption=sev", "-name", "sandbox-a")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sandbox_gets_a_monitor_of_its_name),
        cmocka_unit_test(other_machines_get_none),
        cmocka_unit_test(sandbox_names_unfit_for_files_get_no_monitor),
        cmocka_unit_test(several_names_get_none),
        cmocka_unit_test(a_path_is_as_long_as_a_socket_may_have),
        cmocka_unit_test(a_socket_is_asked_for_once),
        cmocka_unit_test(a_confidential_guest_keeps_its_command_line),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
