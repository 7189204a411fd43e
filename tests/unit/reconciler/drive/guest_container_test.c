/* SPDX-License-Identifier: Apache-2.0 */
/* guest_container_test.c - a drive in a guest that has only kata-agent: which containers are asked
 * for, in which order, and what stays in the sandbox's share. Helpers and the agent answer as the
 * test says. */
#include "tests/unit/reconciler/surroundings.h"

#include "agent-client/container_run.h"
#include "agent-client/drive_client.h"
#include "reconciler/drive/guest.h"
#include "reconciler/helper/program.h"
#include "reconciler/helper/run.h"

#define SERIAL "crust-abcdefghijk237"
#define SHARE  "/run/kata-containers/shared/sandboxes/sandbox-1/mounts"
#define HELD   SHARE "/" SERIAL

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
    struct drive_guest_call *call;
    unsigned ends;
    bool has_no_address;  /* of SCSI */
    uint64_t deadline_ns; /* 0: enough */
    struct drive_guest_reply reply;
    unsigned companions; /* how often crust-guest-agent was looked for */
    struct helper_run *helper;
    char arguments[512], paths[512];
    bool grow;
    struct container_run *container;
    struct container_request request;
    struct container_storage storage;
    char container_arguments[256], options[256], directory[128];
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
    return "";
}

int container_run_new(struct loop *loop, const struct container_request *request,
                      container_done *done, void *userdata, struct container_run **ret_run)
{
    assert_ptr_equal(loop, &test.node.loop);
    test.request = *request;
    assert_string_equal(request->container_id, SERIAL);
    join(request->arguments, test.container_arguments, sizeof(test.container_arguments));
    (void)snprintf(test.directory, sizeof(test.directory), "%s", request->directory);
    if (request->storage) {
        test.storage = *request->storage;
        join(request->storage->options, test.options, sizeof(test.options));
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
    surroundings_begin(&test.node, false);
    surroundings_bind(&test.node);
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
        .has_scsi = !test.has_no_address,
        .scsi_id = 255,
        .lun = 3,
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

#define LINE(status, text)                                                                         \
    "{\"version\":1,\"drive\":{\"status\":\"" status "\",\"text\":\"" text                         \
    "\",\"device\":\"sda\",\"bytes\":4096,\"mounted\":true}}\n"

#define CHECK    "--drive check --timeout 4 " SERIAL " 4096 rw /vol/0 /vol/1 /vol/2 /vol/3"
#define COMPARED " /dev /run/kata-containers"

static void pass_check(void)
{
    begin(DRIVE_GUEST_MOUNT);
    expect_helper(CHECK " data", "/run/data /run" COMPARED);
    helper_prints("OK", "", "sda", false);
}

/* ---- mounting ---- */

static void a_drive_is_checked_then_held(void **state)
{
    char options[] = "[\"noatime\",\"rw\"]";

    (void)state;
    test.drive.request.options = options;
    test.drive.request.has_fs_group = true;
    test.drive.request.fs_group = 2000;
    test.node.config.drives.flush_seconds = 7;
    pass_check();
    assert_int_equal(test.companions, 1);
    assert_non_null(test.container);
    assert_int_equal(test.request.act, CONTAINER_HOLD);
    assert_string_equal(test.directory, "/run/kata-containers/shared/containers/" SERIAL);
    assert_string_equal(test.container_arguments, "--drive hold --flush 7 " SERIAL " /vol/0");
    assert_int_equal(test.storage.scsi_id, 255);
    assert_int_equal(test.storage.lun, 3);
    assert_string_equal(test.options, "nodev nosuid noatime");
    assert_true(test.storage.has_fs_group);
    assert_int_equal(test.storage.fs_group, 2000);
    assert_true(tree_has(HELD "/agent"));
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    assert_string_equal(test.reply.device, "sda");
    assert_true(tree_has(HELD));
}

static void a_read_only_drive_is_mounted_read_only(void **state)
{
    (void)state;
    test.drive.request.writable = false;
    test.drive.request.has_fs_group = true; /* nobody can give it, and the agent would try */
    begin(DRIVE_GUEST_MOUNT);
    assert_non_null(strstr(test.arguments, " 4096 ro "));
    helper_prints("OK", "", "sda", false);
    assert_string_equal(test.options, "nodev nosuid ro");
    assert_false(test.storage.has_fs_group);
}

static void the_nearest_directory_that_is_there_is_checked(void **state)
{
    (void)state;
    strcpy(test.drive.request.vm_path, "/run/a/b/");
    begin(DRIVE_GUEST_MOUNT);
    expect_helper(CHECK " b", "/run/a/b /run/a" COMPARED);
    helper_fails(REASON_HELPER_FAILED, true, "ENOENT");
    expect_helper(CHECK, "/run/a /run" COMPARED);
    helper_fails(REASON_HELPER_FAILED, true, "ENOENT");
    expect_helper(CHECK, "/run /" COMPARED);
    helper_fails(REASON_HELPER_FAILED, true, "ENOENT");
    expect_helper(CHECK, "/ /" COMPARED);
    helper_fails(REASON_HELPER_FAILED, true, "EIO");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "EIO");
}

/* Each helper has a time of its own, and a guest may use all of it. */
static void a_guest_that_takes_its_time_does_not_take_all(void **state)
{
    (void)state;
    strcpy(test.drive.request.vm_path, "/run/a/b");
    test.deadline_ns = 1;
    begin(DRIVE_GUEST_MOUNT);
    helper_fails(REASON_HELPER_FAILED, true, "ENOENT");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "ENOENT");
}

static void what_the_check_refuses_is_not_mounted(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_MOUNT);
    helper_prints("INVALID_ARGUMENT", "vm_path is or lies in a protected place", "sda", false);
    expect(STATUS_INVALID_ARGUMENT, DRIVE_IN_GUEST_ABSENT, "protected");
    assert_null(test.container);
    assert_false(tree_has(HELD));
}

static void a_guest_that_gets_no_helper_is_refused(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_MOUNT);
    helper_fails(REASON_AGENT_UNSUPPORTED, false, "the guest is confidential");
    expect(reason_code(REASON_AGENT_UNSUPPORTED), DRIVE_IN_GUEST_UNKNOWN, "confidential");
    begin(DRIVE_GUEST_MOUNT);
    helper_fails(REASON_AGENT_POLICY_DENIED, false, "policy");
    expect(STATUS_PERMISSION_DENIED, DRIVE_IN_GUEST_UNKNOWN, "policy");
    test.has_no_address = true; /* another disk may have the one that is sent instead */
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "SCSI address");
    test.node.config.guest.helper = false;
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "guest.helper is off");
}

static void what_this_route_cannot_do_is_refused_before_anything(void **state)
{
    char options[] = "[\"journal_path=/dev/sdb\"]", label[] = "[\"context=u:o:t:s0\"]";

    (void)state;
    test.drive.request.fsck = DRIVE_FSCK_PREEN;
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "fsck needs crust-guest-agent");
    test.drive.request.fsck = DRIVE_FSCK_NONE;
    test.drive.request.options = options;
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_INVALID_ARGUMENT, DRIVE_IN_GUEST_ABSENT, "options[0]");
    test.drive.request.options = label;
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_INVALID_ARGUMENT, DRIVE_IN_GUEST_ABSENT, "SELinux");
    test.drive.request.options = NULL;
    strcpy(test.drive.request.vm_path, "//");
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_INVALID_ARGUMENT, DRIVE_IN_GUEST_ABSENT, "protected");
    strcpy(test.drive.request.vm_path, "/run/data");
    assert_int_equal(rmdir(tree_path(SHARE)), 0);
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "shares no directory");
}

static void a_mount_that_the_agent_refuses_leaves_nothing(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE};

    (void)state;
    (void)error_set(&reply.error, 0, "CreateContainer: EROFS");
    pass_check();
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "EROFS");
    assert_false(tree_has(HELD));
    pass_check();
    reply.left = true;
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "EROFS");
    assert_true(tree_has(HELD));
}

static void another_disk_is_unmounted_at_once(void **state)
{
    (void)state;
    pass_check();
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true},
                   LINE("FAILED_PRECONDITION", "another disk than the drive's was mounted"));
    assert_int_equal(test.ends, 0);
    assert_int_equal(test.request.act, CONTAINER_CLEAN_UP);
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "another disk");
    assert_false(tree_has(HELD));
}

static void a_holder_that_prints_nonsense_is_removed(void **state)
{
    (void)state;
    pass_check();
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, "{}\n");
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "not as it should be");
}

static void what_an_earlier_mount_left_goes_first(void **state)
{
    (void)state;
    tree_make(HELD);
    begin(DRIVE_GUEST_MOUNT);
    assert_int_equal(test.companions, 0);
    assert_int_equal(test.request.act, CONTAINER_CLEAN_UP);
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
    assert_false(tree_has(HELD));
    expect_helper(CHECK " data", "/run/data /run" COMPARED);
}

static void a_helper_that_is_not_installed_is_told(void **state)
{
    (void)state;
    test.program_result = HELPER_PROGRAM_MISSING;
    pass_check();
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "no such program");
}

/* ---- looking ---- */

#define LOOK "--drive look --timeout 4 " SERIAL

static void a_drive_in_use_is_looked_at(void **state)
{
    (void)state;
    test.drive.state = DRIVE_READY;
    begin(DRIVE_GUEST_LOOK);
    expect_helper(LOOK " /vol/0", "/run/data");
    helper_prints("OK", "", "sda", true);
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    begin(DRIVE_GUEST_LOOK);
    helper_fails(REASON_HELPER_FAILED, true, "ENOENT");
    expect_helper(LOOK, "");
    helper_prints("OK", "", "sda", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    begin(DRIVE_GUEST_LOOK);
    helper_fails(REASON_AGENT_UNREACHABLE, false, "no answer");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "no answer");
}

/* A guest that is short of memory for a moment does not have the drive mounted anew. */
static void a_drive_that_is_held_is_not_missed(void **state)
{
    (void)state;
    test.drive.state = DRIVE_READY;
    tree_make(HELD);
    begin(DRIVE_GUEST_LOOK);
    helper_fails(REASON_HELPER_FAILED, true, "ENOMEM");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "ENOMEM");
}

static void a_mount_that_was_not_answered_is_not_believed(void **state)
{
    (void)state;
    tree_make(HELD);
    begin(DRIVE_GUEST_LOOK);
    assert_null(test.helper);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

/* ---- unmounting ---- */

#define PROVE "--drive prove --timeout 4 " SERIAL

static void begin_unmount(void)
{
    if (!tree_has(HELD))
        tree_make(HELD);
    begin(DRIVE_GUEST_UNMOUNT);
    assert_int_equal(test.request.act, CONTAINER_CLEAN_UP);
    assert_true(tree_has(HELD));
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
    assert_false(tree_has(HELD));
    expect_helper(PROVE, "");
}

static void an_unmount_removes_the_container_and_proves_it(void **state)
{
    (void)state;
    begin_unmount();
    helper_prints("UNAVAILABLE", "not looked at", "sda", false);
    expect_helper(PROVE " /vol/0", "/dev/sda");
    helper_prints("OK", "", "sda", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

static void a_disk_that_is_not_there_is_nobodys(void **state)
{
    (void)state;
    begin_unmount();
    helper_prints("OK", "", "", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

static void begin_busy_unmount(void)
{
    begin_unmount();
    helper_prints("UNAVAILABLE", "not looked at", "sda", false);
    helper_prints("FAILED_PRECONDITION", "somebody in the guest still has the disk", "sda", false);
}

/* kata-agent has forgotten the mount, which was busy. */
static void a_disk_that_somebody_has_is_held_again(void **state)
{
    (void)state;
    test.drive.request.has_fs_group = true;
    begin_busy_unmount();
    assert_int_equal(test.ends, 0);
    assert_int_equal(test.request.act, CONTAINER_HOLD);
    assert_int_equal(test.storage.scsi_id, 255);
    assert_false(test.storage.has_fs_group);
    assert_true(tree_has(HELD "/agent"));
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED, "still has the disk");
    assert_true(tree_has(HELD));
}

static void a_disk_that_cannot_be_held_again(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE};

    (void)state;
    begin_busy_unmount();
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
    assert_false(tree_has(HELD));
    begin_busy_unmount();
    reply.left = true;
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
    assert_true(tree_has(HELD));
    begin_busy_unmount();
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true},
                   LINE("FAILED_PRECONDITION", "another disk than the drive's was mounted"));
    assert_int_equal(test.request.act, CONTAINER_CLEAN_UP);
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
    assert_false(tree_has(HELD));
    test.has_no_address = true;
    begin_busy_unmount();
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "still has the disk");
}

static void a_container_that_cannot_be_removed_is_kept_on_the_share(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_TIMED_OUT, .left = true};

    (void)state;
    (void)error_set(&reply.error, 0, "RemoveContainer: no answer");
    tree_make(HELD);
    begin(DRIVE_GUEST_UNMOUNT);
    container_ends(reply, "");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "no answer");
    assert_true(tree_has(HELD));
}

static void a_drive_without_a_container_is_proved_free_all_the_same(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_UNMOUNT);
    assert_null(test.container);
    expect_helper(PROVE, "");
    helper_prints("OK", "", "", false);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

/* ---- growing, and the end ---- */

static void a_held_drive_grows_by_a_helper(void **state)
{
    struct helper_outcome outcome = {
        .report = {.volumes = 1, .volume = {{.device_bytes = 8192, .stats = {.has_bytes = true}}}}};

    (void)state;
    tree_make(HELD);
    begin(DRIVE_GUEST_GROW);
    assert_true(test.grow);
    expect_helper("", "/run/data");
    helper_ends(&outcome);
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    begin(DRIVE_GUEST_GROW);
    outcome.report.volume[0].fault = HELPER_FAULT_READ_ONLY;
    strcpy(outcome.report.volume[0].text, "mounted read-only");
    helper_ends(&outcome);
    assert_int_not_equal(test.reply.status, STATUS_OK);
}

static void a_call_may_be_freed_at_any_time(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_MOUNT);
    assert_true(drive_guest_call_must_end(test.call)); /* should not, while the VM lives */
    test.call = drive_guest_call_free(test.call);
    pass_check();
    assert_true(drive_guest_call_must_end(test.call));
    test.call = drive_guest_call_free(test.call);
    assert_true(tree_has(HELD));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_drive_is_checked_then_held),
        TEST(a_read_only_drive_is_mounted_read_only),
        TEST(the_nearest_directory_that_is_there_is_checked),
        TEST(a_guest_that_takes_its_time_does_not_take_all),
        TEST(what_the_check_refuses_is_not_mounted),
        TEST(a_guest_that_gets_no_helper_is_refused),
        TEST(what_this_route_cannot_do_is_refused_before_anything),
        TEST(a_mount_that_the_agent_refuses_leaves_nothing),
        TEST(another_disk_is_unmounted_at_once),
        TEST(a_holder_that_prints_nonsense_is_removed),
        TEST(what_an_earlier_mount_left_goes_first),
        TEST(a_helper_that_is_not_installed_is_told),
        TEST(a_drive_in_use_is_looked_at),
        TEST(a_drive_that_is_held_is_not_missed),
        TEST(a_mount_that_was_not_answered_is_not_believed),
        TEST(an_unmount_removes_the_container_and_proves_it),
        TEST(a_disk_that_is_not_there_is_nobodys),
        TEST(a_disk_that_somebody_has_is_held_again),
        TEST(a_disk_that_cannot_be_held_again),
        TEST(a_container_that_cannot_be_removed_is_kept_on_the_share),
        TEST(a_drive_without_a_container_is_proved_free_all_the_same),
        TEST(a_held_drive_grows_by_a_helper),
        TEST(a_call_may_be_freed_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
