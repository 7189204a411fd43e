/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_test.c - each thing that a kernel, a filter or a namespace can take away. */
#include "tests/unit/doctor/node.h"

#include <errno.h>

#include "doctor/checks.h"

static const struct kernel_facts well = {
    .release = "6.1.0-18-amd64",
    .large_buffer = true,
    .now_seconds = 1750000000,
    .may_trace = true,
    .user_is_first = true,
    .shows_all_processes = true,
    .max_instances = 128,
    .max_watches = 8192,
    .directories = 4000,
};

static void expect(const struct kernel_facts *facts, const char *id, const char *text,
                   const char *level)
{
    struct written written;

    written_begin(&written);
    kernel_judge(facts, &written.findings);
    written_end(&written);
    written_expect(&written, id, text, level);
    written_done(&written);
}

static void a_suitable_kernel_has_no_findings(void **state)
{
    struct written written;
    const cJSON *finding;

    written_begin(&written);
    kernel_judge(&well, &written.findings);
    written_end(&written);
    assert_int_equal(cJSON_GetArraySize(written.list), 7);
    cJSON_ArrayForEach(finding, written.list)
    {
        assert_string_equal(json_string(finding, "level"), "ok");
    }
    written_done(&written);
}

static void versions(void **state)
{
    struct kernel_facts facts = well;

    expect(&facts, "kernel", "Linux 6.1.0-18-amd64", "ok");
    (void)snprintf(facts.release, sizeof(facts.release), "5.15.0");
    expect(&facts, "kernel", "diskseq", "ok");
    (void)snprintf(facts.release, sizeof(facts.release), "5.14.0-427.el9");
    expect(&facts, "kernel", "without diskseq", "warning");
    (void)snprintf(facts.release, sizeof(facts.release), "5.10.0");
    expect(&facts, "kernel", "before 5.11", "warning");
    (void)snprintf(facts.release, sizeof(facts.release), "4.18.0");
    expect(&facts, "kernel", "before 5.11", "warning");
}

static void calls_that_are_refused(void **state)
{
    struct kernel_facts facts = well;

    facts.openat2 = -ENOSYS;
    expect(&facts, "kernel", "openat2: Function not implemented", "error");
    facts.openat2 = 0;
    facts.pidfd_open = -EPERM;
    expect(&facts, "kernel", "pidfd_open: Operation not permitted", "error");
    facts.uevents = -EAFNOSUPPORT;
    expect(&facts, "uevents", "can't be listened to", "error");
    facts.uevents = 0;
    facts.large_buffer = false;
    expect(&facts, "uevents", "a storm of them overflows", "warning");
    facts.vsock = EPERM;
    expect(&facts, "vsock", "Operation not permitted", "error");
    facts.vsock = EAFNOSUPPORT;
    expect(&facts, "vsock", "no vsock now", "warning");
    facts.now_seconds = 86400;
    expect(&facts, "clock", "years behind", "warning");
}

static void missing_rights_of_the_examiner_are_reported(void **state)
{
    struct kernel_facts facts = well;

    facts.first_process = -EACCES;
    expect(&facts, "processes", "process 1 cannot be observed (Permission denied)", "warning");
    facts.may_trace = false;
    expect(&facts, "processes", "a VMM's root", "error");
    facts.uid = 1000;
    expect(&facts, "root", "uid 1000", "error");
}

static void namespaces(void **state)
{
    struct kernel_facts facts = well;

    facts.user_is_first = false;
    expect(&facts, "user_namespace", "not the node's", "error");
    expect(&facts, "pid_namespace", "the node's", "ok");
    facts.user_is_first = true;
    facts.shows_all_processes = false;
    expect(&facts, "user_namespace", "the node's", "ok");
    expect(&facts, "pid_namespace", "not the node's", "error");
}

static void this_kernel_is_read(void **state)
{
    struct node *node = *state;
    struct kernel_facts facts, more;

    kernel_read(node->root, &node->config, &facts);
    assert_int_equal(facts.openat2, 0);
    assert_int_equal(facts.pidfd_open, 0);
    assert_true(facts.release[0] >= '4' && facts.release[0] <= '9');
    assert_true(facts.now_seconds > well.now_seconds);
    assert_true(facts.max_watches > 0);
    assert_true(facts.max_instances > 0);
    node_make(node, "/run/crust/a", 0700);
    node_make(node, "/run/crust/b", 0700);
    node_make(node, "/run/vc/vm/c", 0700);
    node_write(node, "/run/crust/file", "");
    kernel_read(node->root, &node->config, &more);
    assert_int_equal(more.directories - facts.directories, 3);
}

static void limits_of_watches(void **state)
{
    struct kernel_facts facts = well;

    expect(&facts, "inotify", "4000 directories to watch, of 8192", "ok");
    facts.directories = 4097;
    expect(&facts, "inotify", "4097 directories are to be watched", "warning");
    facts.watch = -ENOSPC;
    expect(&facts, "inotify", "No space left", "warning");
    facts.inotify = -EMFILE;
    expect(&facts, "inotify", "Too many open files", "error");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_suitable_kernel_has_no_findings),
        cmocka_unit_test(versions),
        cmocka_unit_test(calls_that_are_refused),
        cmocka_unit_test(missing_rights_of_the_examiner_are_reported),
        cmocka_unit_test(namespaces),
        cmocka_unit_test(limits_of_watches),
        NODE_TEST(this_kernel_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
