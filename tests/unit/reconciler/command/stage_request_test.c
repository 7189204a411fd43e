/* SPDX-License-Identifier: Apache-2.0 */
/* stage_request_test.c - what a driver may ask to be staged, and mountInfo.json as it is written.
 */
#include "tests/unit/tree.h"

#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib/base64url.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/staging.h"
#include "store/store.h"

#define TARGET "/var/lib/kubelet/pods/uid-1/volumes/kubernetes.io~csi/pv-1/mount"

static const char *long_path(size_t length)
{
    static char path[STORE_TARGET_BYTES + 2];

    memset(path, 'a', length);
    path[0] = '/';
    path[length] = '\0';
    return path;
}

static struct reconciler_stage ordinary(void)
{
    return (struct reconciler_stage){
        .target_path = TARGET, .device = "/dev/sdb", .fs_type = "ext4"};
}

static void assert_refused_in(const struct reconciler_stage *stage, enum config_stage_layout layout,
                              const char *text)
{
    struct error error = {0};

    assert_int_equal(stage_request_check(root, layout, stage, &error),
                     answer_code(ANSWER_BAD_REQUEST));
    if (!strstr(error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

static void assert_refused(const struct reconciler_stage *stage, const char *text)
{
    assert_refused_in(stage, STAGE_KATA, text);
}

static void assert_taken(const struct reconciler_stage *stage, enum config_stage_layout layout)
{
    struct error error = {0};

    if (stage_request_check(root, layout, stage, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

static void a_target_path_is_as_the_runtime_will_look_for_it(void **state)
{
    static const struct {
        const char *path, *text;
    } table[] = {
        {"", "is missing"},
        {"pods/uid-1", "is not absolute"},
        {"/pods//uid-1", "components"},
        {"/pods/./uid-1", "components"},
        {"/pods/../uid-1", "components"},
        {"/pods/", "components"},
        {"/", "components"},
    };
    struct reconciler_stage stage = ordinary();

    (void)state;
    assert_taken(&stage, STAGE_BOTH);
    for (size_t i = 0; i < array_length(table); i++) {
        stage.target_path = table[i].path;
        assert_refused(&stage, table[i].text);
    }
    stage.target_path = "/pods/..uid/.x/...";
    assert_taken(&stage, STAGE_KATA);
    stage.target_path = long_path(STORE_TARGET_BYTES);
    assert_refused(&stage, "longer than");
}

/* Kata's layout has it in a directory's name, in base64. */
static void a_long_target_path_fits_one_layout_only(void **state)
{
    struct reconciler_stage stage = ordinary();

    (void)state;
    stage.target_path = long_path(BASE64URL_PATH_BYTES);
    assert_taken(&stage, STAGE_KATA);
    stage.target_path = long_path(BASE64URL_PATH_BYTES + 1);
    assert_refused_in(&stage, STAGE_KATA, "crust.stage_layout = crust");
    assert_refused_in(&stage, STAGE_BOTH, "crust.stage_layout = crust");
    assert_taken(&stage, STAGE_CRUST);
}

static void a_device_is_a_block_device(void **state)
{
    struct reconciler_stage stage = ordinary();

    (void)state;
    stage.device = "";
    assert_refused(&stage, "the device is missing");
    stage.device = "sdb";
    assert_refused(&stage, "not an absolute path");
    tree_make("/srv");
    stage.device = "/srv";
    assert_refused(&stage, "/srv is no block device");
    stage.device = "/srv/disk.img"; /* a device may appear after staging */
    assert_taken(&stage, STAGE_KATA);
    tree_write("/srv/disk.img", "");
    assert_refused(&stage, "/srv/disk.img is a regular file and no block device");
    if (mknod(tree_path("/srv/tty"), S_IFCHR | 0600, makedev(4, 0)) == 0) { /* as root */
        stage.device = "/srv/tty";
        assert_refused(&stage, "/srv/tty is no block device");
    }
}

static void a_file_system_is_named(void **state)
{
    static const char *const names[] = {
        "", "ext 4", "ext4,rw", "../ext4",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    struct reconciler_stage stage = ordinary();

    (void)state;
    for (size_t i = 0; i < array_length(names); i++) {
        stage.fs_type = names[i];
        assert_refused(&stage, "the file system type is missing, or no name");
    }
    stage.fs_type = "fuse.glusterfs-1_0";
    assert_taken(&stage, STAGE_KATA);
}

static void a_group_is_a_number_that_the_kernel_knows(void **state)
{
    static const char *const groups[] = {"", "wheel", "-1", "4294967295", "99999999999", "1 "};
    struct reconciler_stage stage = ordinary();

    (void)state;
    for (size_t i = 0; i < array_length(groups); i++) {
        stage.group = groups[i];
        assert_refused(&stage, "the group is not a number, or too large");
    }
    stage.group = "4294967294";
    stage.group_policy = "OnRootMismatch";
    assert_taken(&stage, STAGE_KATA);
    stage.group = NULL;
    assert_refused(&stage, "without a group");
}

static void a_sandbox_is_one(void **state)
{
    static const char *const names[] = {"", "a/b", "..", "mountInfo.json"};
    struct reconciler_stage stage = ordinary();

    (void)state;
    for (size_t i = 0; i < array_length(names); i++) {
        stage.sandbox_id = names[i];
        assert_refused(&stage, "sandbox_id is missing, or is none");
    }
    stage.sandbox_id = "0123456789abcdef";
    assert_taken(&stage, STAGE_KATA);
}

/* Its name is said, its value never. */
static void an_option_carries_no_secret(void **state)
{
    const char *options[] = {"rw", "user=me,password=swordfish"};
    struct reconciler_stage stage = ordinary();
    struct error error = {0};

    (void)state;
    stage.options = 2;
    stage.option = options;
    assert_refused(&stage, "mount option password carries a secret");
    (void)stage_request_check(root, STAGE_KATA, &stage, &error);
    assert_null(strstr(error.text, "swordfish"));
    options[1] = "";
    assert_refused(&stage, "a mount option is empty");
    options[1] = "noatime";
    assert_taken(&stage, STAGE_KATA);
}

static void mount_info_is_written_as_kata_reads_it(void **state)
{
    const char *options[] = {"rw", "context=\"a\""};
    struct reconciler_stage stage = ordinary();
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(0);
    cleanup(buffer_done) struct buffer small = BUFFER_INIT(40);

    (void)state;
    stage.options = 2;
    stage.option = options;
    stage.group = "1000";
    stage.group_policy = "Always";
    assert_int_equal(stage_request_write(&stage, true, &text), 0);
    assert_string_equal(buffer_text(&text),
                        "{\"volume-type\":\"directvol\",\"device\":\"/dev/sdb\","
                        "\"fstype\":\"ext4\",\"metadata\":{\"fsGroup\":\"1000\","
                        "\"fsGroupChangePolicy\":\"Always\"},"
                        "\"options\":[\"rw\",\"context=\\\"a\\\"\"]}");
    assert_true(stage_request_write(&stage, true, &small) < 0);
}

static const char *written(const struct reconciler_stage *stage, bool with_labels)
{
    static char copy[1024];
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(sizeof(copy) - 1);

    assert_int_equal(stage_request_write(stage, with_labels, &text), 0);
    (void)snprintf(copy, sizeof(copy), "%s", buffer_text(&text));
    return copy;
}

/* Root's group is one like any other; the value stays as it came, in decimal. */
static void the_group_0_is_a_group(void **state)
{
    struct reconciler_stage stage = ordinary();

    (void)state;
    stage.group = "0";
    assert_taken(&stage, STAGE_BOTH);
    assert_non_null(strstr(written(&stage, false), "\"metadata\":{\"fsGroup\":\"0\"}"));
    stage.group = NULL;
    assert_non_null(strstr(written(&stage, false), "\"metadata\":{}"));
}

static void no_group_is_applied_to_a_read_only_volume(void **state)
{
    const char *options[] = {"ro", "noatime,rw"};
    struct reconciler_stage stage = ordinary();

    (void)state;
    stage.group = "1000";
    stage.group_policy = "Always";
    stage.options = 1;
    stage.option = options;
    assert_non_null(strstr(written(&stage, false), "\"metadata\":{},\"options\":[\"ro\"]"));
    stage.options = 2;
    assert_non_null(strstr(written(&stage, false), "\"fsGroupChangePolicy\":\"Always\""));
}

/* A guest without SELinux would refuse to mount with them. */
static void labels_are_written_for_guests_that_enforce_them(void **state)
{
    const char *options[] = {"context=\"u:o:t:s0:c1,c2\"", "noatime", "fscontext=a", "defcontext=a",
                             "rootcontext=a"};
    struct reconciler_stage stage = ordinary();

    (void)state;
    stage.option = options;
    assert_false(stage_request_has_label(&stage));
    stage.options = 5;
    assert_true(stage_request_has_label(&stage));
    assert_non_null(strstr(written(&stage, false), "\"options\":[\"noatime\"]"));
    assert_non_null(strstr(written(&stage, true),
                           "\"options\":[\"context=\\\"u:o:t:s0:c1,c2\\\"\",\"noatime\","));
    stage.option = &options[1];
    stage.options = 1;
    assert_false(stage_request_has_label(&stage));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, tree_start, tree_stop)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_target_path_is_as_the_runtime_will_look_for_it),
        TEST(a_long_target_path_fits_one_layout_only),
        TEST(a_device_is_a_block_device),
        TEST(a_file_system_is_named),
        TEST(a_group_is_a_number_that_the_kernel_knows),
        TEST(a_sandbox_is_one),
        TEST(an_option_carries_no_secret),
        TEST(mount_info_is_written_as_kata_reads_it),
        TEST(the_group_0_is_a_group),
        TEST(no_group_is_applied_to_a_read_only_volume),
        TEST(labels_are_written_for_guests_that_enforce_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
