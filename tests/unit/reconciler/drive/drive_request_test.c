/* SPDX-License-Identifier: Apache-2.0 */
/* drive_request_test.c - what a client may ask for, field by field. */
#include "tests/unit/test.h"

#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "reconciler/drive/drive_request.h"

static struct config config;

static struct reconciler_drive_attach valid(void)
{
    return (struct reconciler_drive_attach){
        .drive_id = "data-1",
        .sandbox_id = "sandbox-1",
        .host_path = "/dev/mapper/disk",
        .vm_path = "/data",
        .fs_type = "ext4",
        .writable = true,
    };
}

static int set_up(void **state)
{
    (void)state;
    config_defaults(&config);
    config.drives.host_prefixes = (struct config_list){.count = 1, .text = "/dev/mapper/"};
    return 0;
}

static void expect(const struct reconciler_drive_attach *attach, enum status_code code,
                   const char *text)
{
    cleanup(store_drive_mount_done) struct store_drive_mount asked = {0};
    struct error error = {0};

    if (drive_request_check(&config, attach, &asked.request, &error) != code ||
        !strstr(error.text, text))
        fail_msg("%s: not \"%s\"", error.text, text);
}

static void a_sound_request_goes_on_record(void **state)
{
    const char *const options[] = {"noatime", "rw", "data=journal"};
    struct reconciler_drive_attach attach = valid();
    cleanup(store_drive_mount_done) struct store_drive_mount asked = {0}, again = {0};

    (void)state;
    attach.option = options;
    attach.options = 3;
    attach.fs_group = 7; /* of no matter without has_fs_group */
    assert_int_equal(drive_request_check(&config, &attach, &asked.request, NULL), STATUS_OK);
    assert_string_equal(asked.request.options, "[\"noatime\",\"rw\",\"data=journal\"]");
    attach.fs_group = 8;
    assert_int_equal(drive_request_check(&config, &attach, &again.request, NULL), STATUS_OK);
    assert_true(drive_request_is_equal(&asked.request, &again.request));
    again.request.limits.operations.size = 1;
    assert_true(drive_request_is_equal(&asked.request, &again.request));
    again.request.fsck = !again.request.fsck;
    assert_false(drive_request_is_equal(&asked.request, &again.request));
}

static void ids_have_their_form(void **state)
{
    struct reconciler_drive_attach attach = valid();
    const char *const wrong[] = {NULL, "", "a b", "a/b", "aaaaaaaaaabbbbbbbbbbccccccccccddddddd"};

    (void)state;
    for (unsigned i = 0; i < array_length(wrong); i++) {
        attach.drive_id = wrong[i];
        expect(&attach, STATUS_INVALID_ARGUMENT, "drive_id");
    }
    attach = valid();
    attach.sandbox_id = "../x";
    expect(&attach, STATUS_INVALID_ARGUMENT, "sandbox_id");
    attach.sandbox_id = "..";
    expect(&attach, STATUS_INVALID_ARGUMENT, "sandbox_id is not the id of a sandbox");
    attach = valid();
    attach.fs_type = "ext4,ro";
    expect(&attach, STATUS_INVALID_ARGUMENT, "filesystem_type");
}

static void paths_are_absolute_and_clean(void **state)
{
    const char *const wrong[] = {"", "data", "/", "//data", "/data/", "/a/../b", "/a/./b", NULL};
    const char *const protected[] = {"/proc",
                                     "/proc/1",
                                     "/sys/fs",
                                     "/dev",
                                     "/dev/shm/x",
                                     "/run/kata-containers",
                                     "/run/kata-containers/shared/containers/x/y",
                                     "/var/run/kata-containers/x"};
    char path[DRIVE_PATH_CHARS + 2];

    (void)state;
    for (unsigned i = 0; i < array_length(wrong); i++) {
        struct reconciler_drive_attach attach = valid();

        attach.vm_path = wrong[i];
        expect(&attach, STATUS_INVALID_ARGUMENT, "vm_path");
        attach = valid();
        attach.host_path = wrong[i];
        expect(&attach, STATUS_INVALID_ARGUMENT, "host_path");
    }
    for (unsigned i = 0; i < array_length(protected); i++) {
        struct reconciler_drive_attach attach = valid();

        attach.vm_path = protected[i];
        expect(&attach, STATUS_INVALID_ARGUMENT, "protected");
    }
    memset(path, 'a', sizeof(path));
    path[0] = '/';
    path[sizeof(path) - 1] = '\0';
    expect(&(struct reconciler_drive_attach){.drive_id = "d",
                                             .sandbox_id = "s",
                                             .host_path = "/dev/mapper/x",
                                             .vm_path = path,
                                             .fs_type = "xfs"},
           STATUS_INVALID_ARGUMENT, "longer");
}

static void a_disk_elsewhere_is_not_permitted(void **state)
{
    struct reconciler_drive_attach attach = valid();

    (void)state;
    attach.host_path = "/dev/mapperx/disk";
    expect(&attach, STATUS_PERMISSION_DENIED, "drives.host_prefixes");
    config.drives.host_prefixes.count = 0;
    attach = valid();
    expect(&attach, STATUS_PERMISSION_DENIED, "drives.host_prefixes");
}

static void expect_option(const char *option, bool writable, const char *text)
{
    struct reconciler_drive_attach attach = valid();

    attach.option = &option;
    attach.options = 1;
    attach.writable = writable;
    expect(&attach, *text ? STATUS_INVALID_ARGUMENT : STATUS_OK, text);
}

static void options_agree_with_the_access_and_hold_no_secret(void **state)
{
    struct reconciler_drive_attach attach = valid();

    (void)state;
    expect_option("ro", true, "contradicts");
    expect_option("rw", false, "needs is_writable");
    expect_option("ro", false, "");
    expect_option("rw", true, "");
    expect_option("", true, "empty");
    expect_option("a,b", true, "single option");
    expect_option("a,b=c", true, "single option");
    expect_option("context=\"u:o:t:s0:c1,c2\"", true, "");
    expect_option("\xff", true, "UTF-8");
    expect_option("password=hunter2", true, "options[0] carries a secret");
    attach.options = DRIVE_OPTIONS + 1;
    expect(&attach, STATUS_INVALID_ARGUMENT, "more than");
}

static void choices_and_groups_are_known_ones(void **state)
{
    struct reconciler_drive_attach attach = valid();

    (void)state;
    attach.fsck = DRIVE_FSCKS;
    expect(&attach, STATUS_INVALID_ARGUMENT, "fsck");
    attach = valid();
    attach.fs_group_policy = DRIVE_GROUP_POLICIES;
    expect(&attach, STATUS_INVALID_ARGUMENT, "policy");
    attach = valid();
    attach.has_fs_group = true;
    attach.fs_group = UINT32_MAX;
    expect(&attach, STATUS_INVALID_ARGUMENT, "fs_group");
}

static void containers_go_on_record(void **state)
{
    struct reconciler_drive_container containers[] = {{"c1", "/data", "", false},
                                                      {"c.2", "/\"x", "a/b", true}};
    struct reconciler_drive_attach attach = valid();
    cleanup(store_drive_mount_done) struct store_drive_mount asked = {0}, other = {0};
    struct error error = {0};

    (void)state;
    attach.containers = 2;
    attach.container = containers;
    assert_int_equal(drive_request_check(&config, &attach, &asked.request, &error), STATUS_OK);
    assert_string_equal(
        asked.request.containers,
        "[{\"container_id\":\"c1\",\"path\":\"/data\",\"sub_path\":\"\",\"read_only\":false},"
        "{\"container_id\":\"c.2\",\"path\":\"/\\\"x\",\"sub_path\":\"a/b\",\"read_only\":true}]");
    containers[1].read_only = false;
    assert_int_equal(drive_request_check(&config, &attach, &other.request, &error), STATUS_OK);
    assert_true(drive_request_is_equal(&asked.request, &asked.request));
    assert_false(drive_request_is_equal(&asked.request, &other.request));
}

static void containers_have_sound_names_and_places(void **state)
{
    static const struct {
        struct reconciler_drive_container container;
        const char *text;
    } cases[] = {
        {{"", "/data", "", false}, "container_id"},
        {{"a/b", "/data", "", false}, "container_id"},
        {{"c1", "data", "", false}, "path"},
        {{"c1", "/a/../b", "", false}, "path"},
        {{"c1", "/data", "../b", false}, "sub_path"},
        {{"c1", "/data", "/b", false}, "sub_path"},
        {{"c1", "/data", NULL, false}, "sub_path is missing"},
        {{"c1", "/proc/1", "", false}, "kata-agent's directory"},
    };
    struct reconciler_drive_attach attach = valid();

    (void)state;
    attach.containers = 1;
    for (size_t i = 0; i < array_length(cases); i++) {
        attach.container = &cases[i].container;
        expect(&attach, STATUS_INVALID_ARGUMENT, cases[i].text);
    }
    attach.containers = DRIVE_CONTAINERS + 1;
    expect(&attach, STATUS_INVALID_ARGUMENT, "more than");
}

static void limits_are_those_of_the_vmm(void **state)
{
    struct drive_limits limits = {.bandwidth = {.size = 5}};
    struct error error = {0};

    (void)state;
    assert_int_equal(drive_request_check_limits(HYPERVISOR_QEMU, &limits, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "refill"));
    limits.bandwidth.refill_ms = 100;
    assert_int_equal(drive_request_check_limits(HYPERVISOR_QEMU, &limits, &error), STATUS_OK);
    limits.operations = (struct drive_bucket){1, 1, 1};
    assert_int_equal(drive_request_check_limits(HYPERVISOR_QEMU, &limits, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "QEMU has no one-time burst"));
    assert_int_equal(drive_request_check_limits(HYPERVISOR_CLOUD_HYPERVISOR, &limits, &error),
                     STATUS_OK);
    limits.operations.one_time_burst = UINT64_MAX;
    assert_int_equal(drive_request_check_limits(HYPERVISOR_QEMU, &limits, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "too large"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_sound_request_goes_on_record, set_up),
        cmocka_unit_test_setup(ids_have_their_form, set_up),
        cmocka_unit_test_setup(paths_are_absolute_and_clean, set_up),
        cmocka_unit_test_setup(a_disk_elsewhere_is_not_permitted, set_up),
        cmocka_unit_test_setup(options_agree_with_the_access_and_hold_no_secret, set_up),
        cmocka_unit_test_setup(choices_and_groups_are_known_ones, set_up),
        cmocka_unit_test_setup(containers_go_on_record, set_up),
        cmocka_unit_test_setup(containers_have_sound_names_and_places, set_up),
        cmocka_unit_test_setup(limits_are_those_of_the_vmm, set_up),
    };

    return cmocka_run_group_tests_name("drive_request", tests, NULL, NULL);
}
