/* SPDX-License-Identifier: Apache-2.0 */
/* guest_test.c - a drive's calls into a guest: by crust-guest-agent, or by helpers and the drive's
 * container where there is only kata-agent; and what stays in the sandbox's share. */
#include "tests/unit/reconciler/drive/guest_fixture.h"

/* ---- crust-guest-agent ---- */

static int set_up_companion(void **state)
{
    (void)set_up(state);
    test.has_companion = true;
    return 0;
}

static void answers(const struct drive_client_reply *reply)
{
    assert_non_null(test.client);
    test.client->done(test.client, reply, test.client->userdata);
}

static void refuses(enum drive_client_outcome outcome, enum status_code status, const char *text)
{
    struct drive_client_reply reply = {.outcome = outcome, .status = status};

    (void)error_set(&reply.error, (int)status, "%s", text);
    answers(&reply);
}

static void a_mount_is_asked_for_as_the_row_has_it(void **state)
{
    char options[] = "[\"noatime\",\"data=ordered\"]";
    const struct drive_client_reply reply = {
        .mount = {.device = "sda", .walk = {10, 5, 2}, .fsck = DRIVE_FSCK_REPAIRED}};

    test.drive.request.options = options;
    test.drive.request.fsck = DRIVE_FSCK_PREEN;
    test.drive.request.has_fs_group = true;
    test.drive.request.fs_group = 2000;
    test.drive.request.fs_group_policy = DRIVE_GROUP_ON_ROOT_MISMATCH;
    begin(DRIVE_CLIENT_MOUNT);
    assert_string_equal(test.address, "vsock://3:1030");
    assert_int_equal(test.asked.act, DRIVE_CLIENT_MOUNT);
    assert_int_equal(test.asked.listener.vmm, 100);
    assert_string_equal(test.mount.drive_id, "d1");
    assert_string_equal(test.mount.serial, SERIAL);
    assert_int_equal(test.mount.bytes, 4096);
    assert_false(test.mount.read_only);
    assert_string_equal(test.mount.vm_path, "/run/data");
    assert_string_equal(test.mount.filesystem_type, "ext4");
    assert_int_equal(test.mount.option_count, 2);
    assert_string_equal(test.mount.options[1], "data=ordered");
    assert_int_equal(test.mount.fsck, DRIVE_FSCK_PREEN);
    assert_int_equal(test.mount.fs_group, 2000);
    assert_int_equal(test.mount.fs_group_policy, DRIVE_GROUP_ON_ROOT_MISMATCH);
    answers(&reply);
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    assert_string_equal(test.result.guest_device, "sda");
    assert_string_equal(test.result.remark, "the group of 2 entries could not be changed; e2fsck "
                                            "has repaired the file system");
}

/* Without the agent, or where it is older, the other route is taken. */
static void a_refusal_says_what_is_known_of_the_mount(void **state)
{
    static const struct {
        enum drive_client_act act;
        enum drive_client_outcome outcome;
        enum status_code said, status;
        enum drive_in_guest guest;
        const char *text;
    } cases[] = {
        {DRIVE_CLIENT_MOUNT, DRIVE_CLIENT_ANSWERED, STATUS_INVALID_ARGUMENT,
         STATUS_INVALID_ARGUMENT, DRIVE_IN_GUEST_ABSENT, "it says so"},
        {DRIVE_CLIENT_MOUNT, DRIVE_CLIENT_SILENT, STATUS_UNAVAILABLE, STATUS_UNAVAILABLE,
         DRIVE_IN_GUEST_UNKNOWN, "it says so"},
        {DRIVE_CLIENT_MOUNT, DRIVE_CLIENT_ANSWERED, STATUS_DEADLINE_EXCEEDED,
         STATUS_DEADLINE_EXCEEDED, DRIVE_IN_GUEST_UNKNOWN, "it says so"},
        {DRIVE_CLIENT_UNMOUNT, DRIVE_CLIENT_ANSWERED, STATUS_FAILED_PRECONDITION,
         STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "it says so"},
        {DRIVE_CLIENT_UNMOUNT, DRIVE_CLIENT_UNREACHABLE, STATUS_UNAVAILABLE, STATUS_UNAVAILABLE,
         DRIVE_IN_GUEST_UNKNOWN, "it says so"},
        {DRIVE_CLIENT_MOUNT, DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, STATUS_FAILED_PRECONDITION,
         DRIVE_IN_GUEST_UNKNOWN, "guest.helper is off"},
        {DRIVE_CLIENT_UNMOUNT, DRIVE_CLIENT_UNSUPPORTED, STATUS_FAILED_PRECONDITION,
         STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "guest.helper is off"},
    };

    test.node.config.guest.helper = false;
    for (size_t i = 0; i < array_length(cases); i++) {
        begin(cases[i].act);
        refuses(cases[i].outcome, cases[i].said, "it says so");
        expect(cases[i].status, cases[i].guest, cases[i].text);
    }
    begin(DRIVE_CLIENT_UNMOUNT);
    assert_string_equal(test.mount.drive_id, "d1");
    assert_string_equal(test.mount.serial, SERIAL);
    answers(&(struct drive_client_reply){.unmount = {.was_mounted = true}});
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

static char one_container[] = "[{\"container_id\":\"c1\",\"path\":\"/in\",\"sub_path\":\"a\","
                              "\"read_only\":true}]";

static void containers_are_asked_for_and_answered(void **state)
{
    struct drive_client_reply reply = {.mount = {.device = "sda", .containers = 1}};
    const struct drive_container *one = test.mount.containers.each;

    test.drive.request.containers = one_container;
    begin(DRIVE_CLIENT_MOUNT);
    assert_int_equal(test.mount.containers.count, 1);
    assert_string_equal(one->container_id, "c1");
    assert_string_equal(one->path, "/in");
    assert_string_equal(one->sub_path, "a");
    assert_true(one->read_only);
    answers(&reply);
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    begin(DRIVE_CLIENT_MOUNT);
    reply.mount.containers = 0;
    strcpy(reply.mount.container_error, "container c1: it does not run in this guest");
    answers(&reply);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED, "does not run");
    begin(DRIVE_CLIENT_MOUNT);
    reply.mount.container_error[0] = '\0';
    answers(&reply);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_MOUNTED, "older than crustd");
    begin(DRIVE_CLIENT_UNMOUNT);
    assert_string_equal(test.mount.containers.each[0].path, "/in");
}

/* It has entered them once, and is started again. crustd may have been as well. */
static void an_agent_that_is_away_may_enter_containers_later(void **state)
{
    static const enum drive_state states[] = {DRIVE_MOUNTED, DRIVE_READY};
    static const enum drive_client_act acts[] = {DRIVE_CLIENT_LIST, DRIVE_CLIENT_MOUNT};

    test.drive.request.containers = one_container;
    for (size_t i = 0; i < array_length(states) * array_length(acts); i++) {
        test.drive.state = states[i % 2];
        begin(acts[i / 2]);
        refuses(DRIVE_CLIENT_ABSENT, STATUS_UNAVAILABLE, "nothing listens");
        expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "nothing listens");
    }
}

/* A damaged row, no memory. */
static void what_cannot_be_asked_is_reported(void **state)
{
    static const char *const texts[] = {"[1]", "[{\"container_id\":\"c1\"}]", "x"};
    char text[64], options[] = "[1]";

    for (size_t i = 0; i < array_length(texts); i++) {
        test.drive.request.containers = strcpy(text, texts[i]);
        begin(DRIVE_CLIENT_MOUNT);
        expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "cannot ask");
    }
    test.drive.request.containers = NULL;
    test.drive.request.options = options;
    begin(DRIVE_CLIENT_MOUNT);
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "cannot ask");
    test.has_no_memory = true;
    begin(DRIVE_CLIENT_LIST);
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "cannot ask");
}

/* By its serial and its place, and whatever else the guest has. */
static void a_look_finds_the_drive(void **state)
{
    static const struct {
        const char *serial, *vm_path;
        enum drive_guest_state state;
        enum drive_in_guest guest;
        const char *device;
    } cases[] = {
        {SERIAL, "/run/data", DRIVE_GUEST_MOUNTED, DRIVE_IN_GUEST_MOUNTED, "sdb"},
        {SERIAL, "/elsewhere", DRIVE_GUEST_MOUNTED, DRIVE_IN_GUEST_ABSENT, "sdb"},
        {SERIAL, "", DRIVE_GUEST_PRESENT, DRIVE_IN_GUEST_ABSENT, "sdb"},
        {"", "", DRIVE_GUEST_PRESENT, DRIVE_IN_GUEST_ABSENT, ""},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        struct drive_client_reply reply = {.entry = {.state = cases[i].state}};

        strcpy(reply.entry.serial, cases[i].serial);
        strcpy(reply.entry.device, cases[i].device);
        strcpy(reply.entry.vm_path, cases[i].vm_path);
        begin(DRIVE_CLIENT_LIST);
        assert_int_equal(test.asked.act, DRIVE_CLIENT_LIST);
        assert_false(test.asked.without_disks);
        answers(&reply);
        expect(STATUS_OK, cases[i].guest, "");
        assert_string_equal(test.result.guest_device, cases[i].device);
    }
    test.drive.state = DRIVE_REQUESTED; /* no disk of the guest can be the drive's */
    begin(DRIVE_CLIENT_LIST);
    assert_true(test.asked.without_disks);
    answers(&(struct drive_client_reply){.is_incomplete = true}); /* proves no absence */
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "cannot list all of its drives");
}

static void grow(enum drive_client_outcome outcome, enum status_code status, const char *text)
{
    begin(DRIVE_CLIENT_GROW);
    assert_int_equal(test.asked.act, DRIVE_CLIENT_GROW);
    assert_int_equal(test.mount.bytes, 8192);
    assert_string_equal(test.mount.vm_path, "/run/data");
    assert_string_equal(test.address, "vsock://3:1030");
    refuses(outcome, status, text);
}

/* What is read-only may be remounted. */
static void a_drive_grows_by_its_mount_point(void **state)
{
    static const enum drive_client_outcome none[] = {DRIVE_CLIENT_UNSUPPORTED, DRIVE_CLIENT_ABSENT,
                                                     DRIVE_CLIENT_UNREACHABLE, DRIVE_CLIENT_SILENT};

    grow(DRIVE_CLIENT_ANSWERED, STATUS_OK, "");
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    grow(DRIVE_CLIENT_ANSWERED, STATUS_DEADLINE_EXCEEDED, "why not");
    expect(STATUS_DEADLINE_EXCEEDED, DRIVE_IN_GUEST_UNKNOWN, "why not");
    test.node.config.guest.helper = false;
    grow(DRIVE_CLIENT_FOREIGN, STATUS_UNAVAILABLE,
         "process 7 (x) of user 0 listens on /vm.sock"); /* around which no other route leads */
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "process 7 (x)");
    for (size_t i = 0; i < array_length(none); i++) {
        grow(none[i], STATUS_UNAVAILABLE, "nothing listens");
        expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "guest.helper is off");
    }
}

/* ---- only kata-agent ---- */

static void helper_ends(const struct helper_outcome *outcome)
{
    assert_non_null(test.helper);
    test.helper->done(test.helper, outcome, test.helper->userdata);
}

static void helper_answers(enum status_code status, const char *text)
{
    test.answer.status = status;
    (void)error_set(&test.answer.error, (int)status, "%s", text);
    helper_ends(&(struct helper_outcome){.answer = "answer", .answer_length = strlen("answer")});
}

static void helper_fails(enum volume_reason reason, const char *text)
{
    struct helper_outcome outcome = {.reason = reason};

    (void)error_set(&outcome.error, (int)reason, "%s", text);
    helper_ends(&outcome);
}

/* ListDrives finds it so. */
static void helper_lists(enum drive_guest_state state, const char *vm_path)
{
    test.answer =
        (struct drive_client_reply){.entry = {.serial = SERIAL, .state = state, .device = "sda"}};
    (void)strcpy(test.answer.entry.vm_path, vm_path);
    helper_answers(STATUS_OK, "");
}

static void container_ends(struct container_reply reply, const char *text)
{
    (void)error_set(&reply.error, 0, "%s", text);
    reply.output = "answer";
    reply.output_length = strlen(reply.output);
    assert_non_null(test.container);
    test.container->done(test.container, &reply, test.container->userdata);
}

/* The directory of the drive's container. */
static bool has_directory(void)
{
    char name[HELPER_NAME_BYTES];
    int share = open(tree_path(SHARE), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool found = helper_share_find_drive(share, SERIAL, name) == HELPER_SHARE_HAS;

    assert_true(share >= 0);
    fd_close(share);
    return found;
}

static void a_drive_is_mounted_by_its_container(void **state)
{
    test.node.config.drives.flush_seconds = 7;
    begin(DRIVE_CLIENT_MOUNT);
    assert_int_equal(test.companions, 1);
    assert_int_equal(test.request.act, CONTAINER_HOLD);
    assert_int_equal(
        strncmp(test.directory, "/run/kata-containers/shared/containers/" SERIAL ".", 60), 0);
    assert_string_equal(test.container_arguments, "--drive mount --flush 7");
    assert_string_equal(test.mount.serial, SERIAL);
    assert_int_equal(test.mount.bytes, 4096);
    assert_true(has_directory());
    test.answer = (struct drive_client_reply){.mount = {.device = "sda", .walk = {1, 2, 3}}};
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, "");
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    assert_string_equal(test.result.guest_device, "sda");
    assert_string_equal(test.result.remark, "the group of 3 entries could not be changed");
    assert_true(test.result.by_container);
    assert_true(has_directory());
}

/* A walk over the files that takes too long goes on with the next call; without a group it is the
 * guest that does not answer. */
static void a_mount_that_fails_leaves_only_what_cannot_be_removed(void **state)
{
    static const struct {
        struct container_reply reply;
        bool has_group;
        enum status_code said, status;
        enum drive_in_guest guest;
        bool is_left;
        const char *text;
    } cases[] = {
        {{.kind = CONTAINER_DONE},
         false,
         STATUS_INVALID_ARGUMENT,
         STATUS_INVALID_ARGUMENT,
         DRIVE_IN_GUEST_ABSENT,
         false,
         "a protected place"},
        {{.kind = CONTAINER_FAILED},
         false,
         STATUS_OK,
         STATUS_FAILED_PRECONDITION,
         DRIVE_IN_GUEST_UNKNOWN,
         false,
         "EROFS"},
        {{.kind = CONTAINER_DONE, .not_executed = true},
         false,
         STATUS_OK,
         STATUS_FAILED_PRECONDITION,
         DRIVE_IN_GUEST_UNKNOWN,
         false,
         "cannot execute"},
        {{.kind = CONTAINER_TIMED_OUT, .step = CONTAINER_READ},
         true,
         STATUS_OK,
         STATUS_DEADLINE_EXCEEDED,
         DRIVE_IN_GUEST_UNKNOWN,
         false,
         "EROFS"},
        {{.kind = CONTAINER_TIMED_OUT, .step = CONTAINER_READ},
         false,
         STATUS_OK,
         STATUS_UNAVAILABLE,
         DRIVE_IN_GUEST_UNKNOWN,
         false,
         "EROFS"},
        {{.kind = CONTAINER_DENIED},
         false,
         STATUS_OK,
         STATUS_PERMISSION_DENIED,
         DRIVE_IN_GUEST_UNKNOWN,
         false,
         "need crust-guest-agent"},
        {{.kind = CONTAINER_FAILED, .left = true},
         false,
         STATUS_OK,
         STATUS_FAILED_PRECONDITION,
         DRIVE_IN_GUEST_UNKNOWN,
         true,
         "EROFS"},
    };

    for (size_t i = 0; i < array_length(cases); i++) {
        test.drive.request.has_fs_group = cases[i].has_group;
        test.answer = (struct drive_client_reply){.status = cases[i].said};
        (void)error_set(&test.answer.error, 0, "a protected place");
        begin(DRIVE_CLIENT_MOUNT);
        container_ends(cases[i].reply, "EROFS");
        expect(cases[i].status, cases[i].guest, cases[i].text);
        assert_int_equal(has_directory(), cases[i].is_left);
    }
}

/* Before the VM has the disk. */
static void a_guest_that_refuses_helpers_is_found_out_first(void **state)
{
    test.drive.state = DRIVE_REQUESTED;
    begin(DRIVE_CLIENT_LIST);
    assert_string_equal(test.helper_call, "list");
    helper_fails(REASON_AGENT_POLICY_DENIED, "CreateContainer: blocked by policy");
    expect(STATUS_PERMISSION_DENIED, DRIVE_IN_GUEST_UNKNOWN,
           "blocked by policy; drives in this guest need crust-guest-agent");
    begin(DRIVE_CLIENT_LIST);
    helper_fails(REASON_AGENT_UNSUPPORTED, "the guest is confidential");
    expect(reason_code(REASON_AGENT_UNSUPPORTED, STATE_BLOCK_GROWN), DRIVE_IN_GUEST_UNKNOWN,
           "confidential");
    begin(DRIVE_CLIENT_LIST);
    helper_answers(STATUS_OK, "");
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    test.drive.state = DRIVE_ATTACHED;
    test.program_result = HELPER_PROGRAM_MISSING;
    begin(DRIVE_CLIENT_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "no such program");
    test.node.config.guest.helper = false;
    begin(DRIVE_CLIENT_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "guest.helper is off");
}

/* Kata's Go runtime makes the directory all the same. And a sandbox of runtime-rs has none before
 * its first container is created. */
static void a_guest_needs_the_share(void **state)
{
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    struct store *store = test.node.context.store;

    test.guest_share = GUEST_SHARE_NONE;
    begin(DRIVE_CLIENT_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "shares no directory");
    test.is_unknown = true;
    begin(DRIVE_CLIENT_MOUNT);
    assert_non_null(test.container); /* it is told why it cannot run, or runs */
    drive_guest_stop(&test.call);
    test.is_unknown = false;
    test.guest_share = GUEST_SHARE_DIRECTORY;
    sandbox.runtime = RUNTIME_KATA_RS;
    assert_int_equal(store_begin(store), 0);
    (void)put_sandbox(store, &sandbox, true);
    assert_int_equal(store_commit(store), 0);
    tree_make("/run/kata-containers/shared/sandboxes/sandbox-1/rw");
    begin(DRIVE_CLIENT_MOUNT);
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_ABSENT, "not yet made");
    tree_make("/run/kata-containers/shared/sandboxes/sandbox-1/rw/passthrough");
    begin(DRIVE_CLIENT_MOUNT);
    assert_non_null(
        strstr(test.directory, "/run/kata-containers/shared/containers/passthrough/" SERIAL));
}

static void a_drive_in_use_is_looked_at(void **state)
{
    test.drive.state = DRIVE_READY;
    tree_make(HELD);
    begin(DRIVE_CLIENT_LIST);
    helper_lists(DRIVE_GUEST_MOUNTED, "/run/data");
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    begin(DRIVE_CLIENT_LIST);
    helper_lists(DRIVE_GUEST_PRESENT, "");
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
    begin(DRIVE_CLIENT_LIST);
    helper_fails(REASON_AGENT_UNREACHABLE, "no answer");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "no answer");
}

/* An unmount was refused, after its container was removed. That a new one fails is no answer to
 * what was asked; and without syncs there is none. */
static void a_mounted_drive_gets_its_container_again(void **state)
{
    test.drive.state = DRIVE_UNMOUNTING;
    test.node.config.drives.flush_seconds = 5;
    begin(DRIVE_CLIENT_LIST);
    helper_lists(DRIVE_GUEST_MOUNTED, "/run/data");
    assert_string_equal(test.container_arguments, "--drive mount --flush 5");
    container_ends((struct container_reply){.kind = CONTAINER_FAILED}, "EROFS");
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    assert_false(has_directory());
    test.node.config.drives.flush_seconds = 0;
    begin(DRIVE_CLIENT_LIST);
    helper_lists(DRIVE_GUEST_MOUNTED, "/run/data");
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
}

/* Also of one that runs on, because the VM has ended or crustd has another database. */
static void remains_of_a_helper_are_passed_on(void **state)
{
    struct helper_outcome outcome = {.reason = REASON_HELPER_FAILED, .left = true};

    (void)error_set(&outcome.removal_error, 0, "busy");
    test.drive.state = DRIVE_READY;
    begin(DRIVE_CLIENT_LIST);
    helper_ends(&outcome);
    assert_int_equal(test.leftovers, 1);
    begin(DRIVE_CLIENT_LIST);
    helper_lists(DRIVE_GUEST_PRESENT, "");
    assert_int_equal(test.leftovers, 1);
    begin(DRIVE_CLIENT_LIST);
    drive_guest_stop(&test.call);
    assert_int_equal(test.passed_on, 1);
    test.helper_name = ""; /* it is not on record yet */
    begin(DRIVE_CLIENT_LIST);
    drive_guest_stop(&test.call);
    assert_int_equal(test.leftovers, 2);
}

static void an_unmount_removes_the_container_first(void **state)
{
    tree_make(HELD);
    begin(DRIVE_CLIENT_UNMOUNT);
    assert_int_equal(test.request.act, CONTAINER_CLEAN_UP);
    container_ends((struct container_reply){.kind = CONTAINER_TIMED_OUT, .left = true},
                   "RemoveContainer: no answer");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_UNKNOWN, "no answer");
    assert_true(tree_has(HELD));
    begin(DRIVE_CLIENT_UNMOUNT);
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
    assert_false(tree_has(HELD));
    assert_string_equal(test.helper_call, "unmount");
    assert_string_equal(test.mount.serial, SERIAL);
    helper_answers(STATUS_FAILED_PRECONDITION, "/run/data is in use by 1 processes: 12 (sleep)");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "12 (sleep)");
    begin(DRIVE_CLIENT_UNMOUNT); /* without a container */
    helper_answers(STATUS_OK, "");
    expect(STATUS_OK, DRIVE_IN_GUEST_ABSENT, "");
}

static void a_held_drive_grows_by_a_helper(void **state)
{
    struct helper_outcome outcome = {
        .report = {.volumes = 1, .volume = {{.device_bytes = 8192, .stats = {.has_bytes = true}}}}};

    tree_make(HELD);
    begin(DRIVE_CLIENT_GROW);
    assert_true(test.grow);
    assert_string_equal(test.helper_call, "");
    assert_string_equal(test.paths, "/run/data");
    helper_ends(&outcome);
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    begin(DRIVE_CLIENT_GROW);
    outcome.report.volume[0].fault = HELPER_FAULT_READ_ONLY;
    strcpy(outcome.report.volume[0].text, "mounted read-only");
    helper_ends(&outcome);
    assert_int_not_equal(test.result.status, STATUS_OK);
}

static void a_call_may_be_freed_at_any_time(void **state)
{
    test.has_companion = true;
    begin(DRIVE_CLIENT_MOUNT);
    drive_guest_stop(&test.call);
    assert_int_equal(test.ends, 0);
    test.has_companion = false;
    begin(DRIVE_CLIENT_MOUNT);
    assert_true(drive_guest_must_end(&test.call)); /* should not, while the VM lives */
    drive_guest_stop(&test.call);
    assert_true(has_directory());
}

#define COMPANION(name) cmocka_unit_test_setup_teardown(name, set_up_companion, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        COMPANION(a_mount_is_asked_for_as_the_row_has_it),
        COMPANION(a_refusal_says_what_is_known_of_the_mount),
        COMPANION(containers_are_asked_for_and_answered),
        COMPANION(an_agent_that_is_away_may_enter_containers_later),
        COMPANION(what_cannot_be_asked_is_reported),
        COMPANION(a_look_finds_the_drive),
        COMPANION(a_drive_grows_by_its_mount_point),
        TEST(a_drive_is_mounted_by_its_container),
        TEST(a_mount_that_fails_leaves_only_what_cannot_be_removed),
        TEST(a_guest_that_refuses_helpers_is_found_out_first),
        TEST(a_guest_needs_the_share),
        TEST(a_drive_in_use_is_looked_at),
        TEST(a_mounted_drive_gets_its_container_again),
        TEST(remains_of_a_helper_are_passed_on),
        TEST(an_unmount_removes_the_container_first),
        TEST(a_held_drive_grows_by_a_helper),
        TEST(a_call_may_be_freed_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
