/* SPDX-License-Identifier: Apache-2.0 */
/* run_test.c - one helper from its record to its removal, and every way in which it can end. */
#include "tests/unit/reconciler/helper/run_fixture.h"

/* ---- a whole run ---- */

static void a_helper_is_recorded_placed_run_and_removed(void **state)
{
    char name[64];

    (void)state;
    run_task(&(struct helper_task){
        .sandbox = the_sandbox(), .grow = true, .paths = 2, .path = {"/run/data", "/run/other"}});
    assert_non_null(test.container);
    assert_true(test.container->recorded);
    assert_true(test.container->placed);
    assert_int_equal(lines_of(test.node.context.store, "helper_intended"), 1);
    assert_int_equal(test.container->request.act, CONTAINER_RUN);
    assert_string_equal(test.container->request.address, "vsock://3:1024");
    assert_string_equal(test.container->request.program, HELPER_PROGRAM_NAME);
    assert_false(test.container->request.copied);
    assert_int_equal(test.container->request.step_ns, 30 * NSEC_PER_SEC);
    assert_int_equal(test.container->request.total_ns, 60 * NSEC_PER_SEC);
    assert_true(helper_name_is_ours(test.container->id));
    assert_string_equal(helper_run_name(test.run), test.container->id);
    (void)snprintf(name, sizeof(name), "%s", test.container->id);
    assert_string_equal(test.container->directory + strlen(IN_GUEST), name);
    assert_string_equal(test.container->arguments, "--once --timeout 20 /vol/0 /vol/1");
    assert_string_equal(test.container->paths, "/run/data /run/other");
    container_says(0, REPORT_OF(REPORTED("/vol/0") "," REPORTED("/vol/1")), "");
    assert_ended(REASON_NONE, NULL);
    assert_int_equal(test.outcome.report.volumes, 2);
    assert_int_equal(test.outcome.report.volume[1].stats.total, 900);
    assert_ability(ROUTE_ABLE);
    assert_false(share_has(name));
    assert_nothing_is_left();
}

static void a_helper_that_failed_on_a_volume_has_reported_all_the_same(void **state)
{
    (void)state;
    grow();
    container_says(1, REPORT, "");
    assert_ended(REASON_NONE, NULL);
    assert_int_equal(test.outcome.report.volume[0].device_bytes, 1000);
    assert_ability(ROUTE_ABLE);
    assert_nothing_is_left();
}

static void a_helper_that_only_reports_is_not_journaled(void **state)
{
    (void)state;
    test.node.config.resize.call_timeout_seconds = 2;
    run_task(&(struct helper_task){.sandbox = the_sandbox(), .paths = 1, .path = {"/run/data"}});
    assert_true(test.container->recorded);
    assert_string_equal(test.container->arguments, "--once --report --timeout 1 /vol/0");
    assert_int_equal(lines_of(test.node.context.store, "helper_intended"), 0);
    container_says(0, REPORT, "");
    assert_ended(REASON_NONE, NULL);
}

static void the_program_is_copied_into_a_guest_without_a_share(void **state)
{
    (void)state;
    test.traits.share = GUEST_SHARE_NONE;
    grow();
    assert_true(test.container->request.copied);
    assert_true(test.container->request.program_file >= 0);
    assert_string_equal(test.container->directory, IN_GUEST "crust-helper");
    assert_false(test.container->placed);
    container_says(0, REPORT, "");
    assert_ended(REASON_NONE, NULL);
    assert_nothing_is_left();
}

static void a_guest_of_the_rust_runtime_sees_its_own_directory(void **state)
{
    struct helper_task task = {.sandbox = the_sandbox(), .paths = 1, .path = {"/run/data"}};

    (void)state;
    tree_make("/run/kata-containers/shared/sandboxes/sandbox-1/rw/passthrough");
    task.sandbox.runtime = RUNTIME_KATA_RS;
    run_task(&task);
    assert_memory_equal(test.container->directory, IN_GUEST "passthrough/crust-",
                        strlen(IN_GUEST "passthrough/crust-"));
    assert_false(test.container->placed);
    container_says(0, REPORT, "");
    assert_nothing_is_left();
}

/* ---- the container's end ---- */

static void each_answer_of_the_agent_has_its_reason(void **state)
{
    static const struct {
        enum container_kind kind;
        enum volume_reason reason;
        const char *ability; /* NULL: as before */
    } table[] = {
        {CONTAINER_TIMED_OUT, REASON_HELPER_FAILED, NULL},
        {CONTAINER_FAILED, REASON_HELPER_FAILED, NULL},
        {CONTAINER_UNREACHABLE, REASON_AGENT_UNREACHABLE, NULL},
        {CONTAINER_DENIED, REASON_AGENT_POLICY_DENIED, "agent_policy_denied"},
        {CONTAINER_UNSUPPORTED, REASON_AGENT_UNSUPPORTED, "agent_unsupported"},
        {CONTAINER_NO_CGROUPS, REASON_HELPER_NO_CGROUPS, "helper_no_cgroups"},
    };
    const char *ability = "";

    (void)state;
    for (size_t i = 0; i < array_length(table); i++) {
        struct container_reply reply = {.kind = table[i].kind};

        (void)error_set(&reply.error, 0, "it says no");
        grow();
        container_ends(&reply);
        assert_ended(table[i].reason, "helper: it says no");
        ability = table[i].ability ? table[i].ability : ability;
        assert_ability(ability);
        assert_nothing_is_left();
    }
}

static void a_program_that_ends_without_a_report_has_failed(void **state)
{
    static const struct {
        int exit_status;
        const char *output, *errors;
        enum volume_reason reason;
        const char *text;
    } table[] = {
        {0, "", "", REASON_AGENT_POLICY_DENIED, "hides what it printed"},
        {1, "", "", REASON_AGENT_POLICY_DENIED, "hides what it printed"},
        {0, "ha", "", REASON_HELPER_FAILED, ""},
        {7, REPORT, "no\033 memory\n", REASON_HELPER_FAILED, "ended with 7: no"},
    };

    (void)state;
    for (size_t i = 0; i < array_length(table); i++) {
        grow();
        container_says(table[i].exit_status, table[i].output, table[i].errors);
        assert_ended(table[i].reason, table[i].text);
        assert_null(strchr(test.outcome.error.text, '\033'));
        assert_nothing_is_left();
    }
}

static void program_that_the_guest_cannot_execute_is_reported(void **state)
{
    (void)state;
    grow();
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE, .not_executed = true});
    assert_ended(REASON_HELPER_WRONG_ARCHITECTURE, "cannot execute");
    assert_nothing_is_left();
}

/* Finding it again takes the program in its directory. */
static void a_container_that_is_left_keeps_directory_and_record(void **state)
{
    struct container_reply left = {.kind = CONTAINER_TIMED_OUT, .left = true};
    char name[64];

    (void)state;
    (void)error_set(&left.removal_error, 0, "busy");
    grow();
    (void)snprintf(name, sizeof(name), "%s", test.container->id);
    container_ends(&left);
    assert_ended(REASON_HELPER_FAILED, NULL);
    assert_true(test.outcome.left);
    assert_string_equal(test.outcome.removal_error.text, "busy");
    assert_true(share_has(name));
    assert_int_equal(records(), 1);
}

static void a_directory_with_something_else_in_it_stays_on_record(void **state)
{
    char path[256];

    (void)state;
    grow();
    (void)snprintf(path, sizeof(path), MOUNTS "/%s/other", test.container->id);
    tree_make(path);
    container_says(0, REPORT, "");
    assert_ended(REASON_NONE, NULL); /* the volume has grown all the same */
    assert_true(test.outcome.left);
    assert_non_null(strstr(test.outcome.removal_error.text, "shared directory"));
    assert_true(tree_has(path));
    assert_int_equal(records(), 1);
}

static void an_end_that_cannot_be_recorded_stays_on_record(void **state)
{
    (void)state;
    grow();
    fail_writes(test.node.context.store);
    container_says(0, REPORT, "");
    assert_ended(REASON_NONE, NULL);
    assert_int_equal(records(), 1); /* the next start finds nothing there */
    assert_ability("");
}

static void a_run_that_is_given_up_stays_on_record(void **state)
{
    char name[64];

    (void)state;
    grow();
    (void)snprintf(name, sizeof(name), "%s", test.container->id);
    test.run = helper_run_free(test.run);
    assert_null(test.container);
    assert_int_equal(test.ends, 0);
    assert_true(share_has(name));
    assert_int_equal(records(), 1);
}

/* ---- with arguments of the caller's ---- */

static const char *const look[] = {"--drive", "look", "crust-abcdefghijk237", "/vol/0", NULL};

static void look_at_drive(void)
{
    test.ends = test.containers = 0;
    run_task(&(struct helper_task){
        .sandbox = the_sandbox(), .paths = 1, .path = {"/run/data"}, .arguments = look});
}

static void a_drives_helper_has_its_own_arguments_and_line(void **state)
{
    (void)state;
    look_at_drive();
    assert_string_equal(test.container->arguments, "--drive look crust-abcdefghijk237 /vol/0");
    assert_string_equal(test.container->paths, "/run/data");
    assert_true(test.container->recorded && test.container->placed);
    assert_false(helper_name_is_ours(test.container->id)); /* by whoever looks for remains */
    container_says(1, "{\"version\":1}\n", "");
    assert_ended(REASON_NONE, NULL);
    assert_string_equal(test.outcome.line, "{\"version\":1}\n");
    assert_nothing_is_left();
    test.ends = test.containers = 0;
    run_task(&(struct helper_task){.sandbox = the_sandbox(), .arguments = look});
    assert_string_equal(test.container->paths, "");
    container_says(2, "", "no such act");
    assert_ended(REASON_HELPER_FAILED, "ended with 2");
}

static void a_line_has_a_bound(void **state)
{
    char line[HELPER_LINE_BYTES + 1];

    (void)state;
    memset(line, 'x', HELPER_LINE_BYTES);
    line[HELPER_LINE_BYTES] = '\0';
    look_at_drive();
    container_says(0, line, "");
    assert_ended(REASON_HELPER_FAILED, "printed too much");
}

static void container_that_was_not_created_is_reported(void **state)
{
    (void)state;
    look_at_drive();
    container_ends(&(struct container_reply){.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE});
    assert_ended(REASON_HELPER_FAILED, NULL);
    assert_true(test.outcome.not_created);
    look_at_drive();
    container_ends(&(struct container_reply){
        .kind = CONTAINER_FAILED, .step = CONTAINER_CREATE, .left = true});
    assert_false(test.outcome.not_created);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_helper_is_recorded_placed_run_and_removed),
        TEST(a_helper_that_failed_on_a_volume_has_reported_all_the_same),
        TEST(a_helper_that_only_reports_is_not_journaled),
        TEST(the_program_is_copied_into_a_guest_without_a_share),
        TEST(a_guest_of_the_rust_runtime_sees_its_own_directory),
        TEST(each_answer_of_the_agent_has_its_reason),
        TEST(a_program_that_ends_without_a_report_has_failed),
        TEST(program_that_the_guest_cannot_execute_is_reported),
        TEST(a_container_that_is_left_keeps_directory_and_record),
        TEST(a_directory_with_something_else_in_it_stays_on_record),
        TEST(an_end_that_cannot_be_recorded_stays_on_record),
        TEST(a_run_that_is_given_up_stays_on_record),
        TEST(a_drives_helper_has_its_own_arguments_and_line),
        TEST(a_line_has_a_bound),
        TEST(container_that_was_not_created_is_reported),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
