/* SPDX-License-Identifier: Apache-2.0 */
/* guest_test.c - a drive's calls into a guest with crust-guest-agent, whose answers the test gives.
 */
#include "tests/unit/reconciler/surroundings.h"

#include "agent-client/agent_client.h"
#include "agent-client/drive_client.h"
#include "reconciler/drive/guest.h"

#define SERIAL "crust-abcdefghijk237"

struct drive_client {
    drive_client_done *done;
    void *userdata;
};

struct agent_call {
    agent_done *done;
    void *userdata;
};

static struct {
    struct surroundings node;
    struct store_drive_mount drive;
    struct drive_guest_call *call;
    unsigned ends;
    struct drive_guest_reply reply;
    /* The agent. */
    struct drive_client *client; /* that runs */
    struct drive_client_request asked;
    struct drive_mount_request mount;
    struct drive_unmount_request unmount;
    char address[128];
    struct agent_call *agent;
    struct agent_request grow;
    char grow_path[128];
    bool has_no_memory;
} test;

int drive_client_new(struct loop *loop, const struct drive_client_request *request,
                     drive_client_done *done, void *userdata, struct drive_client **ret_client)
{
    assert_ptr_equal(loop, &test.node.loop);
    if (test.has_no_memory)
        return -ENOMEM;
    *ret_client = calloc(1, sizeof(**ret_client));
    assert_non_null(*ret_client);
    **ret_client = (struct drive_client){done, userdata};
    test.client = *ret_client;
    test.asked = *request;
    test.mount = *request->mount;
    test.unmount = *request->unmount;
    (void)snprintf(test.address, sizeof(test.address), "%s", request->address);
    return 0;
}

struct drive_client *drive_client_free(struct drive_client *client)
{
    if (client)
        test.client = NULL;
    free(client);
    return NULL;
}

int agent_call_new(struct loop *loop, const struct agent_request *request, agent_done *done,
                   void *userdata, struct agent_call **ret_call)
{
    assert_ptr_equal(loop, &test.node.loop);
    test.grow = *request;
    (void)snprintf(test.address, sizeof(test.address), "%s", request->address);
    (void)snprintf(test.grow_path, sizeof(test.grow_path), "%s", request->volume_path);
    *ret_call = test.agent = calloc(1, sizeof(**ret_call));
    assert_non_null(test.agent);
    *test.agent = (struct agent_call){done, userdata};
    return 0;
}

struct agent_call *agent_call_free(struct agent_call *call)
{
    if (call)
        test.agent = NULL;
    free(call);
    return NULL;
}

enum agent_outcome agent_outcome_from_status(int status, const char *message)
{
    (void)status;
    (void)message;
    return AGENT_FAILED;
}

/* ---- a call ---- */

static int set_up(void **state)
{
    (void)state;
    memset(&test, 0, sizeof(test));
    surroundings_begin(&test.node, false);
    surroundings_bind(&test.node);
    test.drive = (struct store_drive_mount){
        .sandbox_ref = test.node.bound.sandbox_ref,
        .request = {.drive_id = "d1", .vm_path = "/data", .fs_type = "ext4", .writable = true},
        .serial = SERIAL,
        .disk = {.size_bytes = 4096},
    };
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test.call = drive_guest_call_free(test.call);
    assert_null(test.client);
    assert_null(test.agent);
    surroundings_end(&test.node);
    return 0;
}

static void on_done(struct drive_guest_call *call, const struct drive_guest_reply *reply,
                    void *userdata)
{
    assert_ptr_equal(userdata, &test);
    assert_ptr_equal(call, test.call);
    test.ends++;
    test.reply = *reply;
    (void)drive_guest_call_free(call);
    test.call = NULL;
}

static void begin(enum drive_guest_act act)
{
    struct drive_guest_request request = {
        .act = act,
        .drive = &test.drive,
        .address = "scsi:255:0",
        .bytes = act == DRIVE_GUEST_GROW ? 8192 : 0,
        .deadline_ns = 20 * NSEC_PER_SEC,
    };

    test.ends = 0;
    assert_int_equal(drive_guest_call_new(&test.node.context, &request, on_done, &test, &test.call),
                     0);
    assert_int_equal(test.ends, 0);
    while (!test.client && !test.agent && !test.ends)
        loop_run_once(&test.node.loop);
}

static void answers(const struct drive_client_reply *reply)
{
    assert_non_null(test.client);
    test.client->done(test.client, reply, test.client->userdata);
    assert_int_equal(test.ends, 1);
}

static void refuses(enum drive_client_outcome outcome, enum status_code status, const char *text)
{
    struct drive_client_reply reply = {.outcome = outcome, .status = status};

    (void)error_set(&reply.error, (int)status, "%s", text);
    answers(&reply);
}

static void expect(enum status_code status, enum drive_in_guest guest, const char *text)
{
    assert_int_equal(test.ends, 1);
    assert_int_equal(test.reply.status, status);
    assert_int_equal(test.reply.guest, guest);
    if (!strstr(test.reply.error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", test.reply.error.text, text);
}

static void expect_unasked(enum status_code status, const char *text)
{
    expect(status, DRIVE_IN_GUEST_UNKNOWN, text);
}

/* ---- mounting ---- */

static void a_mount_is_asked_for_as_the_row_has_it(void **state)
{
    char options[] = "[\"noatime\",\"data=ordered\"]";
    struct drive_client_reply reply = {
        .mount = {.device = "sda", .walk = {10, 5, 2}, .fsck = DRIVE_FSCK_REPAIRED}};

    (void)state;
    test.drive.request.options = options;
    test.drive.request.fsck = DRIVE_FSCK_PREEN;
    test.drive.request.has_fs_group = true;
    test.drive.request.fs_group = 2000;
    test.drive.request.fs_group_policy = DRIVE_GROUP_ON_ROOT_MISMATCH;
    begin(DRIVE_GUEST_MOUNT);
    assert_string_equal(test.address, "vsock://3:1030");
    assert_int_equal(test.asked.act, DRIVE_CLIENT_MOUNT);
    assert_int_equal(test.asked.listener.vmm, 100);
    assert_string_equal(test.mount.drive_id, "d1");
    assert_string_equal(test.mount.serial, SERIAL);
    assert_int_equal(test.mount.bytes, 4096);
    assert_false(test.mount.read_only);
    assert_string_equal(test.mount.vm_path, "/data");
    assert_string_equal(test.mount.filesystem_type, "ext4");
    assert_int_equal(test.mount.option_count, 2);
    assert_string_equal(test.mount.options[1], "data=ordered");
    assert_int_equal(test.mount.fsck, DRIVE_FSCK_PREEN);
    assert_int_equal(test.mount.fs_group, 2000);
    assert_int_equal(test.mount.fs_group_policy, DRIVE_GROUP_ON_ROOT_MISMATCH);
    answers(&reply);
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    assert_string_equal(test.reply.device, "sda");
    assert_string_equal(test.reply.remark, "the group of 2 entries could not be changed; e2fsck "
                                           "has repaired the file system");
}

static void a_read_only_drive_is_mounted_read_only(void **state)
{
    (void)state;
    test.drive.request.writable = false;
    begin(DRIVE_GUEST_MOUNT);
    assert_true(test.mount.read_only);
}

static void a_refused_mount_has_mounted_nothing(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_MOUNT);
    refuses(DRIVE_CLIENT_ANSWERED, STATUS_INVALID_ARGUMENT, "vm_path lies in a protected place");
    expect(STATUS_INVALID_ARGUMENT, DRIVE_IN_GUEST_ABSENT, "protected");
}

static void what_a_silent_agent_has_done_is_not_known(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_MOUNT);
    refuses(DRIVE_CLIENT_SILENT, STATUS_UNAVAILABLE, "no answer within 20 s");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "no answer");
    begin(DRIVE_GUEST_MOUNT);
    refuses(DRIVE_CLIENT_ANSWERED, STATUS_DEADLINE_EXCEEDED, "the walk goes on");
    expect(STATUS_DEADLINE_EXCEEDED, DRIVE_IN_GUEST_UNKNOWN, "goes on");
}

/* ---- containers ---- */

static char one_container[] = "[{\"container_id\":\"c1\",\"path\":\"/in\",\"sub_path\":\"a\","
                              "\"read_only\":true}]";

static void containers_are_asked_for_and_answered(void **state)
{
    struct drive_client_reply reply = {.mount = {.device = "sda", .containers = 1}};
    const struct drive_container *one = test.mount.containers.each;

    (void)state;
    test.drive.request.containers = one_container;
    begin(DRIVE_GUEST_MOUNT);
    assert_int_equal(test.mount.containers.count, 1);
    assert_string_equal(one->container_id, "c1");
    assert_string_equal(one->path, "/in");
    assert_string_equal(one->sub_path, "a");
    assert_true(one->read_only);
    answers(&reply);
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    begin(DRIVE_GUEST_MOUNT);
    reply.mount.containers = 0;
    strcpy(reply.mount.container_error, "container c1: it does not run in this guest");
    answers(&reply);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED, "does not run");
    begin(DRIVE_GUEST_MOUNT);
    reply.mount.container_error[0] = '\0';
    answers(&reply);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED, "older than crustd");
    begin(DRIVE_GUEST_UNMOUNT);
    assert_string_equal(test.unmount.containers.each[0].path, "/in");
}

/* In a stock guest nothing leads into a container that runs. */
static void without_the_agent_no_container_is_entered(void **state)
{
    static const enum drive_guest_act acts[] = {DRIVE_GUEST_LOOK, DRIVE_GUEST_MOUNT};

    (void)state;
    test.drive.request.containers = one_container;
    for (size_t i = 0; i < array_length(acts); i++) {
        begin(acts[i]);
        refuses(DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, "nothing listens");
        expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "no crust-guest-agent");
        assert_non_null(strstr(test.reply.error.text, "containers"));
    }
}

/* It has entered them once, and is started again. crustd may have been as well. */
static void an_agent_that_is_away_may_enter_containers_later(void **state)
{
    static const enum drive_state states[] = {DRIVE_MOUNTED, DRIVE_READY};
    static const enum drive_guest_act acts[] = {DRIVE_GUEST_LOOK, DRIVE_GUEST_MOUNT};

    (void)state;
    test.drive.request.containers = one_container;
    for (size_t i = 0; i < array_length(states) * array_length(acts); i++) {
        test.drive.state = states[i % 2];
        begin(acts[i / 2]);
        refuses(DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, "nothing listens");
        expect_unasked(STATUS_UNAVAILABLE, "nothing listens");
    }
}

static void containers_that_cannot_be_read_are_refused(void **state)
{
    static const char *const texts[] = {"[1]", "[{\"container_id\":\"c1\"}]", "x"};
    char text[64];

    (void)state;
    test.drive.request.containers = text;
    for (size_t i = 0; i < array_length(texts); i++) {
        strcpy(text, texts[i]);
        begin(DRIVE_GUEST_MOUNT);
        expect_unasked(STATUS_UNAVAILABLE, "cannot ask");
    }
}

/* ---- looking and unmounting ---- */

static void look(struct drive_guest_list list)
{
    const struct drive_client_reply reply = {.list = list};

    begin(DRIVE_GUEST_LOOK);
    assert_int_equal(test.asked.act, DRIVE_CLIENT_LIST);
    answers(&reply);
}

static void a_look_finds_the_drive_by_its_serial_and_place(void **state)
{
    struct drive_guest_entry entries[] = {
        {.serial = "crust-aaaaaaaaaaaaaa", .state = DRIVE_GUEST_MOUNTED, .vm_path = "/other"},
        {.serial = SERIAL, .state = DRIVE_GUEST_MOUNTED, .device = "sdb", .vm_path = "/data"},
    };

    (void)state;
    look((struct drive_guest_list){.count = 2, .entries = entries});
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    assert_string_equal(test.reply.device, "sdb");
    strcpy(entries[1].vm_path, "/elsewhere");
    look((struct drive_guest_list){.count = 2, .entries = entries});
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    entries[1].state = DRIVE_GUEST_PRESENT;
    look((struct drive_guest_list){.count = 2, .entries = entries});
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    look((struct drive_guest_list){.count = 1, .entries = entries});
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    assert_string_equal(test.reply.device, "");
    strcpy(entries[0].vm_path, "/data"); /* another drive in this one's place */
    look((struct drive_guest_list){.count = 1, .entries = entries});
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    assert_string_equal(test.reply.device, "");
}

static void a_list_that_was_cut_proves_no_absence(void **state)
{
    (void)state;
    look((struct drive_guest_list){.incomplete = true});
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "cannot list all of its drives");
}

static void an_unmount_is_over_when_nobody_has_the_disk(void **state)
{
    const struct drive_client_reply reply = {.unmount = {.was_mounted = true}};

    (void)state;
    begin(DRIVE_GUEST_UNMOUNT);
    assert_int_equal(test.asked.act, DRIVE_CLIENT_UNMOUNT);
    assert_string_equal(test.unmount.drive_id, "d1");
    assert_string_equal(test.unmount.serial, SERIAL);
    refuses(DRIVE_CLIENT_ANSWERED, STATUS_FAILED_PRECONDITION, "in use by 12 (sleep)");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "12 (sleep)");
    begin(DRIVE_GUEST_UNMOUNT);
    answers(&reply);
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

/* ---- no such agent ---- */

static void without_the_agent_the_other_route_is_taken(void **state)
{
    (void)state;
    test.node.config.guest.helper = false;
    begin(DRIVE_GUEST_MOUNT);
    refuses(DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, "nothing listens");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "guest.helper is off");
    begin(DRIVE_GUEST_UNMOUNT);
    refuses(DRIVE_CLIENT_UNSUPPORTED, STATUS_FAILED_PRECONDITION, "does not know drives");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "guest.helper is off");
    begin(DRIVE_GUEST_UNMOUNT);
    refuses(DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, "closed the connection");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "closed");
}

/* ---- growing ---- */

static void grow_by(struct agent_reply reply, const char *text)
{
    (void)error_set(&reply.error, (int)reply.outcome, "%s", text);
    begin(DRIVE_GUEST_GROW);
    assert_int_equal(test.grow.act, AGENT_RESIZE);
    assert_int_equal(test.grow.bytes, 8192);
    assert_string_equal(test.grow_path, "/data");
    assert_string_equal(test.address, "vsock://3:1030");
    test.agent->done(test.agent, &reply, test.agent->userdata);
}

static void grow(enum agent_outcome outcome, int status, const char *text)
{
    grow_by((struct agent_reply){.outcome = outcome, .status = status}, text);
}

static void a_drive_grows_by_its_mount_point(void **state)
{
    (void)state;
    grow(AGENT_DONE, STATUS_OK, "");
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    grow(AGENT_NOT_GROWABLE, STATUS_FAILED_PRECONDITION, "errors");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "errors");
    grow(AGENT_SHUT_DOWN, STATUS_FAILED_PRECONDITION, "shut down");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "shut down");
    grow(AGENT_READ_ONLY, STATUS_UNAVAILABLE, "read-only"); /* it may be remounted */
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "read-only");
    grow(AGENT_NOT_GROWABLE, STATUS_FAILED_PRECONDITION, "read-only");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "read-only");
    grow(AGENT_LIMIT, STATUS_FAILED_PRECONDITION, "at most");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "at most");
    grow(AGENT_GROWING, STATUS_DEADLINE_EXCEEDED, "1 of 2");
    expect(STATUS_DEADLINE_EXCEEDED, DRIVE_IN_GUEST_UNKNOWN, "1 of 2");
    grow(AGENT_FAILED, STATUS_DEADLINE_EXCEEDED, "still growing");
    expect(STATUS_DEADLINE_EXCEEDED, DRIVE_IN_GUEST_UNKNOWN, "still growing");
    grow(AGENT_FAILED, STATUS_INTERNAL, "ioctl");
    expect(STATUS_INTERNAL, DRIVE_IN_GUEST_UNKNOWN, "ioctl");
}

static void growth_takes_no_other_route_around_a_foreign_listener(void **state)
{
    (void)state;
    test.node.config.guest.helper = false;
    grow_by((struct agent_reply){.outcome = AGENT_UNREACHABLE, .is_foreign = true},
            "process 7 (x) of user 0 listens on /vm.sock");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "process 7 (x)");
    grow(AGENT_UNREACHABLE, STATUS_OK, "nothing listens");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "guest.helper is off");
}

/* Its disks are read only if one of them may be the drive's. */
static void disks_are_not_listed_before_the_vm_has_the_drives(void **state)
{
    struct drive_client_reply reply = {.outcome = DRIVE_CLIENT_ANSWERED};

    (void)state;
    begin(DRIVE_GUEST_LOOK);
    assert_true(test.asked.without_disks);
    answers(&reply);
    test.drive.state = DRIVE_ATTACHED;
    begin(DRIVE_GUEST_LOOK);
    assert_false(test.asked.without_disks);
    answers(&reply);
}

/* ---- before anything is asked ---- */

static void a_sandbox_that_has_ended_is_not_asked(void **state)
{
    bool changed;

    (void)state;
    assert_int_equal(store_begin(test.node.context.store), 0);
    assert_int_equal(store_end_sandbox(test.node.context.store, "sandbox-1", &changed), 0);
    assert_int_equal(store_commit(test.node.context.store), 0);
    begin(DRIVE_GUEST_LOOK);
    expect_unasked(STATUS_UNAVAILABLE, "the sandbox has ended");
}

static void options_that_are_no_texts_are_refused(void **state)
{
    char options[] = "[1]";

    (void)state;
    test.drive.request.options = options;
    begin(DRIVE_GUEST_MOUNT);
    expect_unasked(STATUS_UNAVAILABLE, "cannot ask");
}

static void a_call_without_memory_is_reported(void **state)
{
    (void)state;
    test.has_no_memory = true;
    begin(DRIVE_GUEST_LOOK);
    expect_unasked(STATUS_UNAVAILABLE, "cannot ask");
}

static void a_running_call_may_be_freed(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_MOUNT);
    assert_non_null(test.client);
    test.call = drive_guest_call_free(test.call);
    assert_int_equal(test.ends, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_mount_is_asked_for_as_the_row_has_it),
        TEST(a_read_only_drive_is_mounted_read_only),
        TEST(a_refused_mount_has_mounted_nothing),
        TEST(what_a_silent_agent_has_done_is_not_known),
        TEST(containers_are_asked_for_and_answered),
        TEST(without_the_agent_no_container_is_entered),
        TEST(an_agent_that_is_away_may_enter_containers_later),
        TEST(containers_that_cannot_be_read_are_refused),
        TEST(a_look_finds_the_drive_by_its_serial_and_place),
        TEST(a_list_that_was_cut_proves_no_absence),
        TEST(disks_are_not_listed_before_the_vm_has_the_drives),
        TEST(an_unmount_is_over_when_nobody_has_the_disk),
        TEST(without_the_agent_the_other_route_is_taken),
        TEST(a_drive_grows_by_its_mount_point),
        TEST(growth_takes_no_other_route_around_a_foreign_listener),
        TEST(a_sandbox_that_has_ended_is_not_asked),
        TEST(options_that_are_no_texts_are_refused),
        TEST(a_call_without_memory_is_reported),
        TEST(a_running_call_may_be_freed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
