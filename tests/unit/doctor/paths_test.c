/* paths_test.c - a node's directories, there, absent and wrong. */
#include "tests/unit/doctor/scratch.h"

#include "doctor/paths.h"

#define VOLUMES "/run/kata-containers/shared/direct-volumes"

static void examine(struct scratch *scratch)
{
    written_done(&scratch->written);
    written_begin(&scratch->written);
    paths_examine(scratch->root, &scratch->config, &scratch->written.findings);
    written_end(&scratch->written);
}

static void expect(struct scratch *scratch, const char *id, const char *text, const char *level)
{
    written_expect(&scratch->written, id, text, level);
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
    assert_int_equal(written_count(&((struct scratch *)*state)->written, "trash"), 0);
}

static void a_node(void **state)
{
    scratch_make(*state, VOLUMES, 0700);
    scratch_make(*state, "/run/crust", 0700);
    scratch_make(*state, "/var/lib/kubelet/pods", 0750);
    scratch_make(*state, "/dev", 0755);
    examine(*state);
    expect(*state, "path", VOLUMES, "ok");
    expect(*state, "trash", "on one mount with " VOLUMES, "ok");
    expect(*state, "trash", "on one mount with /run/crust", "ok");
    expect(*state, "kubelet", "with its pods", "ok");
    expect(*state, "dev", "", "ok");
}

static void what_others_may_write(void **state)
{
    scratch_make(*state, VOLUMES, 0777);
    examine(*state);
    expect(*state, "path", VOLUMES, "warning");
}

static void what_is_no_directory(void **state)
{
    scratch_write(*state, "/run/crust", "");
    scratch_write(*state, "/dev", "");
    scratch_write(*state, "/var/lib/kubelet/pods", "");
    examine(*state);
    expect(*state, "path", "/run/crust", "error");
    expect(*state, "dev", "", "error");
    expect(*state, "kubelet", "", "warning");
}

static void a_kubelet_without_pods(void **state)
{
    scratch_make(*state, "/var/lib/kubelet", 0750);
    examine(*state);
    expect(*state, "kubelet", "it has no pods", "warning");
}

static void trash_matters_only_where_something_is_removed(void **state)
{
    struct scratch *scratch = *state;

    scratch_make(scratch, VOLUMES, 0700);
    scratch->config.cleanup.mode = CLEANUP_REPORT;
    examine(scratch);
    assert_int_equal(written_count(&scratch->written, "trash"), 0);
}

static void a_group_that_is_not_there(void **state)
{
    struct scratch *scratch = *state;

    examine(scratch);
    assert_int_equal(written_count(&scratch->written, "socket_group"), 0);
    (void)snprintf(scratch->config.paths.socket_group, sizeof(scratch->config.paths.socket_group),
                   "nobody-has-such-a-group");
    examine(scratch);
    expect(scratch, "socket_group", "nobody-has-such-a-group", "error");
    (void)snprintf(scratch->config.paths.socket_group, sizeof(scratch->config.paths.socket_group),
                   "1234");
    examine(scratch);
    assert_int_equal(written_count(&scratch->written, "socket_group"), 0);
}

static void links_are_followed_inside_the_root(void **state)
{
    struct scratch *scratch = *state;

    scratch_make(scratch, "/data/kubelet/pods", 0755);
    scratch_make(scratch, "/var/lib", 0755);
    scratch_link(scratch, "/data/kubelet", "/var/lib/kubelet");
    scratch_link(scratch, "/data/nowhere/db", "/var/lib/crustd");
    examine(scratch);
    expect(scratch, "kubelet", "with its pods", "ok");
    expect(scratch, "database", "it can be written", "ok");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SCRATCH_TEST(an_empty_root),
        SCRATCH_TEST(a_node),
        SCRATCH_TEST(what_others_may_write),
        SCRATCH_TEST(what_is_no_directory),
        SCRATCH_TEST(a_kubelet_without_pods),
        SCRATCH_TEST(trash_matters_only_where_something_is_removed),
        SCRATCH_TEST(a_group_that_is_not_there),
        SCRATCH_TEST(links_are_followed_inside_the_root),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
