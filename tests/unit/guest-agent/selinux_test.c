/* SPDX-License-Identifier: Apache-2.0 */
/* selinux_test.c - a directory that stands in for selinuxfs. */
#include "tests/unit/tree.h"

#include <linux/magic.h>
#include <sys/statfs.h>

#include "guest-agent/drive_mount.h"

static void enforcement_is_read_from_the_kernel(void **state)
{
    struct statfs status;
    unsigned long type;

    (void)state;
    tree_make("/selinux");
    assert_int_equal(statfs(tree_path("/selinux"), &status), 0);
    type = (unsigned long)status.f_type;
    assert_false(selinux_is_enforced_at(tree_path("/none"), type));
    assert_false(selinux_is_enforced_at(tree_path("/selinux"), type));
    tree_write("/selinux/enforce", "0");
    assert_false(selinux_is_enforced_at(tree_path("/selinux"), type));
    tree_write("/selinux/enforce", "1");
    assert_true(selinux_is_enforced_at(tree_path("/selinux"), type));
    assert_false(selinux_is_enforced_at(tree_path("/selinux"), SELINUX_MAGIC));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(enforcement_is_read_from_the_kernel, tree_start, tree_stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
