/* SPDX-License-Identifier: Apache-2.0 */
/* guest_container_test.c - a drive in a guest that has only kata-agent: how it is mounted and kept,
 * which containers are asked for, in which order, and what stays in the sandbox's share. */
#include "tests/unit/reconciler/drive/guest_container_scenery.h"

/* ---- mounting ---- */

#define CHECK    "--drive check --timeout 4 " SERIAL " 4096 rw /vol/0 /vol/1 /vol/2 /vol/3"
#define COMPARED " /dev /run/kata-containers"

static void find_checked(void)
{
    expect_helper(CHECK " data", "/run/data /run" COMPARED);
    helper_prints("OK", "", "sda", false);
}

static void pass_check(void)
{
    begin(DRIVE_GUEST_MOUNT);
    find_checked();
}

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
    assert_string_equal(test.container_arguments,
                        "--drive hold --flush 7 --fs-group 2000 --fs-group-policy Always " SERIAL
                        " /vol/0");
    assert_true(test.request.files_of_others);
    assert_string_equal(test.storage.address, "scsi:255:3");
    assert_string_equal(test.options, "nodev nosuid noatime");
    assert_true(tree_has(HELD "/agent"));
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    assert_string_equal(test.reply.device, "sda");
    assert_true(tree_has(HELD));
}

/* kata-agent neither mounts nor unmounts at a mount point that is spelled as in a call that was cut
 * off. */
static void each_mount_point_is_spelled_anew(void **state)
{
    bool seen[128] = {false};
    unsigned spellings = 0;

    (void)state;
    for (unsigned i = 0; i < 64; i++) {
        size_t slashes;

        pass_check();
        assert_int_equal(strncmp(test.mount_point, "/run/data/", strlen("/run/data/")), 0);
        slashes = strspn(test.mount_point + strlen("/run/data"), "/");
        assert_int_equal(strlen(test.mount_point), strlen("/run/data") + slashes);
        spellings += !seen[slashes];
        seen[slashes] = true;
        container_ends((struct container_reply){.kind = CONTAINER_FAILED}, "");
    }
    assert_true(spellings > 4);
}

#define NOT_MOUNTED                                                                                \
    "{\"version\":1,\"drive\":{\"status\":\"FAILED_PRECONDITION\",\"text\":\"another disk\","      \
    "\"device\":\"sda\",\"bytes\":4096,\"mounted\":false}}\n"

static void hold_without_a_mount(void)
{
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, NOT_MOUNTED);
    assert_int_equal(test.request.act, CONTAINER_CLEAN_UP);
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, "");
}

/* By chance it was spelled so before. */
static void a_mount_point_with_an_old_spelling_is_spelled_once_more(void **state)
{
    (void)state;
    pass_check();
    hold_without_a_mount();
    find_checked();
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");

    begin(DRIVE_GUEST_MOUNT);
    container_ends((struct container_reply){.kind = CONTAINER_DONE}, ""); /* that of before */
    find_checked();
    hold_without_a_mount();
    find_checked();
    hold_without_a_mount();
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "another disk");
}

/* Only that spelling has kata-agent take over what is mounted, and unmount it later. */
static void a_mount_that_was_left_is_taken_over(void **state)
{
    (void)state;
    begin(DRIVE_GUEST_MOUNT);
    helper_prints("OK", "", "sda", true);
    assert_int_equal(test.request.act, CONTAINER_HOLD);
    assert_string_equal(test.mount_point, "/run/data");
}

static void a_read_only_drive_is_mounted_read_only(void **state)
{
    (void)state;
    test.drive.request.writable = false;
    test.drive.request.has_fs_group = true; /* nobody can give it */
    begin(DRIVE_GUEST_MOUNT);
    assert_non_null(strstr(test.arguments, " 4096 ro "));
    helper_prints("OK", "", "sda", false);
    assert_string_equal(test.options, "nodev nosuid ro");
    assert_null(strstr(test.container_arguments, "--fs-group"));
}

static void entries_whose_group_was_not_changed_are_reported(void **state)
{
    (void)state;
    test.drive.request.has_fs_group = true;
    test.drive.request.fs_group = 0;
    test.drive.request.fs_group_policy = DRIVE_GROUP_ON_ROOT_MISMATCH;
    pass_check();
    assert_non_null(
        strstr(test.container_arguments, " --fs-group 0 --fs-group-policy OnRootMismatch "));
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true},
                   "{\"version\":1,\"drive\":{\"status\":\"OK\",\"text\":\"\",\"device\":\"sda\","
                   "\"bytes\":4096,\"mounted\":true,\"changed\":1,\"skipped\":2,\"failed\":3}}\n");
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
    assert_string_equal(test.reply.remark, "the group of 3 entries could not be changed");
}

/* The program is ended and its container removed, which unmounts the disk. The next walk goes on.
 */
static void a_walk_that_takes_too_long_leaves_no_mount(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_TIMED_OUT, .step = CONTAINER_READ};

    (void)state;
    (void)error_set(&reply.error, 0, "ReadStdout: the program has not ended within 20 s");
    test.drive.request.has_fs_group = true;
    pass_check();
    container_ends(reply, "");
    expect(STATUS_DEADLINE_EXCEEDED, DRIVE_IN_GUEST_ABSENT, "not ended");
    assert_false(tree_has(HELD));
    test.drive.request.has_fs_group = false; /* then it is the guest that does not answer */
    pass_check();
    container_ends(reply, "");
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_ABSENT, "not ended");
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
    expect(reason_code(REASON_AGENT_UNSUPPORTED, STATE_BLOCK_GROWN), DRIVE_IN_GUEST_UNKNOWN,
           "confidential");
    begin(DRIVE_GUEST_MOUNT);
    helper_fails(REASON_AGENT_POLICY_DENIED, false, "policy");
    expect(STATUS_PERMISSION_DENIED, DRIVE_IN_GUEST_UNKNOWN, "policy");
    test.at = ""; /* another disk may have the one that is sent instead */
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "by its address");
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

/* Kata's Go runtime makes the directory all the same. */
static void a_guest_without_the_share_is_refused_before_it_has_the_disk(void **state)
{
    (void)state;
    test.guest_share = GUEST_SHARE_NONE;
    test.drive.state = DRIVE_REQUESTED;
    begin(DRIVE_GUEST_LOOK);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "shares no directory");
    test.drive.state = DRIVE_ATTACHED;
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "shares no directory");
    test.is_unknown = true;
    begin(DRIVE_GUEST_MOUNT);
    assert_non_null(test.helper); /* it is told why it cannot run, or runs */
}

/* A sandbox of runtime-rs whose first container is not yet created. */
static void a_share_that_comes_later_is_waited_for(void **state)
{
    struct store_sandbox sandbox = sandbox_of("sandbox-1", &fixture_drive);
    struct store *store = test.node.context.store;

    (void)state;
    sandbox.runtime = RUNTIME_KATA_RS;
    assert_int_equal(store_begin(store), 0);
    (void)put_sandbox(store, &sandbox, true);
    assert_int_equal(store_commit(store), 0);
    tree_make("/run/kata-containers/shared/sandboxes/sandbox-1/rw");
    begin(DRIVE_GUEST_MOUNT);
    expect(STATUS_UNAVAILABLE, DRIVE_IN_GUEST_ABSENT, "not yet made");
    tree_make("/run/kata-containers/shared/sandboxes/sandbox-1/rw/passthrough");
    pass_check();
    assert_string_equal(test.directory,
                        "/run/kata-containers/shared/containers/passthrough/" SERIAL);
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
}

/* As Cloud Hypervisor gives it. */
static void a_disk_may_have_a_pci_address(void **state)
{
    (void)state;
    test.at = "pci:06";
    pass_check();
    assert_string_equal(test.storage.address, "pci:06");
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
}

/* In another directory, because the guest may have taken the first one for an older one. */
static void refuse_first(struct container_reply reply)
{
    container_ends(reply, "");
    wait_for_second_container();
}

static void a_container_that_is_refused_is_created_once_more(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE};

    (void)state;
    (void)error_set(&reply.error, 0, "CreateContainer: EROFS");
    pass_check();
    refuse_first(reply);
    container_ends((struct container_reply){.kind = CONTAINER_DONE, .held = true}, LINE("OK", ""));
    expect(STATUS_OK, DRIVE_IN_GUEST_MOUNTED, "");
}

static void a_mount_that_the_agent_refuses_leaves_nothing(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE};

    (void)state;
    (void)error_set(&reply.error, 0, "CreateContainer: EROFS");
    pass_check();
    refuse_first(reply);
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "EROFS");
    assert_false(tree_has(HELD));
    test.deadline_ns = NSEC_PER_SEC; /* not enough for another one */
    begin(DRIVE_GUEST_MOUNT);
    helper_prints("OK", "", "sda", false);
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "EROFS");
    test.deadline_ns = 0;
    pass_check();
    refuse_first(reply);
    reply.left = true;
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "EROFS");
    assert_true(tree_has(HELD));
}

static void a_refusal_names_the_path_that_was_asked_for(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE};

    (void)state;
    (void)error_set(&reply.error, 0,
                    "failed to mount /dev/sda to /run/data////, with error: EINVAL");
    pass_check();
    refuse_first(reply);
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "to /run/data, with error: EINVAL");
}

static void a_disk_that_came_before_the_agent_is_explained(void **state)
{
    struct container_reply reply = {.kind = CONTAINER_FAILED, .step = CONTAINER_CREATE};

    (void)state;
    test.at = "pci:06";
    (void)error_set(&reply.error, 0,
                    "CreateContainer: INTERNAL: Timeout after 3s waiting for uevent "
                    "VirtioBlkPciMatcher { rex: Regex(\"^/devices\") }");
    pass_check();
    container_ends(reply, "");
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "attach it again");
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
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_ABSENT, "malformed");
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

static void missing_helper_program_is_reported(void **state)
{
    (void)state;
    test.program_result = HELPER_PROGRAM_MISSING;
    pass_check();
    expect(STATUS_FAILED_PRECONDITION, DRIVE_IN_GUEST_UNKNOWN, "no such program");
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_drive_is_checked_then_held),
        TEST(each_mount_point_is_spelled_anew),
        TEST(a_mount_point_with_an_old_spelling_is_spelled_once_more),
        TEST(a_mount_that_was_left_is_taken_over),
        TEST(a_read_only_drive_is_mounted_read_only),
        TEST(entries_whose_group_was_not_changed_are_reported),
        TEST(a_walk_that_takes_too_long_leaves_no_mount),
        TEST(the_nearest_directory_that_is_there_is_checked),
        TEST(a_guest_that_takes_its_time_does_not_take_all),
        TEST(what_the_check_refuses_is_not_mounted),
        TEST(a_guest_that_gets_no_helper_is_refused),
        TEST(what_this_route_cannot_do_is_refused_before_anything),
        TEST(a_guest_without_the_share_is_refused_before_it_has_the_disk),
        TEST(a_share_that_comes_later_is_waited_for),
        TEST(a_disk_may_have_a_pci_address),
        TEST(a_container_that_is_refused_is_created_once_more),
        TEST(a_mount_that_the_agent_refuses_leaves_nothing),
        TEST(a_refusal_names_the_path_that_was_asked_for),
        TEST(a_disk_that_came_before_the_agent_is_explained),
        TEST(another_disk_is_unmounted_at_once),
        TEST(a_holder_that_prints_nonsense_is_removed),
        TEST(what_an_earlier_mount_left_goes_first),
        TEST(missing_helper_program_is_reported),
        TEST(a_held_drive_grows_by_a_helper),
        TEST(a_call_may_be_freed_at_any_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
