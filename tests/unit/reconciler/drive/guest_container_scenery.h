/* SPDX-License-Identifier: Apache-2.0 */
/* guest_container_scenery.h - a guest that has only kata-agent: helpers and the agent answer as the
 * test says.
 */
#pragma once

#include "tests/unit/reconciler/surroundings.h"

#include "agent-client/container_run.h"
#include "agent-client/drive_client.h"
#include "reconciler/drive/guest.h"
#include "reconciler/helper/helper.h"
#include "reconciler/helper/report.h"
#include "reconciler/helper/run.h"
#include "reconciler/helper/targets.h"

#define SERIAL "crust-abcdefghijk237"
#define SHARE  "/run/kata-containers/shared/sandboxes/sandbox-1/mounts"
#define HELD   SHARE "/" SERIAL
#define HELPER "crust-x123456789abcdef"

struct helper_run {
    helper_run_done *done;
    void *userdata;
};

struct container_run {
    container_done *done;
    void *userdata;
};

struct helper_guest {
    helper_guest_done *done;
    void *userdata;
    struct loop_timer timer;
};

static struct {
    struct surroundings node;
    struct store_drive_mount drive;
    struct drive_guest_call *call;
    unsigned ends;
    const char *at;       /* the disk's address */
    uint64_t deadline_ns; /* 0: enough */
    struct drive_guest_reply reply;
    enum guest_share guest_share;
    bool is_unknown;     /* the guest, to its VMM */
    unsigned companions; /* how often crust-guest-agent was looked for */
    struct helper_run *helper;
    char arguments[512], paths[512];
    bool grow, in_mounts_of_agent;
    const char *helper_name; /* NULL: it has its usual one */
    unsigned leftovers;      /* of helpers, all and those that were not tried to remove */
    unsigned passed_on;
    struct container_run *container;
    struct container_request request;
    struct container_storage storage;
    char container_arguments[256], options[256], directory[128], mount_point[128];
    int program_result;
} test;

/* ---- the guest ---- */

static void on_nobody(struct loop_timer *timer);

struct drive_client {
    drive_client_done *done;
    void *userdata;
    struct loop_timer timer;
};

static void on_nobody(struct loop_timer *timer)
{
    struct drive_client *client = container_of(timer, struct drive_client, timer);
    const struct drive_client_reply reply = {.outcome = DRIVE_CLIENT_ABSENT,
                                             .status = STATUS_UNAVAILABLE};

    client->done(client, &reply, client->userdata);
}

int drive_client_new(struct loop *loop, const struct drive_client_request *request,
                     drive_client_done *done, void *userdata, struct drive_client **ret_client)
{
    (void)request;
    test.companions++;
    *ret_client = calloc(1, sizeof(**ret_client));
    assert_non_null(*ret_client);
    **ret_client = (struct drive_client){.done = done, .userdata = userdata};
    loop_timer_start(loop, &(*ret_client)->timer, 0, on_nobody);
    return 0;
}

struct drive_client *drive_client_free(struct drive_client *client)
{
    if (client)
        loop_timer_stop(&client->timer);
    free(client);
    return NULL;
}

static void on_described(struct loop_timer *timer)
{
    struct helper_guest *guest = container_of(timer, struct helper_guest, timer);
    const struct guest_traits traits = {.share = test.guest_share};
    const struct error error = {.text = "no answer"};

    guest->done(&traits, test.is_unknown ? &error : NULL, guest->userdata);
}

int helper_guest_new(const struct context *context, const struct store_helper_run *sandbox,
                     helper_guest_done *done, void *userdata, struct helper_guest **ret_guest)
{
    assert_ptr_equal(context, &test.node.context);
    assert_string_equal(sandbox->sandbox_id, "sandbox-1");
    *ret_guest = calloc(1, sizeof(**ret_guest));
    assert_non_null(*ret_guest);
    **ret_guest = (struct helper_guest){.done = done, .userdata = userdata};
    loop_timer_start(context->loop, &(*ret_guest)->timer, 0, on_described);
    return 0;
}

struct helper_guest *helper_guest_free(struct helper_guest *guest)
{
    if (guest)
        loop_timer_stop(&guest->timer);
    free(guest);
    return NULL;
}

static void join(const char *const *texts, char *ret_text, size_t size)
{
    ret_text[0] = '\0';
    for (size_t i = 0; texts && texts[i]; i++)
        (void)snprintf(ret_text + strlen(ret_text), size - strlen(ret_text), "%s%s", i ? " " : "",
                       texts[i]);
}

int helper_run_new(const struct context *context, const struct helper_task *task,
                   helper_run_done *done, void *userdata, struct helper_run **ret_run)
{
    assert_ptr_equal(context, &test.node.context);
    assert_string_equal(task->sandbox.sandbox_id, "sandbox-1");
    join(task->arguments, test.arguments, sizeof(test.arguments));
    join(task->path, test.paths, sizeof(test.paths));
    test.grow = task->grow;
    test.in_mounts_of_agent = task->in_mounts_of_agent;
    *ret_run = test.helper = calloc(1, sizeof(**ret_run));
    assert_non_null(test.helper);
    *test.helper = (struct helper_run){done, userdata};
    return 0;
}

int helper_run_clean_up(const struct context *context, const struct store_helper_run *sandbox,
                        helper_run_done *done, void *userdata, struct helper_run **ret_run)
{
    (void)context;
    (void)sandbox;
    (void)done;
    (void)userdata;
    (void)ret_run;
    fail_msg("a helper's remains are not the drive's");
    return -ENOMEM;
}

struct helper_run *helper_run_free(struct helper_run *run)
{
    if (run)
        test.helper = NULL;
    free(run);
    return NULL;
}

const char *helper_run_name(const struct helper_run *run)
{
    (void)run;
    return test.helper_name ? test.helper_name : HELPER;
}

void helpers_note_leftover(struct helpers *helpers, int64_t sandbox_ref, const char *name,
                           const struct error *error)
{
    assert_ptr_equal(helpers, test.node.context.helpers);
    assert_int_equal(sandbox_ref, test.node.bound.sandbox_ref);
    assert_string_equal(name, HELPER);
    if (error)
        assert_string_equal(error->text, "busy");
    else
        test.passed_on++;
    test.leftovers++;
}

int container_run_new(struct loop *loop, const struct container_request *request,
                      container_done *done, void *userdata, struct container_run **ret_run)
{
    assert_ptr_equal(loop, &test.node.loop);
    test.request = *request;
    assert_int_equal(request->listener.vmm, 100); /* no other process is taken for the agent */
    assert_string_equal(request->listener.sandbox_id, "sandbox-1");
    assert_string_equal(request->container_id, SERIAL);
    join(request->arguments, test.container_arguments, sizeof(test.container_arguments));
    (void)snprintf(test.directory, sizeof(test.directory), "%s", request->directory);
    if (request->storage) {
        test.storage = *request->storage;
        join(request->storage->options, test.options, sizeof(test.options));
        (void)snprintf(test.mount_point, sizeof(test.mount_point), "%s",
                       request->storage->mount_point);
    }
    *ret_run = test.container = calloc(1, sizeof(**ret_run));
    assert_non_null(test.container);
    *test.container = (struct container_run){done, userdata};
    return 0;
}

struct container_run *container_run_free(struct container_run *run)
{
    if (run)
        test.container = NULL;
    free(run);
    return NULL;
}

int helper_program_open(const struct config *config, int *ret_fd, struct error *error)
{
    assert_ptr_equal(config, &test.node.config);
    if (test.program_result != HELPER_PROGRAM_OK)
        return error_set(error, test.program_result, "no such program");
    *ret_fd = open(tree_path("/program"), O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : HELPER_PROGRAM_OK;
}

/* ---- a call ---- */

static int set_up(void **state)
{
    (void)state;
    memset(&test, 0, sizeof(test));
    test.guest_share = GUEST_SHARE_DIRECTORY;
    surroundings_begin(&test.node, false);
    surroundings_bind(&test.node);
    test.node.context.helpers = (struct helpers *)&test;
    tree_make(SHARE);
    tree_write("/program", "#!");
    test.node.config.resize.mode = RESIZE_GROW;
    test.node.config.guest.helper = true;
    test.drive = (struct store_drive_mount){
        .sandbox_ref = test.node.bound.sandbox_ref,
        .request = {.drive_id = "d1", .vm_path = "/run/data", .fs_type = "ext4", .writable = true},
        .serial = SERIAL,
        .disk = {.size_bytes = 4096},
        .state = DRIVE_ATTACHED,
    };
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test.call = drive_guest_call_free(test.call);
    assert_null(test.helper);
    assert_null(test.container);
    surroundings_end(&test.node);
    return 0;
}

static void on_done(struct drive_guest_call *call, const struct drive_guest_reply *reply,
                    void *userdata)
{
    assert_ptr_equal(userdata, &test);
    test.ends++;
    test.reply = *reply;
    test.call = drive_guest_call_free(call);
}

static void begin(enum drive_guest_act act)
{
    struct drive_guest_request request = {
        .act = act,
        .drive = &test.drive,
        .address = test.at ? test.at : "scsi:255:3",
        .bytes = act == DRIVE_GUEST_GROW ? 8192 : 0,
        .deadline_ns = test.deadline_ns ? test.deadline_ns : 20 * NSEC_PER_SEC,
    };

    test.ends = 0;
    assert_int_equal(drive_guest_call_new(&test.node.context, &request, on_done, &test, &test.call),
                     0);
    while (!test.helper && !test.container && !test.ends)
        loop_run_once(&test.node.loop);
}

static void expect(enum status_code status, enum drive_in_guest guest, const char *text)
{
    if (test.reply.status != status || !strstr(test.reply.error.text, text))
        fail_msg("%d, \"%s\" is not %d, \"%s\"", test.reply.status, test.reply.error.text, status,
                 text);
    assert_int_equal(test.ends, 1);
    assert_int_equal(test.reply.guest, guest);
}

static void expect_helper(const char *arguments, const char *paths)
{
    assert_non_null(test.helper);
    assert_string_equal(test.arguments, arguments);
    assert_string_equal(test.paths, paths);
}

static void helper_ends(const struct helper_outcome *outcome)
{
    assert_non_null(test.helper);
    test.helper->done(test.helper, outcome, test.helper->userdata);
}

static void helper_prints(const char *status, const char *text, const char *device, bool mounted)
{
    struct helper_outcome outcome = {0};

    (void)snprintf(outcome.line, sizeof(outcome.line),
                   "{\"version\":1,\"drive\":{\"status\":\"%s\",\"text\":\"%s\",\"device\":\"%s\","
                   "\"bytes\":4096,\"mounted\":%s}}\n",
                   status, text, device, mounted ? "true" : "false");
    helper_ends(&outcome);
}

static void helper_fails(enum volume_reason reason, bool not_created, const char *text)
{
    struct helper_outcome outcome = {.reason = reason, .not_created = not_created};

    (void)error_set(&outcome.error, (int)reason, "%s", text);
    helper_ends(&outcome);
}

static void container_ends(struct container_reply reply, const char *output)
{
    reply.output = output;
    reply.output_length = strlen(output);
    assert_non_null(test.container);
    test.container->done(test.container, &reply, test.container->userdata);
}

/* The first was refused. */
static inline void wait_for_second_container(void)
{
    assert_int_equal(test.ends, 0);
    assert_false(tree_has(HELD));
    while (!test.container)
        loop_run_once(&test.node.loop);
    assert_int_equal(test.request.act, CONTAINER_HOLD);
    assert_true(tree_has(HELD "/agent"));
}

#define LINE(status, text)                                                                         \
    "{\"version\":1,\"drive\":{\"status\":\"" status "\",\"text\":\"" text                         \
    "\",\"device\":\"sda\",\"bytes\":4096,\"mounted\":true}}\n"

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
