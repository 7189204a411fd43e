/* SPDX-License-Identifier: Apache-2.0 */
/* drives_test.c - what drive mounts lack of rights, and where their disks may lie. */
#include "tests/unit/doctor/node.h"

#include <errno.h>

#include "doctor/checks.h"

static void judge(struct node *node, const struct drive_facts *facts)
{
    written_done(&node->written);
    written_begin(&node->written);
    drives_judge(facts, &node->written.findings);
    written_end(&node->written);
}

static void expect(struct node *node, const struct drive_facts *facts, const char *text,
                   const char *level)
{
    judge(node, facts);
    written_expect(&node->written, "drives", text, level);
}

static void examine(struct node *node)
{
    written_done(&node->written);
    written_begin(&node->written);
    drives_examine(node->root, &node->config, &node->written.findings);
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

static void missing_device_right_is_named(void **state)
{
    struct drive_facts facts = {.device = "/dev/sda"};
    struct node *node = *state;

    expect(node, &facts, "block devices may be opened", "ok");
    facts.device_access = EPERM;
    expect(node, &facts, "DeviceAllow=block-* rw is missing", "error");
    assert_non_null(strstr(json_string(written_find(&node->written, "drives", "cgroup"), "remedy"),
                           "crustd-drives.conf"));
    facts.device_access = EACCES;
    expect(node, &facts, "Permission denied", "error");
    facts.device[0] = '\0';
    expect(node, &facts, "not tried", "note");
}

static void the_directories_of_disks_are_judged(void **state)
{
    struct drive_facts facts = {.device = "/dev/sda"};

    expect(*state, &facts, "no path of this node may be attached", "warning");
    facts.prefixes = 1;
    facts.prefix[0] = (struct drive_prefix){.path = "/dev/vg", .is_directory = true};
    expect(*state, &facts, "disks below it may be attached", "ok");
    facts.prefix[0].is_read_only = true;
    expect(*state, &facts, "image files can't be opened for writing", "note");
    facts.prefix[0].is_directory = false;
    expect(*state, &facts, "it is no directory", "warning");
    facts.prefix[0].found = -ENOENT;
    expect(*state, &facts, "No such file or directory", "warning");
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
    struct drive_facts facts;

    node_make(node, "/disks", 0755);
    node_write(node, "/file", "");
    name_prefixes(node, "/disks", "/file");
    examine(node);
    written_expect(&node->written, "drives", "not tried", "note");
    written_expect(&node->written, "drives", "disks below it may be attached", "ok");
    written_expect(&node->written, "drives", "it is no directory", "warning");
    name_prefixes(node, "/disks", "/none");
    drives_read(node->root, &node->config, &facts);
    assert_int_equal(facts.prefixes, 2);
    assert_int_equal(facts.prefix[1].found, -ENOENT);
    assert_string_equal(facts.device, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(missing_device_right_is_named),
        NODE_TEST(the_directories_of_disks_are_judged),
        NODE_TEST(no_finding_while_drives_are_off),
        NODE_TEST(the_node_itself_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
