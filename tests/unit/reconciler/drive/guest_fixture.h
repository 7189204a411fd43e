/* SPDX-License-Identifier: Apache-2.0 */
/* guest_fixture.h - a guest with crust-guest-agent, or with only kata-agent: agents and helpers
 * answer as the test says. */
#pragma once

#include "tests/unit/reconciler/fake_call.h"
#include "tests/unit/reconciler/surroundings.h"

#include "agent-client/container_run.h"
#include "agent-client/drive_client.h"
#include "reconciler/drive/drive_work.h"
#include "reconciler/helper/helper.h"

#define SERIAL "crust-abcdefghijk237"
#define SHARE  "/run/kata-containers/shared/sandboxes/sandbox-1/mounts"
#define HELD   SHARE "/" SERIAL ".0123abcd"
#define HELPER "crust-x123456789abcdef"

struct drive_client {
    drive_client_done *done;
    void *userdata;
    struct loop_timer timer;
};

struct helper_run {
    helper_run_done *done;
    void *userdata;
};

struct container_run {
    container_done *done;
    void *userdata;
};

static struct {
    struct surroundings node;
    struct store_drive_mount drive;
    struct store_helper_run sandbox;
    struct drive_guest_call call;
    unsigned ends;
    struct drive_result result;

    /* crust-guest-agent */
    bool has_companion, has_no_memory;
    struct drive_client *client;       /* a call that waits for the test's answer */
    struct drive_client_request asked; /* of the last call, also of one that became a text */
    struct drive_mount_request mount;
    char address[128];

    /* kata-agent */
    enum guest_share guest_share;
    bool is_unknown;                  /* the guest, to its VMM */
    unsigned companions;              /* how often crust-guest-agent was looked for */
    struct drive_client_reply answer; /* to the next text that is read */
    struct helper_run *helper;
    char helper_call[64], paths[512];
    bool grow;
    const char *helper_name; /* NULL: it has its usual one */
    unsigned leftovers;      /* of helpers, all and those that were not tried to remove */
    unsigned passed_on;
    struct container_run *container;
    struct container_request request;
    char container_arguments[256], directory[128];
    int program_result;
} test;

/* ---- crust-guest-agent ---- */

static void on_nobody(struct loop_timer *timer)
{
    struct drive_client *client = container_of(timer, struct drive_client, timer);
    const struct drive_client_reply reply = {.outcome = DRIVE_CLIENT_ABSENT,
                                             .status = STATUS_UNAVAILABLE};

    client->done(client, &reply, client->userdata);
}

static void note_request(const struct drive_client_request *request)
{
    test.asked = *request;
    test.mount = *request->drive;
}

int drive_client_new(const struct drive_client_request *request, drive_client_done *done,
                     void *userdata, struct drive_client **ret_client)
{
    if (test.has_no_memory)
        return -ENOMEM;
    test.companions++;
    note_request(request);
    (void)snprintf(test.address, sizeof(test.address), "%s", request->address);
    *ret_client = calloc(1, sizeof(**ret_client));
    assert_non_null(*ret_client);
    **ret_client = (struct drive_client){.done = done, .userdata = userdata};
    if (test.has_companion)
        test.client = *ret_client;
    else
        loop_timer_start(&test.node.loop, &(*ret_client)->timer, 0, on_nobody);
    return 0;
}

struct drive_client *drive_client_free(struct drive_client *client)
{
    if (client)
        loop_timer_stop(&client->timer);
    test.client = NULL;
    free(client);
    return NULL;
}

/* ---- a helper, and the drive's container ---- */

int drive_client_make_text(const struct drive_client_request *request, char **ret_text)
{
    static const char *const names[] = {"mount", "unmount", "list"};

    note_request(request);
    *ret_text = strdup(names[request->act]);
    assert_non_null(*ret_text);
    return 0;
}

void drive_client_read_text(enum drive_client_act act, const char *serial, const char *text,
                            size_t length, struct drive_client_reply *ret_reply)
{
    assert_string_equal(serial, SERIAL);
    assert_string_equal(text, "answer");
    *ret_reply = test.answer;
}

void helper_guest_start(struct helper_guest *guest, const struct context *context,
                        const struct store_helper_run *sandbox,
                        void (*done)(struct helper_guest *guest))
{
    assert_string_equal(sandbox->sandbox_id, "sandbox-1");
    *guest = (struct helper_guest){.is_known = !test.is_unknown,
                                   .traits = {.share = test.guest_share},
                                   .error = {.text = "no answer"}};
    done(guest);
}

void helper_guest_stop(struct helper_guest *guest)
{
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
    assert_string_equal(task->sandbox.sandbox_id, "sandbox-1");
    (void)snprintf(test.helper_call, sizeof(test.helper_call), "%s", task->call ? task->call : "");
    join(task->path, test.paths, sizeof(test.paths));
    test.grow = task->grow;
    *ret_run = test.helper = fake_call_make(sizeof(**ret_run));
    *test.helper = (struct helper_run){done, userdata};
    return 0;
}

FAKE_CALL_FREE(helper_run, helper_run_free, test.helper)

const char *helper_run_name(const struct helper_run *run)
{
    return test.helper_name ? test.helper_name : HELPER;
}

void helpers_note_leftover(struct helpers *helpers, int64_t sandbox_ref, const char *name,
                           const struct error *error)
{
    assert_int_equal(sandbox_ref, test.node.bound.sandbox_ref);
    assert_string_equal(name, HELPER);
    if (error)
        assert_string_equal(error->text, "busy");
    else
        test.passed_on++;
    test.leftovers++;
}

int container_run_new(const struct container_request *request, container_done *done, void *userdata,
                      struct container_run **ret_run)
{
    test.request = *request;
    assert_int_equal(request->listener.vmm, 100); /* no other process is taken for the agent */
    assert_string_equal(request->listener.sandbox_id, "sandbox-1");
    assert_string_equal(request->container_id, SERIAL);
    join(request->arguments, test.container_arguments, sizeof(test.container_arguments));
    (void)snprintf(test.directory, sizeof(test.directory), "%s", request->directory);
    assert_true(request->for_drives);
    *ret_run = test.container = fake_call_make(sizeof(**ret_run));
    *test.container = (struct container_run){done, userdata};
    return 0;
}

FAKE_CALL_FREE(container_run, container_run_free, test.container)

int helper_program_open(const struct config *config, int *ret_fd, struct error *error)
{
    if (test.program_result != HELPER_PROGRAM_OK)
        return error_set(error, test.program_result, "no such program");
    *ret_fd = open(tree_path("/program"), O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : HELPER_PROGRAM_OK;
}

/* ---- a call ---- */

static int set_up(void **state)
{
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
    drive_guest_stop(&test.call);
    assert_false(test.client || test.helper || test.container);
    surroundings_end(&test.node);
    return 0;
}

static void on_done(struct drive_guest_call *call)
{
    test.ends++;
}

/* Until somebody waits for the test's answer, or the call has ended. */
static void begin(enum drive_client_act act)
{
    drive_guest_stop(&test.call);
    assert_int_equal(
        store_get_helper_sandbox(test.node.context.store, test.drive.sandbox_ref, &test.sandbox),
        0);
    test.call = (struct drive_guest_call){
        .context = &test.node.context,
        .drive = &test.drive,
        .sandbox = &test.sandbox,
        .act = act,
        .bytes = act == DRIVE_CLIENT_GROW ? 8192 : 0,
        .ends_at = clock_boottime() + 20 * NSEC_PER_SEC,
        .result = &test.result,
        .done = on_done,
    };
    test.result = (struct drive_result){0};
    test.ends = 0;
    drive_guest_start(&test.call);
    while (!test.client && !test.helper && !test.container && !test.ends)
        loop_run_once(&test.node.loop);
}

static void expect(enum status_code status, enum drive_in_guest guest, const char *text)
{
    if (test.result.status != status || test.call.guest != guest ||
        !strstr(test.result.error.text, text))
        fail_msg("%s, guest %d, \"%s\": not %s, guest %d, \"%s\"", status_name(test.result.status),
                 test.call.guest, test.result.error.text, status_name(status), guest, text);
    assert_int_equal(test.ends, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
