/* SPDX-License-Identifier: Apache-2.0 */
/* watches_test.c - limits that are reached, near, and far. */
#include "tests/unit/doctor/node.h"

#include <errno.h>

#include "doctor/checks.h"

static void expect(const struct watch_facts *facts, const char *text, const char *level)
{
    struct written written;

    written_begin(&written);
    watches_judge(facts, &written.findings);
    written_end(&written);
    written_expect(&written, "inotify", text, level);
    written_done(&written);
}

static void limits(void **state)
{
    struct watch_facts facts = {.max_instances = 128, .max_watches = 8192, .needed = 4000};

    (void)state;
    expect(&facts, "4000 directories to watch, of 8192", "ok");
    facts.needed = 4097;
    expect(&facts, "4097 directories are to be watched", "warning");
    facts.watch = -ENOSPC;
    expect(&facts, "No space left", "warning");
    facts.instance = -EMFILE;
    expect(&facts, "Too many open files", "error");
}

static void directories_are_counted(void **state)
{
    struct node *node = *state;
    struct watch_facts before, after;

    watches_read(node->root, &node->config, &before);
    node_make(node, "/run/crust/a", 0700);
    node_make(node, "/run/crust/b", 0700);
    node_make(node, "/run/vc/vm/c", 0700);
    node_write(node, "/run/crust/file", "");
    watches_read(node->root, &node->config, &after);
    assert_int_equal(after.needed - before.needed, 3);
    assert_true(after.max_watches > 0);
    assert_true(after.max_instances > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE_TEST(limits),
        NODE_TEST(directories_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
