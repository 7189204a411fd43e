/* SPDX-License-Identifier: Apache-2.0 */
/* stage_test.c - drivers that have a volume's metadata put in place and taken away. */
#include "tests/unit/reconciler/command/clients_fixture.h"

#include "model/reason.h"
#include "reconciler/command/answers.h"

#define STAGED_HASH "b7dded8a12b528bef7f84da6e4966b781e0ec9cd61f36c59d96cfea71d079e1b"

static void on_staged(void *userdata, enum status_code code, const struct error *error)
{
    (void)userdata;
    note(code, error);
}

static enum status_code stage(const char *fs_type, const char *sandbox_id,
                              struct staging **ret_staging, struct error *error)
{
    const struct reconciler_stage asked = {
        .target_path = STAGED,
        .device = "/dev/none",
        .fs_type = fs_type,
        .sandbox_id = sandbox_id,
    };

    return stage_begin(test.clients, &asked, on_staged, NULL, ret_staging, error);
}

/* What the node says to a staging of another volume on this device. */
static enum status_code check_on(const char *device, const char *option)
{
    const struct reconciler_stage asked = {
        .target_path = STAGED,
        .device = device,
        .fs_type = "ext4",
        .options = option != NULL,
        .option = &option,
    };
    struct staging *staging;
    struct error error = {0};
    enum status_code code = stage_begin(test.clients, &asked, on_staged, NULL, &staging, &error);

    (void)snprintf(test.error, sizeof(test.error), "%s", error.text);
    return code;
}

static const char *name_of(enum volume_layout layout)
{
    static char name[STORE_KEY_BYTES];

    if (layout == LAYOUT_CRUST)
        sha256_hex(STAGED, strlen(STAGED), name);
    else
        base64url_encode(STAGED, strlen(STAGED), name);
    return name;
}

static bool is_staged_in(enum volume_layout layout)
{
    return tree_has(directory_of(layout, name_of(layout)));
}

static bool is_staged(void)
{
    return is_staged_in(LAYOUT_KATA);
}

/* The watcher's event about what a staging made. */
static void announce_staged(void)
{
    work_queue_add_directory(&test.node.queue, TREE_KATA_VOLUMES, name_of(LAYOUT_KATA));
}

static void a_staging_is_answered_once_it_is_on_record(void **state)
{
    struct staging *staging;
    struct error error = {0};

    (void)state;
    test.node.config.crust.stage_layout = STAGE_KATA;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    assert_true(is_staged());
    assert_true(stagings_wait(test.clients));
    assert_false(stagings_are_due(test.clients));
    run_pass();
    assert_true(stagings_are_due(test.clients));
    assert_int_equal(test.answers, 0);
    announce_staged();
    pass();
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_OK);
    assert_true(key_queue_is_empty(&test.node.queue.directories[TREE_KATA_VOLUMES]));
    assert_int_equal(lines_of(the_store(), "volume_staged"), 1);
    assert_false(stagings_wait(test.clients));

    assert_int_equal(unstage_begin(test.clients, STAGED, on_staged, NULL, &staging, &error),
                     STATUS_OK);
    assert_false(is_staged());
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_UNAVAILABLE); /* not done yet */
    run_pass();
    pass();
    assert_int_equal(test.answers, 2);
    assert_int_equal(lines_of(the_store(), "volume_unstaged"), 1);
}

static void a_staged_directory_that_is_gone_is_reported(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    test.vanishes = true;
    run_pass();
    pass();
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "what was staged is gone again");
    test.full = true;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    run_pass();
    pass();
    assert_int_equal(test.code, STATUS_RESOURCE_EXHAUSTED);
}

static void requests_that_contradict_the_node_are_refused(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("btrfs", NULL, &staging, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "ext4"));
    assert_int_equal(stage("ext4", "sandbox-2", &staging, &error), STATUS_UNAVAILABLE);
    assert_int_equal(key_queue_count(&test.node.queue.sandboxes), 1);
    assert_int_equal(stage("ext4", "sandbox-1", &staging, &error), STATUS_OK);
    test.node.context.synced = false;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_UNAVAILABLE);
}

static void store_failure_is_reported_to_all_waiting_clients(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    assert_null(
        reconciler_stage_cancel(staging)); /* its client has gone; it is done all the same */
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    stagings_fail(test.clients, "disk full");
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_non_null(strstr(test.error, "disk full"));
    assert_false(stagings_wait(test.clients));
}

static void nothing_is_promised_from_memory(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "not on disk"));
    assert_false(is_staged());
}

/* ---- where and what ---- */

static void staging_uses_the_configured_directory(void **state)
{
    static const struct {
        enum config_stage_layout layout;
        bool in_kata, in_crust;
    } table[] = {
        {STAGE_KATA, true, false},
        {STAGE_CRUST, false, true},
        {STAGE_BOTH, true, true},
    };
    struct staging *staging;
    struct error error;

    (void)state;
    for (size_t i = 0; i < array_length(table); i++) {
        test.node.config.crust.stage_layout = table[i].layout;
        assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
        assert_int_equal(is_staged_in(LAYOUT_KATA), table[i].in_kata);
        assert_int_equal(is_staged_in(LAYOUT_CRUST), table[i].in_crust);
        run_pass();
        pass();
        assert_int_equal(test.code, STATUS_OK);
        assert_int_equal(unstage_begin(test.clients, STAGED, on_staged, NULL, &staging, &error),
                         STATUS_OK);
        assert_false(is_staged_in(LAYOUT_KATA) || is_staged_in(LAYOUT_CRUST));
        run_pass();
        pass();
        assert_int_equal(test.code, STATUS_OK);
    }
}

static void staging_the_same_again_adds_no_journal_line(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
        run_pass();
        pass();
    }
    assert_int_equal(test.answers, 2);
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(lines_of(the_store(), "volume_staged"), 1);
}

static void a_sandbox_that_is_named_has_its_file(void **state)
{
    struct staging *staging;
    struct error error;
    char path[600];

    (void)state;
    assert_int_equal(stage("ext4", "sandbox-1", &staging, &error), STATUS_OK);
    (void)snprintf(path, sizeof(path), "%s/sandbox-1",
                   directory_of(LAYOUT_KATA, name_of(LAYOUT_KATA)));
    assert_true(tree_has(path));
    run_pass();
    pass();
    assert_int_equal(test.code, STATUS_OK);
}

static void a_foreign_directory_is_not_taken_over(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    tree_write(directory_of(LAYOUT_KATA, name_of(LAYOUT_KATA)), "a file");
    assert_int_equal(stage("ext4", NULL, &staging, &error), answer_code(ANSWER_NAME_TAKEN));
    assert_false(stagings_wait(test.clients));
}

static void directory_with_foreign_files_is_refused(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    test.problem = "a directory of somebody's";
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    run_pass();
    pass();
    assert_int_equal(test.code, reason_code(REASON_INVALID_MOUNT_INFO, STATE_UNMANAGED));
    assert_non_null(strstr(test.error, "does not belong there"));
}

/* A name that may be lost with the power is no promise. */
static void failed_sync_of_the_root_is_reported(void **state)
{
    struct staging *staging;
    struct error error;

    (void)state;
    assert_int_equal(stage("ext4", NULL, &staging, &error), STATUS_OK);
    run_pass();
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(stagings_record(test.clients), 0);
    assert_int_equal(store_commit(the_store()), 0);
    assert_int_equal(rename(tree_path(KATA_VOLUMES), tree_path("/gone")), 0);
    tree_write(KATA_VOLUMES, "a file");
    assert_int_equal(stagings_answer(test.clients), 0);
    assert_int_equal(test.code, answer_code(ANSWER_NOT_STAGED));
    assert_non_null(strstr(test.error, "cannot sync"));
}

static void calls_that_wait_have_a_bound(void **state)
{
    struct staging *staging;
    struct error error;
    char path[32];

    (void)state;
    for (unsigned i = 0; i < 2048; i++) {
        (void)snprintf(path, sizeof(path), "/path-%u", i);
        assert_int_equal(unstage_begin(test.clients, path, on_staged, NULL, &staging, &error),
                         STATUS_OK);
    }
    assert_int_equal(unstage_begin(test.clients, "/one-more", on_staged, NULL, &staging, &error),
                     answer_code(ANSWER_BUSY));
    assert_non_null(strstr(error.text, "too many calls wait"));
    run_pass();
    pass(); /* so many at a time */
    assert_true(stagings_are_due(test.clients));
    assert_in_range(test.answers, 1, 2047);
    while (stagings_are_due(test.clients))
        pass();
    assert_int_equal(test.answers, 2048);
}

/* ---- who else has the device ---- */

static void a_device_that_the_host_has_mounted_is_held(void **state)
{
    (void)state;
    put_disk(0, "/dev/sdb", 5, GIB);
    assert_int_equal(check_on("/dev/sdb", NULL), STATUS_OK);
    test.host_use = "/mnt";
    assert_int_equal(check_on("/dev/sdb", NULL), answer_code(ANSWER_DEVICE_HELD));
    assert_non_null(strstr(test.error, "/dev/sdb is in use on the host: /mnt"));
}

static void a_device_that_another_stands_on_is_held(void **state)
{
    (void)state;
    put_disk(0, "/dev/sdb", 5, GIB);
    tree_make("/sys/devices/block/sdb/holders");
    tree_make("/sys/devices/block/md0");
    tree_make("/sys/dev/block");
    assert_int_equal(symlink("../../devices/block/sdb", tree_path("/sys/dev/block/7:5")), 0);
    assert_int_equal(check_on("/dev/sdb", NULL), STATUS_OK);
    assert_int_equal(symlink("../../md0", tree_path("/sys/devices/block/sdb/holders/md0")), 0);
    assert_int_equal(check_on("/dev/sdb", NULL), answer_code(ANSWER_DEVICE_HELD));
    assert_non_null(strstr(test.error, "/dev/sdb is held on the host by md0"));
}

static void a_device_of_a_live_sandbox_is_held(void **state)
{
    (void)state;
    put_disk(0, "/dev/disk", 1, GIB); /* the volume's that is bound */
    assert_int_equal(check_on("/dev/disk", NULL), answer_code(ANSWER_DEVICE_HELD));
    assert_non_null(
        strstr(test.error, "/dev/disk is in a live sandbox sandbox-1 as volume " VOLUME_PATH));
}

static void readers_may_share_a_device(void **state)
{
    (void)state;
    put_disk(0, "/dev/disk", 1, GIB);
    assert_int_equal(check_on("/dev/disk", "ro"), answer_code(ANSWER_DEVICE_HELD));
    change("UPDATE entries SET options = '[\"ro\"]', read_only = 1");
    assert_int_equal(check_on("/dev/disk", NULL), answer_code(ANSWER_DEVICE_HELD));
    assert_int_equal(check_on("/dev/disk", "ro"), STATUS_OK);
}

static void a_disk_image_of_a_live_sandbox_is_held(void **state)
{
    (void)state;
    fake_device[0] = (struct fake_device){"/srv/a.img", DEVICE_KIND_FILE, 9, GIB, 0, false};
    assert_int_equal(check_on("/srv/a.img", NULL), STATUS_OK);
    stagings_fail(test.clients, "done with");
    change("UPDATE devices SET kind = 'file', major = 0, minor = 0, file_device = 1, inode = 9");
    assert_int_equal(check_on("/srv/a.img", NULL), answer_code(ANSWER_DEVICE_HELD));
}

/* The row knows its device in the commit before the answer, whenever the volume is decided. */
static void a_staged_device_is_held_until_it_is_unstaged(void **state)
{
    struct reconciler_stage other = {
        .target_path = "/other", .device = "/dev/disk", .fs_type = "ext4"};
    struct staging *staging;
    struct error error;

    (void)state;
    put_disk(0, "/dev/disk", 5, GIB); /* as the volume's directory will say */
    assert_int_equal(check_on("/dev/disk", NULL), STATUS_OK);
    run_pass();
    pass();
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(stage_begin(test.clients, &other, on_staged, NULL, &staging, &error),
                     answer_code(ANSWER_DEVICE_HELD));
    change("UPDATE volumes SET target_path = NULL WHERE target_path = '" STAGED "'");
    assert_int_equal(check_on("/dev/disk", NULL), answer_code(ANSWER_DEVICE_HELD));
    change("UPDATE entries SET key = '" STAGED_HASH "' WHERE volume_id IN"
           " (SELECT volume_id FROM volumes WHERE target_path IS NULL)");
    assert_int_equal(check_on("/dev/disk", NULL), STATUS_OK); /* it is this volume's own row */
}

static void begin_drive(bool writable)
{
    const struct store_drive_mount_request request = {.drive_id = "data",
                                                      .sandbox_id = "sandbox-1",
                                                      .host_path = "/dev/sdb",
                                                      .vm_path = "/vm",
                                                      .fs_type = "ext4",
                                                      .writable = writable};
    const struct store_drive_mount_disk disk = {.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 5};
    int64_t drive_ref = 0;

    put_disk(0, "/dev/sdb", 5, GIB);
    assert_int_equal(store_add_drive_mount(the_store(), &request, "serial", &drive_ref),
                     STORE_DRIVE_MOUNT_ADDED);
    assert_int_equal(store_set_drive_mount_disk(the_store(), drive_ref, &disk), 0);
}

static void a_disk_of_a_drive_is_held(void **state)
{
    (void)state;
    begin_drive(true);
    assert_int_equal(check_on("/dev/sdb", "ro"), answer_code(ANSWER_DEVICE_HELD));
    assert_non_null(strstr(test.error, "/dev/sdb is in sandbox sandbox-1 as drive data"));
}

static void readers_may_share_the_disk_of_a_drive(void **state)
{
    (void)state;
    begin_drive(false);
    assert_int_equal(check_on("/dev/sdb", NULL), answer_code(ANSWER_DEVICE_HELD));
    assert_int_equal(check_on("/dev/sdb", "ro"), STATUS_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLIENTS(a_staging_is_answered_once_it_is_on_record),
        CLIENTS(a_staged_directory_that_is_gone_is_reported),
        CLIENTS(requests_that_contradict_the_node_are_refused),
        CLIENTS(store_failure_is_reported_to_all_waiting_clients),
        cmocka_unit_test_setup_teardown(nothing_is_promised_from_memory, set_up_in_memory,
                                        tear_down),
        CLIENTS(staging_uses_the_configured_directory),
        CLIENTS(staging_the_same_again_adds_no_journal_line),
        CLIENTS(a_sandbox_that_is_named_has_its_file),
        CLIENTS(a_foreign_directory_is_not_taken_over),
        CLIENTS(directory_with_foreign_files_is_refused),
        CLIENTS(failed_sync_of_the_root_is_reported),
        CLIENTS(calls_that_wait_have_a_bound),
        CLIENTS(a_device_that_the_host_has_mounted_is_held),
        CLIENTS(a_device_that_another_stands_on_is_held),
        CLIENTS(a_device_of_a_live_sandbox_is_held),
        CLIENTS(readers_may_share_a_device),
        CLIENTS(a_disk_image_of_a_live_sandbox_is_held),
        CLIENTS(a_staged_device_is_held_until_it_is_unstaged),
        CLIENTS(a_disk_of_a_drive_is_held),
        CLIENTS(readers_may_share_the_disk_of_a_drive),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
