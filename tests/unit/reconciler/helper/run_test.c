/* SPDX-License-Identifier: Apache-2.0 */
/* run_test.c - one helper with a guest and a container that do as the test says: from its refusal
 * or record to its removal, and every way in which it can end; what the guest is asked, and what is
 * left on record and in the share. */
#include "tests/unit/reconciler/surroundings.h"

#include <sys/resource.h>

#include "agent-client/container_run.h"
#include "observe/kata.h"
#include "reconciler/helper/helper.h"

#define MOUNTS   "/run/kata-containers/shared/sandboxes/sandbox-1/mounts"
#define EARLIER  "crust-00000000000000aa"
#define PROGRAM  "/program"
#define IN_GUEST "/run/kata-containers/shared/containers/"
#define REPORTED(path)                                                                             \
    "{\"path\":\"" path "\",\"file_system\":\"ext4\",\"device\":\"254:16\",\"device_bytes\":1000," \
    "\"layer\":\"\",\"total\":900,\"used\":100,\"available\":800,\"total_inodes\":10,"             \
    "\"used_inodes\":1,\"available_inodes\":9,\"read_only\":false,\"condition\":\"normal\","       \
    "\"message\":\"\",\"error\":\"\",\"error_text\":\"\"}"
#define REPORT_OF(volumes) "{\"version\":1,\"volumes\":[" volumes "]}\n"
#define REPORT             REPORT_OF(REPORTED("/run/data"))

/* What was true when the container was started. */
struct container_run {
    struct container_request request;
    char id[64], directory[128], arguments[256];
    bool recorded, placed;
    container_done *done;
    void *userdata;
};

static struct {
    struct surroundings node;
    struct guest_traits traits;
    int unobservable; /* -errno: of the VMM nothing can be read */
    bool exhausts_descriptors, refuses_container;
    unsigned programs;
    struct container_run *container; /* that runs */
    unsigned containers;
    struct helper_run *run;
    unsigned ends;
    struct helper_outcome outcome;
    struct rlimit descriptors;
} test;

/* ---- the guest, the program and the container ---- */

int guest_traits_observe(const struct observe_sandbox_paths *paths, enum hypervisor_kind kind,
                         const char *sandbox_id, pid_t vmm_pid, struct guest_traits *ret_traits)
{
    assert_int_equal(paths->root, root);
    assert_int_equal(kind, HYPERVISOR_QEMU);
    assert_string_equal(sandbox_id, "sandbox-1");
    assert_int_equal(vmm_pid, 100);
    *ret_traits = test.traits;
    return test.unobservable;
}

int helper_program_open(const struct config *config, int *ret_fd, struct error *error)
{
    assert_ptr_equal(config, &test.node.config);
    test.programs++;
    *ret_fd = open(tree_path(PROGRAM), O_RDONLY | O_CLOEXEC);
    assert_true(*ret_fd >= 0);
    if (test.exhausts_descriptors) {
        struct rlimit none = {.rlim_max = test.descriptors.rlim_max};

        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    return HELPER_PROGRAM_OK;
}

static int64_t records(void)
{
    return number_of(test.node.context.store, "SELECT count(*) FROM helper_runs");
}

static bool share_has(const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof(path), MOUNTS "/%s", name);
    return tree_has(path);
}

static void join(const char *const *words, size_t size, char *ret_text)
{
    for (ret_text[0] = '\0'; *words; words++) {
        size_t length = strlen(ret_text);

        (void)snprintf(ret_text + length, size - length, "%s%s", length ? " " : "", *words);
    }
}

int container_run_new(const struct container_request *request, container_done *done, void *userdata,
                      struct container_run **ret_run)
{
    struct container_run *run;

    if (test.refuses_container)
        return -ENOMEM;
    *ret_run = test.container = run = calloc(1, sizeof(*run));
    assert_non_null(run);
    run->request = *request;
    run->done = done;
    run->userdata = userdata;
    /* No other process is taken for the agent, whether it is to run something or to clean up. */
    assert_int_equal(request->listener.vmm, 100);
    assert_string_equal(request->listener.sandbox_id, "sandbox-1");
    (void)snprintf(run->id, sizeof(run->id), "%s", request->container_id);
    (void)snprintf(run->directory, sizeof(run->directory), "%s",
                   request->directory ? request->directory : "none");
    join(request->arguments, sizeof(run->arguments), run->arguments);
    run->recorded = records() == 1;
    run->placed = share_has(run->id);
    test.containers++;
    return 0;
}

struct container_run *container_run_free(struct container_run *run)
{
    if (run)
        test.container = NULL;
    free(run);
    return NULL;
}

static void container_ends(const struct container_reply *reply)
{
    assert_non_null(test.container);
    test.container->done(test.container, reply, test.container->userdata);
    assert_null(test.container);
}

static void container_says(int exit_status, const char *output, const char *errors)
{
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE,
                                             .exit_status = exit_status,
                                             .output = output,
                                             .output_length = strlen(output),
                                             .errors = errors,
                                             .errors_length = strlen(errors)});
}

/* ---- the run ---- */

static void on_done(struct helper_run *run, const struct helper_outcome *outcome, void *userdata)
{
    assert_ptr_equal(userdata, &test);
    (void)setrlimit(RLIMIT_NOFILE, &test.descriptors);
    test.ends++;
    test.outcome = *outcome;
    assert_null(helper_run_free(run));
    test.run = NULL;
}

static struct store_helper_run the_sandbox(void)
{
    struct store_helper_run sandbox;

    assert_int_equal(
        store_get_helper_sandbox(test.node.context.store, test.node.bound.sandbox_ref, &sandbox),
        0);
    assert_true(sandbox.is_alive);
    return sandbox;
}

static void run_task(const struct helper_task *task)
{
    assert_int_equal(helper_run_new(&test.node.context, task, on_done, &test, &test.run), 0);
    assert_int_equal(test.ends + test.containers, 0); /* never from within */
    surroundings_turn(&test.node, 1);
}

static void grow(void)
{
    test.ends = test.containers = 0;
    run_task(&(struct helper_task){
        .sandbox = the_sandbox(), .grow = true, .paths = 1, .path = {"/run/data"}});
}

static void clean_up(void)
{
    struct store *store = test.node.context.store;
    struct store_helper_run sandbox = the_sandbox();

    (void)snprintf(sandbox.name, sizeof(sandbox.name), EARLIER);
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_put_helper_run(store, sandbox.sandbox_ref, sandbox.name, false), 0);
    assert_int_equal(store_commit(store), 0);
    run_task(&(struct helper_task){.sandbox = sandbox});
}

static void assert_ended(enum volume_reason reason, const char *text)
{
    assert_int_equal(test.ends, 1);
    if (test.outcome.reason != reason || (text && !strstr(test.outcome.error.text, text)))
        fail_msg("%s \"%s\", not %s \"%s\"", reason_name(test.outcome.reason),
                 test.outcome.error.text, reason_name(reason), text ? text : "");
}

static void assert_ability(const char *ability)
{
    const struct store_volume volume =
        get_volume(test.node.context.store, test.node.bound.volume_id);

    assert_string_equal(volume.ability[ROUTE_HELPER], ability);
}

/* Neither in the share nor on record. */
static void assert_nothing_is_left(void)
{
    assert_false(test.outcome.left);
    assert_int_equal(records(), 0);
    assert_int_equal(rmdir(tree_path(MOUNTS)), 0);
    tree_make(MOUNTS);
}

static int set_up(void **state)
{
    memset(&test, 0, sizeof(test));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &test.descriptors), 0);
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    test.node.config.resize.call_timeout_seconds = 30;
    test.traits.share = GUEST_SHARE_DIRECTORY;
    tree_make(MOUNTS);
    tree_write(PROGRAM, "program");
    return 0;
}

static int tear_down(void **state)
{
    assert_null(helper_run_free(test.run));
    assert_null(test.container);
    surroundings_end(&test.node);
    return 0;
}

/* ---- a whole run ---- */

static void a_helper_is_recorded_placed_run_and_removed(void **state)
{
    char name[64];

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
    assert_string_equal(test.container->arguments, "--once --timeout 20 /run/data /run/other");
    assert_false(test.container->request.for_drives);
    container_says(0, REPORT_OF(REPORTED("/run/data") "," REPORTED("/run/other")), "");
    assert_ended(REASON_NONE, NULL);
    assert_int_equal(test.outcome.report.volumes, 2);
    assert_int_equal(test.outcome.report.volume[1].stats.total, 900);
    assert_ability(ROUTE_ABLE);
    assert_false(share_has(name));
    assert_nothing_is_left();
}

static void a_helper_that_failed_on_a_volume_has_reported_all_the_same(void **state)
{
    grow();
    container_says(1, REPORT, "");
    assert_ended(REASON_NONE, NULL);
    assert_int_equal(test.outcome.report.volume[0].device_bytes, 1000);
    assert_ability(ROUTE_ABLE);
    assert_nothing_is_left();
}

static void a_helper_that_only_reports_is_not_journaled(void **state)
{
    test.node.config.resize.call_timeout_seconds = 2;
    run_task(&(struct helper_task){.sandbox = the_sandbox(), .paths = 1, .path = {"/run/data"}});
    assert_true(test.container->recorded);
    assert_string_equal(test.container->arguments, "--once --report --timeout 1 /run/data");
    assert_int_equal(lines_of(test.node.context.store, "helper_intended"), 0);
    container_says(0, REPORT, "");
    assert_ended(REASON_NONE, NULL);
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

    grow();
    (void)snprintf(name, sizeof(name), "%s", test.container->id);
    test.run = helper_run_free(test.run);
    assert_null(test.container);
    assert_int_equal(test.ends, 0);
    assert_true(share_has(name));
    assert_int_equal(records(), 1);
}

/* ---- a call of a drive ---- */

static void on_answered(struct helper_run *run, const struct helper_outcome *outcome,
                        void *userdata)
{
    assert_int_equal(outcome->answer_length, strlen("answer"));
    assert_memory_equal(outcome->answer, "answer", outcome->answer_length);
    on_done(run, outcome, userdata);
}

static void a_call_of_a_drive_has_its_own_answer(void **state)
{
    const struct helper_task task = {.sandbox = the_sandbox(), .call = "call"};

    assert_int_equal(helper_run_new(&test.node.context, &task, on_answered, &test, &test.run), 0);
    surroundings_turn(&test.node, 1);
    assert_string_equal(test.container->arguments, "--drive call");
    assert_true(test.container->request.for_drives);
    assert_true(test.container->recorded && test.container->placed);
    assert_false(helper_name_is_ours(test.container->id)); /* by whoever looks for remains */
    container_says(1, "answer", "");
    assert_ended(REASON_NONE, NULL);
    assert_nothing_is_left();
    test.ends = test.containers = 0;
    run_task(&task);
    container_says(2, "", "no such call");
    assert_ended(REASON_HELPER_FAILED, "ended with 2");
    test.ends = test.containers = 0;
    run_task(&task);
    container_ends(&(struct container_reply){.kind = CONTAINER_DENIED});
    assert_ended(REASON_AGENT_POLICY_DENIED, NULL);
    assert_ability(""); /* it may still allow what volumes need */
}

/* ---- refusals before anything is made ---- */

static void a_guest_that_is_unknown_may_be_confidential(void **state)
{
    test.unobservable = -ESRCH;
    grow();
    assert_ended(REASON_AGENT_UNREACHABLE, "does not tell whether its guest is confidential");
    assert_int_equal(test.programs, 0);
    assert_ability(""); /* it may be told the next time */
}

/* Nothing will ever tell, so asking again is of no use: the guest needs an agent of its own. */
static void guest_of_unknown_traits_is_not_tried_again(void **state)
{
    test.unobservable = GUEST_TRAITS_NO_SOURCE;
    grow();
    assert_ended(REASON_AGENT_UNSUPPORTED, "crustd does not know how to find out for QEMU");
    assert_int_equal(test.programs, 0);
    assert_ability("agent_unsupported");
    assert_nothing_is_left();
}

static void sandbox_without_a_share_is_reported(void **state)
{
    tree_remove(MOUNTS);
    grow();
    assert_ended(REASON_HELPER_NO_SHARE, "sandbox-1/mounts");
    assert_int_equal(records(), 0);
    assert_int_equal(lines_of(test.node.context.store, "helper_intended"), 0);
}

static void lack_of_descriptors_is_no_verdict_on_the_share(void **state)
{
    test.exhausts_descriptors = true;
    grow();
    assert_ended(REASON_HELPER_FAILED, "sandbox-1/mounts");
}

static void a_helper_that_cannot_be_recorded_is_not_placed(void **state)
{
    fail_writes(test.node.context.store);
    grow();
    assert_ended(REASON_HELPER_FAILED, "cannot be put on record");
    assert_int_equal(test.containers, 0);
    assert_nothing_is_left();
}

static void a_container_that_cannot_be_started_leaves_nothing(void **state)
{
    test.refuses_container = true;
    grow();
    assert_ended(REASON_HELPER_FAILED, "cannot be started");
    assert_nothing_is_left();
}

static void a_volume_without_a_place_in_the_guest_is_not_looked_for(void **state)
{
    struct helper_task task = {.sandbox = the_sandbox()};

    run_task(&task);
    assert_ended(REASON_GUEST_PATH_UNKNOWN, "nothing says where the guest has mounted this volume");
    test.ends = 0;
    task.withheld = true;
    run_task(&task);
    assert_ended(REASON_GUEST_PATH_UNKNOWN, "a volume is that must not grow");
    test.ends = 0;
    task.sandbox.is_alive = false;
    task.paths = 1;
    task.path[0] = "/run/data";
    run_task(&task);
    assert_ended(REASON_AGENT_UNREACHABLE, "the sandbox has ended");
    assert_int_equal(test.programs, 0);
}

/* ---- clean-ups ---- */

static void leftovers_of_an_earlier_run_are_removed(void **state)
{
    tree_make(MOUNTS "/" EARLIER "/proc");
    clean_up();
    assert_int_equal(test.container->request.act, CONTAINER_CLEAN_UP);
    assert_string_equal(test.container->id, EARLIER);
    assert_string_equal(test.container->directory, IN_GUEST EARLIER);
    assert_int_equal(test.programs, 0);
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE});
    assert_ended(REASON_NONE, NULL);
    assert_nothing_is_left();
    assert_int_equal(lines_of(test.node.context.store, "helper_removed"), 1);
    assert_ability(""); /* says nothing of helpers to come */
}

static void a_directory_that_is_gone_is_not_named_to_the_agent(void **state)
{
    clean_up();
    assert_string_equal(test.container->directory, "none");
    assert_null(test.container->request.program);
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE});
    assert_nothing_is_left();
}

static void a_guest_without_a_share_is_cleaned_up_where_programs_are_copied_to(void **state)
{
    test.traits.share = GUEST_SHARE_NONE;
    clean_up();
    assert_true(test.container->request.copied);
    assert_string_equal(test.container->directory, IN_GUEST "crust-helper");
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE});
    assert_nothing_is_left();
}

/* The VMM may tell later whether the program was copied. */
static void a_guest_that_is_unknown_may_have_the_program(void **state)
{
    test.unobservable = -ETIMEDOUT;
    clean_up();
    assert_int_equal(test.containers, 0);
    assert_ended(REASON_HELPER_FAILED, "whether the program was copied into the guest");
    assert_non_null(strstr(test.outcome.removal_error.text, "arguments of its process"));
    assert_true(test.outcome.left);
    assert_int_equal(records(), 1);
}

/* Where the share has the directory, the program was not copied. */
static void a_directory_of_an_unknown_guest_is_removed(void **state)
{
    test.unobservable = -ETIMEDOUT;
    tree_make(MOUNTS "/" EARLIER "/proc");
    clean_up();
    assert_false(test.container->request.copied);
    assert_string_equal(test.container->directory, IN_GUEST EARLIER);
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE});
    assert_nothing_is_left();
}

static void a_clean_up_that_cannot_start_is_due_again(void **state)
{
    tree_make(MOUNTS "/" EARLIER);
    test.refuses_container = true;
    clean_up();
    assert_ended(REASON_HELPER_FAILED, "the clean-up cannot be started");
    assert_true(test.outcome.left);
    assert_true(share_has(EARLIER));
    assert_int_equal(records(), 1);
    assert_int_equal(lines_of(test.node.context.store, "helper_removed"), 0);
}

static void a_container_that_will_not_go_stays_on_record(void **state)
{
    struct container_reply left = {.kind = CONTAINER_UNREACHABLE, .left = true};

    tree_make(MOUNTS "/" EARLIER);
    clean_up();
    container_ends(&left);
    assert_ended(REASON_AGENT_UNREACHABLE, NULL);
    assert_true(share_has(EARLIER));
    assert_int_equal(records(), 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_guest_that_is_unknown_may_be_confidential),
        TEST(guest_of_unknown_traits_is_not_tried_again),
        TEST(sandbox_without_a_share_is_reported),
        TEST(lack_of_descriptors_is_no_verdict_on_the_share),
        TEST(a_helper_that_cannot_be_recorded_is_not_placed),
        TEST(a_container_that_cannot_be_started_leaves_nothing),
        TEST(a_volume_without_a_place_in_the_guest_is_not_looked_for),
        TEST(a_helper_is_recorded_placed_run_and_removed),
        TEST(a_helper_that_failed_on_a_volume_has_reported_all_the_same),
        TEST(a_helper_that_only_reports_is_not_journaled),
        TEST(each_answer_of_the_agent_has_its_reason),
        TEST(a_program_that_ends_without_a_report_has_failed),
        TEST(program_that_the_guest_cannot_execute_is_reported),
        TEST(a_container_that_is_left_keeps_directory_and_record),
        TEST(a_directory_with_something_else_in_it_stays_on_record),
        TEST(an_end_that_cannot_be_recorded_stays_on_record),
        TEST(a_run_that_is_given_up_stays_on_record),
        TEST(a_call_of_a_drive_has_its_own_answer),
        TEST(leftovers_of_an_earlier_run_are_removed),
        TEST(a_directory_that_is_gone_is_not_named_to_the_agent),
        TEST(a_guest_without_a_share_is_cleaned_up_where_programs_are_copied_to),
        TEST(a_guest_that_is_unknown_may_have_the_program),
        TEST(a_directory_of_an_unknown_guest_is_removed),
        TEST(a_clean_up_that_cannot_start_is_due_again),
        TEST(a_container_that_will_not_go_stays_on_record),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
