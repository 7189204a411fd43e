/* SPDX-License-Identifier: Apache-2.0 */
/* stage_test.c - drivers that have a volume's metadata put in place and taken away; and volumes
 * that are published into a sandbox with containers, and become drives. */
#include "tests/unit/reconciler/command/clients_fixture.h"

#include "model/reason.h"

#define STAGED_HASH "b7dded8a12b528bef7f84da6e4966b781e0ec9cd61f36c59d96cfea71d079e1b"
#define BUNDLES     "/bundles"

static struct staging *staging; /* of the last call that waits */

static void on_staged(void *userdata, enum status_code code, const struct error *error)
{
    note(code, error);
}

static enum status_code ask(const struct reconciler_stage *asked)
{
    struct error error;
    enum status_code code;

    do { /* a node with many processes is read in several calls */
        error = (struct error){0};
        code = reconciler_stage(&test.core, asked, on_staged, NULL, &staging, &error);
    } while (strstr(error.text, "are being read"));
    (void)snprintf(test.error, sizeof(test.error), "%s", error.text);
    return code;
}

/* What the node says to a staging of another volume on this device. */
static enum status_code check_on(const char *device, const char *option)
{
    return ask(&(struct reconciler_stage){.target_path = STAGED,
                                          .device = device,
                                          .fs_type = "ext4",
                                          .options = option != NULL,
                                          .option = &option});
}

static enum status_code unstage(const char *path)
{
    struct error error = {0};
    enum status_code code = reconciler_unstage(&test.core, path, on_staged, NULL, &staging, &error);

    (void)snprintf(test.error, sizeof(test.error), "%s", error.text);
    return code;
}

static void a_staged_directory_that_is_gone_is_reported(void **state)
{
    test.core.context.synced = false; /* nothing is promised before the first scan is done */
    assert_int_equal(check_on("/dev/none", NULL), STATUS_UNAVAILABLE);
    test.core.context.synced = true;
    assert_int_equal(check_on("/dev/none", NULL), STATUS_OK);
    test.vanishes = true;
    run_pass();
    pass();
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "what was staged is gone again");
    test.full = true;
    assert_int_equal(check_on("/dev/none", NULL), STATUS_OK);
    run_pass();
    pass();
    assert_int_equal(test.code, STATUS_RESOURCE_EXHAUSTED);
}

static void calls_that_wait_have_a_bound(void **state)
{
    char path[32];

    for (unsigned i = 0; i < 2048; i++) {
        (void)snprintf(path, sizeof(path), "/path-%u", i);
        assert_int_equal(unstage(path), STATUS_OK);
    }
    assert_int_equal(unstage("/one-more"), answer_code(ANSWER_BUSY));
    assert_non_null(strstr(test.error, "too many calls wait"));
    run_pass();
    pass(); /* so many at a time */
    assert_true(stagings_are_due(&test.core));
    assert_in_range(test.answers, 1, 2047);
    while (stagings_are_due(&test.core))
        pass();
    assert_int_equal(test.answers, 2048);
}

/* ---- who else has the device ---- */

static void a_disk_image_of_a_live_sandbox_is_held(void **state)
{
    fake_device[0] = (struct fake_device){"/srv/a.img", DEVICE_KIND_FILE, 9, GIB, 0, false};
    assert_int_equal(check_on("/srv/a.img", NULL), STATUS_OK);
    stagings_fail(&test.core, "done with");
    change("UPDATE devices SET kind = 'file', major = 0, minor = 0, file_device = 1, inode = 9");
    assert_int_equal(check_on("/srv/a.img", NULL), answer_code(ANSWER_DEVICE_HELD));
}

/* The row knows its device in the commit before the answer, whenever the volume is decided. */
static void a_staged_device_is_held_until_it_is_unstaged(void **state)
{
    const struct reconciler_stage other = {
        .target_path = "/other", .device = "/dev/disk", .fs_type = "ext4"};

    put_disk(0, "/dev/disk", 5, GIB); /* as the volume's directory will say */
    assert_int_equal(check_on("/dev/disk", NULL), STATUS_OK);
    run_pass();
    pass();
    assert_int_equal(test.code, STATUS_OK);
    assert_int_equal(ask(&other), answer_code(ANSWER_DEVICE_HELD));
    change("UPDATE volumes SET target_path = NULL WHERE target_path = '" STAGED "'");
    assert_int_equal(check_on("/dev/disk", NULL), answer_code(ANSWER_DEVICE_HELD));
    change("UPDATE entries SET key = '" STAGED_HASH "' WHERE volume_id IN"
           " (SELECT volume_id FROM volumes WHERE target_path IS NULL)");
    assert_int_equal(check_on("/dev/disk", NULL), STATUS_OK); /* it is this volume's own row */
}

/* But readers may share it. */
static void a_disk_of_a_drive_is_held(void **state)
{
    const struct store_drive_mount_request request = {.drive_id = "data",
                                                      .sandbox_id = "sandbox-1",
                                                      .host_path = "/dev/sdb",
                                                      .vm_path = "/vm",
                                                      .fs_type = "ext4",
                                                      .writable = true};
    const struct store_drive_mount_disk disk = {.kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 5};
    int64_t drive_ref = 0;

    put_disk(0, "/dev/sdb", 5, GIB);
    assert_int_equal(store_add_drive_mount(the_store(), &request, "serial", &drive_ref),
                     STORE_DRIVE_MOUNT_ADDED);
    assert_int_equal(store_set_drive_mount_disk(the_store(), drive_ref, &disk), 0);
    assert_int_equal(check_on("/dev/sdb", "ro"), answer_code(ANSWER_DEVICE_HELD));
    assert_non_null(strstr(test.error, "/dev/sdb is in sandbox sandbox-1 as drive data"));
    change("UPDATE drive_mounts SET writable = 0");
    assert_int_equal(check_on("/dev/sdb", NULL), answer_code(ANSWER_DEVICE_HELD));
    assert_int_equal(check_on("/dev/sdb", "ro"), STATUS_OK);
}

/* ---- drives ---- */

static void add_container(const char *container_id)
{
    char path[64];

    (void)snprintf(path, sizeof(path), BUNDLES "/%s", container_id);
    tree_make(path);
    (void)snprintf(path, sizeof(path), BUNDLES "/%s/config.json", container_id);
    tree_write(path, "{\"annotations\":{\"io.kubernetes.cri.sandbox-id\":\"sandbox-1\"},"
                     "\"mounts\":[]}");
}

static int set_up_drives(void **state)
{
    (void)set_up(state);
    test.node.config.drives.enabled = true;
    test.node.config.paths.bundles = (struct config_list){.count = 1, .text = BUNDLES};
    add_container("sandbox-1");
    add_container("app");
    test.drive.state = DRIVE_READY;
    return 0;
}

static enum status_code publish(void)
{
    static const char *read_only = "ro";

    return ask(&(struct reconciler_stage){.target_path = STAGED,
                                          .device = "/dev/none",
                                          .fs_type = "ext4",
                                          .sandbox_id = "sandbox-1",
                                          .options = 1,
                                          .option = &read_only,
                                          .group = "4059",
                                          .group_policy = "OnRootMismatch"});
}

static void answer(enum status_code code)
{
    struct error error = {0};

    if (code != STATUS_OK)
        (void)error_set(&error, code, "the drive says no");
    test.drive.done(test.drive.userdata, code, NULL, &error);
}

static void a_read_only_drive_gets_no_group(void **state)
{
    assert_int_equal(publish(), STATUS_OK);
    assert_false(test.drive.writable || test.drive.has_fs_group);
    answer(STATUS_FAILED_PRECONDITION);
    assert_int_equal(test.code, STATUS_FAILED_PRECONDITION);
    assert_string_equal(test.error, "the drive says no");
}

/* Also once its containers have ended. */
static void a_drive_stays_one(void **state)
{
    assert_int_equal(scratch_directory_remove(tree_path(BUNDLES "/app")), 0);
    test.drive.is_there = true;
    assert_int_equal(publish(), STATUS_OK);
    assert_int_equal(test.drive.attached, 1);
    answer(STATUS_OK);
    test.drive.state = DRIVE_REMOVED;
    assert_int_equal(publish(), STATUS_OK);
    assert_int_equal(test.drive.attached, 1);
}

/* And one in use stays. */
static void a_drive_goes_before_the_metadata(void **state)
{
    test.drive.is_there = true;
    assert_int_equal(unstage(STAGED), STATUS_OK);
    answer(STATUS_FAILED_PRECONDITION);
    assert_int_equal(test.code, STATUS_FAILED_PRECONDITION);
    assert_false(stagings_wait(&test.core));
    test.drive.code = STATUS_UNAVAILABLE;
    assert_int_equal(unstage(STAGED), STATUS_UNAVAILABLE);
    test.drive.code = STATUS_OK;
    assert_int_equal(unstage(STAGED), STATUS_OK);
    assert_false(stagings_wait(&test.core));
    answer(STATUS_OK);
    assert_int_equal(test.answers, 1); /* this one waits for the record */
    assert_true(stagings_wait(&test.core));
}

/* Nobody is told that a volume is gone while it may be mounted in a guest. */
static void whether_it_is_a_drive_is_not_known(void **state)
{
    test.drive.get_code = STATUS_UNAVAILABLE;
    assert_int_equal(unstage(STAGED), STATUS_UNAVAILABLE);
    assert_int_equal(publish(), STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "cannot be read");
    assert_int_equal(test.drive.attached + test.drive.detached, 0);
    assert_false(stagings_wait(&test.core));
}

/* The database may be another one than that in which it was published. */
static void what_is_not_on_record_is_asked_of_the_vms(void **state)
{
    assert_int_equal(unstage(STAGED), STATUS_OK);
    assert_int_equal(test.drive.detached, 1);
    answer(STATUS_UNAVAILABLE);
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    test.node.config.drives.enabled = false;
    assert_int_equal(unstage(STAGED), STATUS_OK);
    assert_int_equal(test.drive.detached, 1);
}

static void cancelled_client_gets_no_answer(void **state)
{
    assert_int_equal(publish(), STATUS_OK);
    assert_null(reconciler_stage_cancel(staging));
    assert_int_equal(test.drive.cancelled, 1);
    assert_int_equal(test.answers, 0);
}

#define DRIVES(test) cmocka_unit_test_setup_teardown(test, set_up_drives, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLIENTS(a_staged_directory_that_is_gone_is_reported),
        CLIENTS(calls_that_wait_have_a_bound),
        CLIENTS(a_disk_image_of_a_live_sandbox_is_held),
        CLIENTS(a_staged_device_is_held_until_it_is_unstaged),
        CLIENTS(a_disk_of_a_drive_is_held),
        DRIVES(a_read_only_drive_gets_no_group),
        DRIVES(a_drive_stays_one),
        DRIVES(a_drive_goes_before_the_metadata),
        DRIVES(whether_it_is_a_drive_is_not_known),
        DRIVES(what_is_not_on_record_is_asked_of_the_vms),
        DRIVES(cancelled_client_gets_no_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
