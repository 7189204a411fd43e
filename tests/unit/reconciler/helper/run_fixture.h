/* SPDX-License-Identifier: Apache-2.0 */
/* run_fixture.h - one helper with a guest and a container that do as the test says: what the guest
 * is asked, and what is left on record and in the share. */
#pragma once

#include "tests/unit/reconciler/surroundings.h"

#include <sys/resource.h>

#include "agent-client/container_run.h"
#include "observe/guest_traits.h"
#include "reconciler/helper/report.h"
#include "reconciler/helper/run.h"
#include "reconciler/helper/share.h"

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
#define REPORT             REPORT_OF(REPORTED("/vol/0"))

/* What was true when the container was started. */
struct container_run {
    struct container_request request;
    char id[64], directory[128], arguments[256], paths[128];
    bool recorded, placed;
    container_done *done;
    void *userdata;
};

static struct {
    struct surroundings node;
    struct guest_traits traits;
    int unobservable;   /* -errno: of the VMM nothing can be read */
    int program_result; /* of helper_program_open() */
    bool program_is_unreadable, exhausts_descriptors, refuses_container;
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
    if (test.program_result != HELPER_PROGRAM_OK)
        return error_set(error, test.program_result, "no such program");
    *ret_fd = open(tree_path(test.program_is_unreadable ? "" : PROGRAM), O_RDONLY | O_CLOEXEC);
    assert_true(*ret_fd >= 0);
    if (test.exhausts_descriptors) {
        struct rlimit none = {.rlim_max = test.descriptors.rlim_max};

        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    }
    return HELPER_PROGRAM_OK;
}

static inline int64_t records(void)
{
    return number_of(test.node.context.store, "SELECT count(*) FROM helper_runs");
}

static inline bool share_has(const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof(path), MOUNTS "/%s", name);
    return tree_has(path);
}

static inline void join(const char *const *words, size_t size, char *ret_text)
{
    for (ret_text[0] = '\0'; *words; words++) {
        size_t length = strlen(ret_text);

        (void)snprintf(ret_text + length, size - length, "%s%s", length ? " " : "", *words);
    }
}

int container_run_new(struct loop *loop, const struct container_request *request,
                      container_done *done, void *userdata, struct container_run **ret_run)
{
    struct container_run *run;

    assert_ptr_equal(loop, &test.node.loop);
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
    join(request->volume_paths, sizeof(run->paths), run->paths);
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

static inline void container_ends(const struct container_reply *reply)
{
    assert_non_null(test.container);
    test.container->done(test.container, reply, test.container->userdata);
    assert_null(test.container);
}

static inline void container_says(int exit_status, const char *output, const char *errors)
{
    container_ends(&(struct container_reply){.kind = CONTAINER_DONE,
                                             .exit_status = exit_status,
                                             .output = output,
                                             .output_length = strlen(output),
                                             .errors = errors,
                                             .errors_length = strlen(errors)});
}

/* ---- the run ---- */

static inline void on_done(struct helper_run *run, const struct helper_outcome *outcome,
                           void *userdata)
{
    assert_ptr_equal(userdata, &test);
    (void)setrlimit(RLIMIT_NOFILE, &test.descriptors);
    test.ends++;
    test.outcome = *outcome;
    assert_null(helper_run_free(run));
    test.run = NULL;
}

static inline struct store_helper_run the_sandbox(void)
{
    struct store_helper_run sandbox;

    assert_int_equal(
        store_get_helper_sandbox(test.node.context.store, test.node.bound.sandbox_ref, &sandbox),
        0);
    assert_true(sandbox.is_alive);
    return sandbox;
}

static inline void run_task(const struct helper_task *task)
{
    assert_int_equal(helper_run_new(&test.node.context, task, on_done, &test, &test.run), 0);
    assert_int_equal(test.ends + test.containers, 0); /* never from within */
    surroundings_turn(&test.node, 1);
}

static inline void grow(void)
{
    test.ends = test.containers = 0;
    run_task(&(struct helper_task){
        .sandbox = the_sandbox(), .grow = true, .paths = 1, .path = {"/run/data"}});
}

static inline void clean_up(bool is_alive)
{
    struct store *store = test.node.context.store;
    struct store_helper_run sandbox = the_sandbox();

    (void)snprintf(sandbox.name, sizeof(sandbox.name), EARLIER);
    sandbox.is_alive = is_alive;
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(store_put_helper_run(store, sandbox.sandbox_ref, sandbox.name, false), 0);
    assert_int_equal(store_commit(store), 0);
    assert_int_equal(helper_run_clean_up(&test.node.context, &sandbox, on_done, &test, &test.run),
                     0);
    assert_int_equal(test.ends + test.containers, 0);
    surroundings_turn(&test.node, 1);
}

static inline void assert_ended(enum volume_reason reason, const char *text)
{
    assert_int_equal(test.ends, 1);
    if (test.outcome.reason != reason || (text && !strstr(test.outcome.error.text, text)))
        fail_msg("%s \"%s\", not %s \"%s\"", reason_name(test.outcome.reason),
                 test.outcome.error.text, reason_name(reason), text ? text : "");
}

static inline void assert_ability(const char *ability)
{
    const struct store_volume volume =
        get_volume(test.node.context.store, test.node.bound.volume_id);

    assert_string_equal(volume.ability[ROUTE_HELPER], ability);
}

/* Neither in the share nor on record. */
static inline void assert_nothing_is_left(void)
{
    assert_false(test.outcome.left);
    assert_int_equal(records(), 0);
    assert_int_equal(rmdir(tree_path(MOUNTS)), 0);
    tree_make(MOUNTS);
}

static inline int set_up(void **state)
{
    (void)state;
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

static inline int tear_down(void **state)
{
    (void)state;
    assert_null(helper_run_free(test.run));
    assert_null(test.container);
    surroundings_end(&test.node);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
