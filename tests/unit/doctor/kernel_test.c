/* SPDX-License-Identifier: Apache-2.0 */
/* kernel_test.c - each thing that a kernel, a filter or a namespace can take away. */
#include "tests/unit/doctor/findings.h"

#include <errno.h>

#include "doctor/checks.h"

static const struct kernel_facts well = {
    .release = "6.1.0-18-amd64",
    .large_buffer = true,
    .now_seconds = 1750000000,
    .may_trace = true,
    .user_is_first = true,
    .shows_all_processes = true,
};

static void expect(const struct kernel_facts *facts, const char *id, const char *text,
                   const char *level)
{
    struct written written;

    written_begin(&written);
    kernel_judge(facts, &written.findings);
    kernel_judge_process(facts, &written.findings);
    written_end(&written);
    written_expect(&written, id, text, level);
    written_done(&written);
}

static void a_suitable_kernel_has_no_findings(void **state)
{
    struct written written;
    const cJSON *finding;

    (void)state;
    written_begin(&written);
    kernel_judge(&well, &written.findings);
    kernel_judge_process(&well, &written.findings);
    written_end(&written);
    assert_int_equal(cJSON_GetArraySize(written.list), 6);
    cJSON_ArrayForEach(finding, written.list)
    {
        assert_string_equal(json_string(finding, "level"), "ok");
    }
    written_done(&written);
}

static void versions(void **state)
{
    struct kernel_facts facts = well;

    (void)state;
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

    (void)state;
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

    (void)state;
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

    (void)state;
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
    struct kernel_facts facts;

    (void)state;
    kernel_read(&facts);
    assert_int_equal(facts.openat2, 0);
    assert_int_equal(facts.pidfd_open, 0);
    assert_true(facts.release[0] >= '4' && facts.release[0] <= '9');
    assert_true(facts.now_seconds > well.now_seconds);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_suitable_kernel_has_no_findings),
        cmocka_unit_test(versions),
        cmocka_unit_test(calls_that_are_refused),
        cmocka_unit_test(missing_rights_of_the_examiner_are_reported),
        cmocka_unit_test(namespaces),
        cmocka_unit_test(this_kernel_is_read),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
