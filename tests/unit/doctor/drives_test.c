/* SPDX-License-Identifier: Apache-2.0 */
/* drives_test.c - what drive mounts lack of rights, and where their disks may lie. */
#include "tests/unit/doctor/node.h"

#include <errno.h>
#include <sys/mount.h>

#include "doctor/checks.h"

static void examine(struct node *node)
{
    node_begin(node);
    drives_examine(&node->written.findings);
    written_end(&node->written);
}

static void name_prefixes(struct node *node, const char *first, const char *second)
{
    struct config_list *prefixes = &node->config.drives.host_prefixes;

    node->config.drives.enabled = true;
    prefixes->count = 0;
    assert_true(config_list_add(prefixes, first));
    assert_true(config_list_add(prefixes, second));
}

static void expect_device(struct node *node, const char *device, int access, const char *text,
                          const char *level)
{
    node_begin(node);
    drives_judge_device(device, access, &node->written.findings);
    written_end(&node->written);
    written_expect(&node->written, "drives", text, level);
}

static void missing_device_right_is_named(void **state)
{
    struct node *node = *state;

    expect_device(node, "/dev/sda", 0, "block devices may be opened", "ok");
    expect_device(node, "/dev/sda", EPERM, "DeviceAllow=block-* rw is missing", "error");
    assert_non_null(strstr(json_string(written_find(&node->written, "drives", "cgroup"), "remedy"),
                           "crustd-drives.conf"));
    expect_device(node, "/dev/sda", EACCES, "Permission denied", "error");
    expect_device(node, NULL, 0, "not tried", "note");
}

static void a_read_only_directory_is_noted(void **state)
{
    struct node *node = *state;
    char path[512];

    node_make(node, "/disks", 0755);
    name_prefixes(node, "/disks", "/disks");
    (void)snprintf(path, sizeof(path), "%s/disks", node->name);
    if (mount("none", path, "tmpfs", MS_RDONLY, NULL) < 0)
        skip();
    examine(node);
    assert_int_equal(umount(path), 0);
    written_expect(&node->written, "drives", "image files can't be opened for writing", "note");
}

static void no_finding_while_drives_are_off(void **state)
{
    struct node *node = *state;

    examine(node);
    assert_int_equal(written_count(&node->written, "drives"), 0);
}

/* The scratch node has no /dev at first; then one with a file by a disk's name, which is none. */
static void the_node_itself_is_read(void **state)
{
    struct node *node = *state;

    node_make(node, "/disks", 0755);
    node_write(node, "/file", "");
    name_prefixes(node, "/disks", "/file");
    examine(node);
    written_expect(&node->written, "drives", "not tried", "note");
    written_expect(&node->written, "drives", "disks below it may be attached", "ok");
    written_expect(&node->written, "drives", "it is no directory", "warning");
    name_prefixes(node, "/disks", "/none");
    examine(node);
    written_expect(&node->written, "drives", "No such file or directory", "warning");
    node->config.drives.host_prefixes.count = 0;
    examine(node);
    written_expect(&node->written, "drives", "no path of this node may be attached", "warning");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(missing_device_right_is_named),
        NODE_TEST(a_read_only_directory_is_noted),
        NODE_TEST(no_finding_while_drives_are_off),
        NODE_TEST(the_node_itself_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
