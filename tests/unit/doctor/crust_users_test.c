/* SPDX-License-Identifier: Apache-2.0 */
/* crust_users_test.c - whoever names crust-qemu, wherever Kata's configurations stand. */
#include "tests/unit/doctor/node.h"

#include "doctor/checks.h"

#define PATH   "/opt/crustd/bin/crust-vm-of-unit-tests"
#define NAMES  "[hypervisor.qemu]\npath = \"" PATH "\"\n"
#define PLAIN  "[hypervisor.qemu]\npath = \"/usr/bin/qemu-system-x86_64\"\n"
#define DEPLOY "/opt/kata/share/defaults/kata-containers"

static void search(struct node *node)
{
    node_begin(node);
    crust_users_find(&node->written.findings);
    written_end(&node->written);
}

static void expect_none(struct node *node)
{
    search(node);
    assert_int_equal(cJSON_GetArraySize(node->written.list), 0);
}

/* That file, and no other. */
static void expect(struct node *node, const char *file, const char *what)
{
    search(node);
    assert_int_equal(cJSON_GetArraySize(node->written.list), 1);
    written_expect(&node->written, "crust_qemu", what, "error");
    assert_string_equal(json_string(node->written.list->child, "where"), file);
    assert_non_null(json_string(node->written.list->child, "remedy"));
}

static void an_ordinary_node_has_no_users(void **state)
{
    struct node *node = *state;

    expect_none(node);
    node_write(node, "/etc/kata-containers/configuration.toml",
               PLAIN "# path = \"" PATH "\"\n"
                     "  #path = \"" PATH "\"\n");
    node_write(node, "/etc/kata-containers/config.d/.50.toml.swp", NAMES);
    node_write(node, "/root/notes", NAMES);
    expect_none(node);
}

static void every_place_is_looked_at(void **state)
{
    static const char *const files[] = {
        "/etc/kata-containers/configuration.toml",
        "/etc/kata-containers/config.d/50-crustd.toml",
        "/etc/kata-containers/runtime-rs/config.d/x",
        "/usr/share/defaults/kata-containers/configuration-qemu.toml",
        "/usr/local/share/defaults/kata-containers/config.d/1",
        DEPLOY "/runtimes/qemu/config.d/50-user-overrides.toml",
        DEPLOY "/custom-runtimes/mine/config.d/50-overrides.toml",
        "/opt/kata-second/share/defaults/kata-containers/runtime-rs/runtimes/q/config.d/50",
    };
    struct node *node = *state;

    for (size_t i = 0; i < array_length(files); i++) {
        node_write(node, files[i], NAMES);
        expect(node, files[i], "line 2 names crust-qemu");
        node_write(node, files[i], PLAIN);
        expect_none(node);
    }
}

static void configurations_named_by_the_engine_count(void **state)
{
    struct node *node = *state;

    node_write(
        node, "/etc/containerd/config.toml",
        "[plugins.cri.containerd.runtimes.kata-a.options]\nConfigPath = '/srv/kata/a.toml'\n");
    node_write(node, "/srv/kata/a.toml", PLAIN);
    expect_none(node);
    node_write(node, "/srv/kata/config.d/50", "\n\n" NAMES);
    expect(node, "/srv/kata/config.d/50", "line 4");
    node_write(node, "/srv/kata/config.d/50", "");
    node_write(node, "/srv/kata/a.toml", NAMES);
    expect(node, "/srv/kata/a.toml", "line 2");
}

static void an_unparsable_file_counts(void **state)
{
    struct node *node = *state;

    node_write(node, "/etc/kata-containers/config.d/50", "???\nvalid = [ \"" PATH "\" ] # ]\n");
    expect(node, "/etc/kata-containers/config.d/50", "line 2");
}

static void a_link_to_it_counts(void **state)
{
    struct node *node = *state;

    node_write(node, PATH, "");
    node_link(node, PATH, "/usr-bin-qemu");
    node_write(node, "/etc/kata-containers/configuration.toml",
               "[hypervisor.qemu]\npath = \"/usr-bin-qemu\"\n");
    expect(node, "/etc/kata-containers/configuration.toml", "its path leads to crust-qemu");
}

static void an_unreadable_file_counts(void **state)
{
    struct node *node = *state;
    char *large = calloc(1, 512 * 1024);

    assert_non_null(large);
    memset(large, '#', 512 * 1024 - 1);
    node_write(node, "/etc/kata-containers/large.toml", large);
    free(large);
    expect(node, "/etc/kata-containers/large.toml", "cannot be told");
    node_write(node, "/etc/kata-containers/large.toml", "");
    node_write(
        node, "/etc/containerd/config.toml",
        "[plugins.cri.containerd.runtimes.kata-a.options]\nConfigPath = '/srv/kata/gone.toml'\n");
    search(node);
    written_expect(&node->written, "kata_unreadable", "cannot be examined", "warning");
}

static void links_in_a_circle_end(void **state)
{
    struct node *node = *state;

    node_make(node, "/etc/kata-containers", 0755);
    node_link(node, "/etc/kata-containers", "/etc/kata-containers/again");
    search(node);
    written_expect(&node->written, "crust_qemu", "nested too deep", "error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(an_ordinary_node_has_no_users),
        NODE_TEST(every_place_is_looked_at),
        NODE_TEST(configurations_named_by_the_engine_count),
        NODE_TEST(an_unparsable_file_counts),
        NODE_TEST(a_link_to_it_counts),
        NODE_TEST(an_unreadable_file_counts),
        NODE_TEST(links_in_a_circle_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
