/* SPDX-License-Identifier: Apache-2.0 */
/* paths_test.c - a node's directories, there, absent and wrong. */
#include "tests/unit/doctor/node.h"

#include "doctor/checks.h"

#define VOLUMES "/run/kata-containers/shared/direct-volumes"

static void examine(struct node *node)
{
    node_begin(node);
    paths_examine(&node->written.findings);
    written_end(&node->written);
}

static void expect(struct node *node, const char *id, const char *text, const char *level)
{
    written_expect(&node->written, id, text, level);
}

static void an_empty_root(void **state)
{
    examine(*state);
    expect(*state, "path", VOLUMES, "note");
    expect(*state, "path", "/run/kata", "note");
    expect(*state, "kubelet", "/var/lib/kubelet", "warning");
    expect(*state, "dev", "/dev", "error");
    expect(*state, "sysfs", "/sys", "ok");
    expect(*state, "database", "/var/lib/crustd", "ok");
    expect(*state, "socket", "http.sock", "ok");
    expect(*state, "socket", "crust.sock", "ok");
    assert_int_equal(written_count(&((struct node *)*state)->written, "trash"), 0);
}

static void a_node(void **state)
{
    node_make(*state, VOLUMES, 0700);
    node_make(*state, "/run/crust", 0700);
    node_make(*state, "/var/lib/kubelet/pods", 0750);
    node_make(*state, "/dev", 0755);
    examine(*state);
    /* What another user has made is not root's alone. */
    expect(*state, "path", VOLUMES, geteuid() == 0 ? "ok" : "warning");
    expect(*state, "trash", "on one mount with " VOLUMES, "ok");
    expect(*state, "trash", "on one mount with /run/crust", "ok");
    expect(*state, "kubelet", "with its pods", "ok");
    expect(*state, "dev", "", "ok");
}

static void a_path_that_is_not_a_directory_is_reported(void **state)
{
    node_write(*state, "/run/crust", "");
    node_write(*state, "/dev", "");
    node_write(*state, "/var/lib/kubelet/pods", "");
    examine(*state);
    expect(*state, "path", "/run/crust", "error");
    expect(*state, "dev", "", "error");
    expect(*state, "kubelet", "", "warning");
}

static void trash_matters_only_where_something_is_removed(void **state)
{
    struct node *node = *state;

    node_make(node, VOLUMES, 0700);
    node->config.cleanup.mode = CLEANUP_REPORT;
    examine(node);
    assert_int_equal(written_count(&node->written, "trash"), 0);
}

static void a_group_that_is_not_there(void **state)
{
    struct node *node = *state;

    examine(node);
    assert_int_equal(written_count(&node->written, "socket_group"), 0);
    (void)snprintf(node->config.paths.socket_group, sizeof(node->config.paths.socket_group),
                   "nobody-has-such-a-group");
    examine(node);
    expect(node, "socket_group", "nobody-has-such-a-group", "error");
    (void)snprintf(node->config.paths.socket_group, sizeof(node->config.paths.socket_group),
                   "1234");
    examine(node);
    assert_int_equal(written_count(&node->written, "socket_group"), 0);
}

static void links_are_followed_inside_the_root(void **state)
{
    struct node *node = *state;

    node_make(node, "/data/kubelet/pods", 0755);
    node_make(node, "/var/lib", 0755);
    node_link(node, "/data/kubelet", "/var/lib/kubelet");
    node_link(node, "/data/nowhere/db", "/var/lib/crustd");
    examine(node);
    expect(node, "kubelet", "with its pods", "ok");
    expect(node, "database", "it can be written", "ok");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(an_empty_root),
        NODE_TEST(a_node),
        NODE_TEST(a_path_that_is_not_a_directory_is_reported),
        NODE_TEST(trash_matters_only_where_something_is_removed),
        NODE_TEST(a_group_that_is_not_there),
        NODE_TEST(links_are_followed_inside_the_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
