/* SPDX-License-Identifier: Apache-2.0 */
/* publish_test.c - volumes that are published into a sandbox with containers become drives. */
#include "tests/unit/reconciler/command/clients_fixture.h"

#include "reconciler/command/answers.h"
#include "reconciler/command/staging.h"

#define SANDBOX "sandbox-1"
#define BUNDLES "/bundles"
#define OTHER   "/var/lib/kubelet/pods/uid/volumes/kubernetes.io~csi/pv/mount"

static const char *asked_options[] = {"rw", "noatime", "context=\"u:o:t:s0\"", "bind"};
static struct reconciler_stage asked;

static void on_published(void *userdata, enum status_code code, const struct error *error)
{
    (void)userdata;
    note(code, error);
}

static enum status_code publish(struct staging **ret_staging)
{
    struct error error;
    enum status_code code;

    do { /* a node with many processes is read in several calls */
        error = (struct error){0};
        code = stage_begin(test.clients, &asked, on_published, NULL, ret_staging, &error);
    } while (strstr(error.text, "are being read"));
    (void)snprintf(test.error, sizeof(test.error), "%s", error.text);
    return code;
}

static enum status_code unpublish(struct staging **ret_staging)
{
    struct error error = {0};

    return unstage_begin(test.clients, OTHER, on_published, NULL, ret_staging, &error);
}

static void add_container(const char *container_id)
{
    char path[256], text[256];

    (void)snprintf(path, sizeof(path), BUNDLES "/%s", container_id);
    tree_make(path);
    (void)snprintf(path, sizeof(path), BUNDLES "/%s/config.json", container_id);
    (void)snprintf(text, sizeof(text),
                   "{\"annotations\":{\"io.kubernetes.cri.sandbox-id\":\"" SANDBOX
                   "\"},\"mounts\":[]}");
    tree_write(path, text);
}

static int set_up_drives(void **state)
{
    (void)set_up(state);
    test.node.config.drives.enabled = true;
    test.node.config.paths.bundles = (struct config_list){.count = 1, .text = BUNDLES};
    add_container(SANDBOX);
    asked = (struct reconciler_stage){.target_path = OTHER,
                                      .device = "/dev/none",
                                      .fs_type = "ext4",
                                      .sandbox_id = SANDBOX,
                                      .options = array_length(asked_options),
                                      .option = asked_options,
                                      .group = "4059",
                                      .group_policy = "OnRootMismatch"};
    return 0;
}

static void answer(enum status_code code)
{
    struct error error = {0};

    if (code != STATUS_OK)
        (void)error_set(&error, code, "the drive says no");
    test.drive.done(test.drive.userdata, code, NULL, &error);
}

static void a_sandbox_without_containers_gets_metadata(void **state)
{
    struct staging *staging;

    (void)state;
    assert_int_equal(publish(&staging), STATUS_OK);
    assert_int_equal(test.drive.attached, 0);
    assert_null(staging->wait);
}

static void a_sandbox_with_containers_gets_a_drive(void **state)
{
    struct staging *staging;
    char name[STORE_KEY_BYTES];

    (void)state;
    add_container("app");
    assert_int_equal(publish(&staging), STATUS_OK);
    assert_int_equal(test.drive.attached, 1);
    assert_string_equal(test.drive.host_path, "/dev/none");
    assert_string_equal(test.drive.sandbox_id, SANDBOX);
    assert_string_equal(test.drive.options, "noatime");
    assert_int_equal(strlen(test.drive.drive_id), DRIVE_ID_CHARS);
    assert_memory_equal(test.drive.drive_id, "pub-", 4);
    assert_memory_equal(test.drive.vm_path, "/run/crust/volumes/", 19);
    assert_string_equal(test.drive.vm_path + 19, test.drive.drive_id + 4);
    assert_true(test.drive.writable && test.drive.has_fs_group);
    assert_int_equal(test.drive.fs_group, 4059);
    assert_int_equal(test.drive.policy, DRIVE_GROUP_ON_ROOT_MISMATCH);
    assert_int_equal(test.answers, 0);
    answer(STATUS_OK);
    assert_int_equal(test.answers, 1);
    assert_int_equal(test.code, STATUS_OK);
    base64url_encode(OTHER, strlen(OTHER), name);
    assert_false(tree_has(directory_of(LAYOUT_KATA, name)));
    assert_false(stagings_wait(test.clients));
}

static void a_read_only_drive_gets_no_group(void **state)
{
    static const char *read_only[] = {"ro"};
    struct staging *staging;

    (void)state;
    add_container("app");
    asked.options = 1;
    asked.option = read_only;
    assert_int_equal(publish(&staging), STATUS_OK);
    assert_false(test.drive.writable || test.drive.has_fs_group);
    assert_string_equal(test.drive.options, "");
    answer(STATUS_FAILED_PRECONDITION);
    assert_int_equal(test.code, STATUS_FAILED_PRECONDITION);
    assert_string_equal(test.error, "the drive says no");
}

/* It is published again by a kubelet that was restarted, for one. */
static void a_volume_that_has_metadata_keeps_it(void **state)
{
    struct store_entry entry = entry_of("key", OTHER, 98);
    struct staging *staging;
    int64_t volume_id;
    bool changed;

    (void)state;
    add_container("app");
    assert_int_equal(store_put_entry(the_store(), &entry, &volume_id, &changed), 0);
    assert_int_equal(publish(&staging), STATUS_OK);
    assert_int_equal(test.drive.attached, 0);
}

/* Also once its containers have ended. */
static void a_drive_stays_one(void **state)
{
    struct staging *staging;

    (void)state;
    test.drive.is_there = true;
    test.drive.state = DRIVE_READY;
    assert_int_equal(publish(&staging), STATUS_OK);
    assert_int_equal(test.drive.attached, 1);
    answer(STATUS_OK);
    test.drive.state = DRIVE_REMOVED;
    assert_int_equal(publish(&staging), STATUS_OK);
    assert_int_equal(test.drive.attached, 1);
}

static void without_drives_there_is_metadata_only(void **state)
{
    struct staging *staging;

    (void)state;
    add_container("app");
    test.node.config.drives.enabled = false;
    assert_int_equal(publish(&staging), STATUS_OK);
    assert_int_equal(test.drive.attached, 0);
}

static void refusals_of_the_core_reach_the_client(void **state)
{
    struct staging *staging;

    (void)state;
    add_container("app");
    test.drive.code = STATUS_PERMISSION_DENIED;
    assert_int_equal(publish(&staging), STATUS_PERMISSION_DENIED);
    assert_string_equal(test.error, "no drive");
    assert_int_equal(test.answers, 0);
}

static void a_drive_goes_before_the_metadata(void **state)
{
    struct staging *staging;

    (void)state;
    add_container("app");
    assert_int_equal(publish(&staging), STATUS_OK);
    answer(STATUS_OK);
    test.drive.is_there = true;
    test.drive.state = DRIVE_READY;
    assert_int_equal(unpublish(&staging), STATUS_OK);
    assert_int_equal(test.drive.detached, 1);
    assert_false(stagings_wait(test.clients));
    answer(STATUS_OK);
    assert_int_equal(test.answers, 1); /* the publication; its end waits for the record */
    assert_true(stagings_wait(test.clients));
}

static void a_drive_that_is_in_use_stays(void **state)
{
    struct staging *staging;

    (void)state;
    test.drive.is_there = true;
    test.drive.state = DRIVE_READY;
    assert_int_equal(unpublish(&staging), STATUS_OK);
    answer(STATUS_FAILED_PRECONDITION);
    assert_int_equal(test.code, STATUS_FAILED_PRECONDITION);
    assert_false(stagings_wait(test.clients));
    test.drive.code = STATUS_UNAVAILABLE;
    assert_int_equal(unpublish(&staging), STATUS_UNAVAILABLE);
}

/* Nobody is told that a volume is gone while it may be mounted in a guest. */
static void whether_it_is_a_drive_is_not_known(void **state)
{
    struct staging *staging;

    (void)state;
    add_container("app");
    test.drive.get_code = STATUS_UNAVAILABLE;
    assert_int_equal(unpublish(&staging), STATUS_UNAVAILABLE);
    assert_int_equal(publish(&staging), STATUS_UNAVAILABLE);
    assert_string_equal(test.error, "cannot be read");
    assert_int_equal(test.drive.attached + test.drive.detached, 0);
    assert_false(stagings_wait(test.clients));
}

/* The database may be another one than that in which it was published. */
static void what_is_not_on_record_is_asked_of_the_vms(void **state)
{
    struct staging *staging;

    (void)state;
    assert_int_equal(unpublish(&staging), STATUS_OK);
    assert_int_equal(test.drive.detached, 1);
    answer(STATUS_UNAVAILABLE);
    assert_int_equal(test.code, STATUS_UNAVAILABLE);
    test.node.config.drives.enabled = false;
    assert_int_equal(unpublish(&staging), STATUS_OK);
    assert_int_equal(test.drive.detached, 1);
}

static void cancelled_client_gets_no_answer(void **state)
{
    struct staging *staging;

    (void)state;
    add_container("app");
    assert_int_equal(publish(&staging), STATUS_OK);
    assert_null(reconciler_stage_cancel(staging));
    assert_int_equal(test.drive.cancelled, 1);
    assert_int_equal(test.answers, 0);
}

#define DRIVES(test) cmocka_unit_test_setup_teardown(test, set_up_drives, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        DRIVES(a_sandbox_without_containers_gets_metadata),
        DRIVES(a_sandbox_with_containers_gets_a_drive),
        DRIVES(a_read_only_drive_gets_no_group),
        DRIVES(a_volume_that_has_metadata_keeps_it),
        DRIVES(a_drive_stays_one),
        DRIVES(without_drives_there_is_metadata_only),
        DRIVES(refusals_of_the_core_reach_the_client),
        DRIVES(a_drive_goes_before_the_metadata),
        DRIVES(a_drive_that_is_in_use_stays),
        DRIVES(whether_it_is_a_drive_is_not_known),
        DRIVES(what_is_not_on_record_is_asked_of_the_vms),
        DRIVES(cancelled_client_gets_no_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
