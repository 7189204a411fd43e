/* SPDX-License-Identifier: Apache-2.0 */
/* act_rescan_test.c - a disk that announced a new size is rescanned, on a sysfs of the test's own.
 */
#include "tests/unit/reconciler/surroundings.h"

#include "reconciler/act/actor.h"
#include "reconciler/helper/helper.h"

#define DISK_NUMBER "8:16"

static struct {
    struct surroundings node;
    struct actor *actor;
    struct helpers *helpers;
    int64_t disk_id;
} test;

static struct store *the_store(void)
{
    return test.node.context.store;
}

static void write_attribute(const char *name, const char *text)
{
    char path[200];

    (void)snprintf(path, sizeof(path), "%.60s/dev/block/" DISK_NUMBER "/%s",
                   test.node.config.paths.sysfs, name);
    tree_write(path, text);
}

static void read_rescan(char ret_text[static 8])
{
    cleanup(fd_closep) int fd = -1;
    char path[200];
    ssize_t length;

    (void)snprintf(path, sizeof(path), "%.60s/dev/block/" DISK_NUMBER "/device/rescan",
                   test.node.config.paths.sysfs);
    fd = open(tree_path(path), O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    length = read(fd, ret_text, 7);
    assert_true(length >= 0);
    ret_text[length] = '\0';
}

/* The volume's device stands on the disk, which announced a new size. */
static void put_announced_disk(void)
{
    const struct store_device disk = {.kind = DEVICE_KIND_BLOCK,
                                      .name = "/dev/sdb",
                                      .major = 8,
                                      .minor = 16,
                                      .diskseq = 9,
                                      .size_bytes = GIB,
                                      .now_ns = 50};
    struct store_layer layers[] = {{.layer_id = test.node.bound.device_id, .kind = "crypt"},
                                   {.kind = "disk"}};
    bool changed = false;

    assert_int_equal(store_begin(the_store()), 0);
    test.disk_id = layers[1].layer_id = put_device(the_store(), &disk, true);
    assert_int_equal(store_put_layers(the_store(), test.node.bound.device_id, layers, 2), 0);
    assert_int_equal(store_note_capacity_change(the_store(), test.disk_id, 60, &changed), 0);
    assert_true(changed);
    assert_int_equal(store_commit(the_store()), 0);
}

static int set_up(void **state)
{
    char path[200];

    (void)state;
    memset(&test, 0, sizeof(test));
    surroundings_begin(&test.node, true);
    surroundings_bind(&test.node);
    (void)snprintf(path, sizeof(path), "%.60s/dev/block/" DISK_NUMBER "/device",
                   test.node.config.paths.sysfs);
    tree_make(path);
    write_attribute("size", "2097152\n");
    write_attribute("diskseq", "9\n");
    write_attribute("uevent", "MAJOR=8\nMINOR=16\nDEVNAME=sdb\nDEVTYPE=disk\nDISKSEQ=9\n");
    write_attribute("device/rescan", "");
    put_announced_disk();
    test.helpers = helpers_new(&test.node.context);
    test.actor = actor_new(&test.node.context, test.helpers);
    assert_non_null(test.actor);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(actor_free(test.actor));
    assert_null(helpers_free(test.helpers));
    surroundings_end(&test.node);
    return 0;
}

static struct store_volume the_volume(void)
{
    return get_volume(the_store(), test.node.bound.volume_id);
}

static bool may_rescan(void)
{
    const struct store_volume volume = the_volume();
    bool may = false;

    assert_int_equal(actor_may_rescan(test.actor, &volume, &may), 0);
    return may;
}

static void begin(void)
{
    const struct store_volume volume = the_volume();

    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(actor_decide(test.actor, &volume, ACTION_RESCAN_DISK), 0);
    assert_int_equal(store_commit(the_store()), 0);
    actor_start(test.actor);
}

static void finish(void)
{
    while (!actor_has_results(test.actor))
        loop_run_once(&test.node.loop);
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(actor_record(test.actor), 0);
    assert_int_equal(store_commit(the_store()), 0);
}

static bool is_announced(void)
{
    bool announced;

    assert_int_equal(store_is_announced(the_store(), test.disk_id, &announced), 0);
    return announced;
}

/* ---- tests ---- */

static void a_rescan_writes_to_the_disk_and_reads_its_size(void **state)
{
    char text[8];

    (void)state;
    assert_true(may_rescan());
    begin();
    assert_int_equal(lines_of(the_store(), "rescan_disk_intended"), 1);
    write_attribute("size", "4194304\n");
    finish();
    read_rescan(text);
    assert_string_equal(text, "1");
    assert_int_equal(lines_of(the_store(), "disk_rescanned"), 1);
    assert_int_equal(number_of(the_store(), "SELECT size_bytes FROM devices WHERE minor = 16"),
                     2 * GIB);
    assert_false(is_announced());
}

static void a_rescan_without_a_new_size_answers_the_announcement(void **state)
{
    (void)state;
    begin();
    finish();
    assert_int_equal(lines_of(the_store(), "disk_rescanned"), 1);
    assert_false(is_announced());
    assert_false(may_rescan());
}

/* The attribute is a directory, so it cannot be written to. */
static void a_rescan_that_fails_keeps_the_announcement(void **state)
{
    char path[200];

    (void)state;
    (void)snprintf(path, sizeof(path), "%.60s/dev/block/" DISK_NUMBER "/device/rescan",
                   test.node.config.paths.sysfs);
    tree_remove(path);
    tree_make(path);
    begin();
    finish();
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM journal WHERE"
                                            " kind = 'disk_rescanned' AND detail LIKE '%error%'"),
                     1);
    assert_true(is_announced());
    assert_false(may_rescan()); /* not again at once */
}

static void a_disk_is_not_rescanned_again_at_once(void **state)
{
    bool changed;

    (void)state;
    begin();
    finish();
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_note_capacity_change(the_store(), test.disk_id, 60, &changed), 0);
    assert_int_equal(store_commit(the_store()), 0);
    assert_true(is_announced());
    assert_false(may_rescan());
    execute_sql(the_store(), "UPDATE devices SET rescanned_ns = 1");
    assert_true(may_rescan());
}

static void another_disk_under_the_same_number_is_left_alone(void **state)
{
    char text[8];

    (void)state;
    write_attribute("diskseq", "10\n");
    write_attribute("uevent", "MAJOR=8\nMINOR=16\nDEVNAME=sdb\nDEVTYPE=disk\nDISKSEQ=10\n");
    begin();
    finish();
    read_rescan(text);
    assert_string_equal(text, "");
    assert_int_equal(lines_of(the_store(), "disk_rescanned"), 0);
    assert_true(is_announced());
}

static void a_disk_that_is_gone_is_left_alone(void **state)
{
    char path[200];

    (void)state;
    (void)snprintf(path, sizeof(path), "%.60s/dev/block/" DISK_NUMBER,
                   test.node.config.paths.sysfs);
    assert_int_equal(scratch_directory_remove(tree_path(path)), 0);
    begin();
    finish();
    assert_int_equal(lines_of(the_store(), "disk_rescanned"), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_rescan_writes_to_the_disk_and_reads_its_size),
        TEST(a_rescan_without_a_new_size_answers_the_announcement),
        TEST(a_rescan_that_fails_keeps_the_announcement),
        TEST(a_disk_is_not_rescanned_again_at_once),
        TEST(another_disk_under_the_same_number_is_left_alone),
        TEST(a_disk_that_is_gone_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
