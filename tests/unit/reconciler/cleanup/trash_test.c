/* SPDX-License-Identifier: Apache-2.0 */
/* trash_test.c - a cleanup from its intent to its end: each step of a row against each state of the
 * disk, as a kill or somebody else may have left it. */
#include "tests/unit/reconciler/surroundings.h"

#include "observe/observe.h"
#include "reconciler/cleanup/cleaner.h"
#include "reconciler/cleanup/cleanup_pass.h"
#include "reconciler/core/observer.h"
#include "reconciler/core/work_queue.h"
#include "store/cleanups.h"
#include "tests/unit/volume_rows.h"

#define KEY          "key-1"
#define SANDBOX_FILE "sandbox-1"
#define ENTRY        "/run/kata-containers/shared/direct-volumes/" KEY
#define INFO         ENTRY "/mountInfo.json"

static struct {
    struct surroundings node;
    struct trees trees;
    struct cleanup cleanup;
    int64_t cleanup_id;
    char moved[300]; /* where it lies in the trash */
    uint64_t wake_ns;
    struct error error;
} test;

static struct store *the_store(void)
{
    return test.node.context.store;
}

/* The core's: the directory as it is now. */
int observer_observe_entry(const struct context *context, enum reconciler_tree tree,
                           const char *name)
{
    const struct store_entry entry = entry_of(KEY, VOLUME_PATH, 11);
    int64_t volume_id;
    bool changed;

    assert_ptr_equal(context, &test.node.context);
    assert_int_equal(tree, TREE_KATA_VOLUMES);
    assert_string_equal(name, KEY);
    return tree_has(ENTRY) ? row_put_entry(the_store(), &entry, &volume_id, &changed)
                           : store_remove_entry(the_store(), LAYOUT_KATA, KEY, &volume_id);
}

/* ---- a cleanup ---- */

static void stage(const char *device)
{
    tree_make(ENTRY);
    tree_write(INFO, device);
    tree_write(ENTRY "/" SANDBOX_FILE, "");
}

static int set_up(void **state)
{
    memset(&test, 0, sizeof(test));
    surroundings_begin(&test.node, false);
    surroundings_bind(&test.node);
    test.node.config.cleanup.keep_hours = 1;
    test.trees = (struct trees){.context = &test.node.context};
    test.node.context.trees = &test.trees;
    test.cleanup = (struct cleanup){.context = &test.node.context};
    stage("/dev/disk");
    return 0;
}

static int tear_down(void **state)
{
    surroundings_end(&test.node);
    return 0;
}

static int note_id(void *userdata, int64_t id)
{
    *(int64_t *)userdata = id;
    return 0;
}

static void take_fingerprint(const char *file, char ret_text[static SHA256_HEX_BYTES])
{
    cleanup(fd_closep) int fd = open(tree_path(ENTRY), O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    assert_int_equal(file ? fingerprint_file(fd, file, ret_text)
                          : fingerprint_directory(fd, ret_text, NULL),
                     FINGERPRINT_TAKEN);
}

static void intend(const char *file)
{
    const char *directory = test.node.config.paths.kata_trash;
    char fingerprint[SHA256_HEX_BYTES];
    struct store_trash row;
    int64_t entry_id = 0;

    take_fingerprint(file, fingerprint);
    assert_int_equal(store_each_entry_id(the_store(), 0, note_id, &entry_id), 0);
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(
        store_intend_cleanup(the_store(), entry_id,
                             &(struct store_cleanup_intent){.reason = STALE_REASON_SANDBOX_ENDED,
                                                            .evidence = "{}",
                                                            .fingerprint = fingerprint,
                                                            .directory = directory,
                                                            .file = file,
                                                            .now_ns = clock_boottime()},
                             &test.cleanup_id),
        0);
    assert_int_equal(store_commit_durable(the_store()), 0);
    assert_int_equal(store_get_trash(the_store(), test.cleanup_id, &row), STORE_FOUND);
    (void)snprintf(test.moved, sizeof(test.moved), "%.200s/%.60s/%s", directory, row.name,
                   file ? file : KEY);
}

static void take(void)
{
    cleanup(key_queue_done) struct key_queue ids = {0};

    key_queue_add_number(&ids, (uint64_t)test.cleanup_id);
    trash_take(&test.cleanup, &ids);
    assert_true(key_queue_is_empty(&ids));
}

static void advance(void)
{
    assert_int_equal(trash_advance(&test.cleanup, &test.wake_ns), 0);
}

/* As if so much time had passed. */
static void pass_seconds(unsigned seconds)
{
    char sql[128];

    (void)snprintf(sql, sizeof(sql), "UPDATE trash SET since_ns = since_ns - %u000000000", seconds);
    execute_sql(the_store(), sql);
}

static void assert_step(const char *step)
{
    if (step)
        assert_text_of(the_store(), "SELECT step FROM trash", step);
    else
        assert_int_equal(number_of(the_store(), "SELECT count(*) FROM trash"), 0);
}

static void assert_decided(const char *decision, const char *reason)
{
    assert_text_of(the_store(), "SELECT decision FROM cleanups ORDER BY cleanup_id DESC", decision);
    assert_text_of(the_store(), "SELECT reason FROM cleanups ORDER BY cleanup_id DESC", reason);
}

static bool volume_is(enum store_status status)
{
    return get_volume(the_store(), test.node.bound.volume_id).status == status;
}

/* It lies in the trash, unchanged since long before. */
static void remove_it(void)
{
    intend(NULL);
    take();
    advance();
    pass_seconds(3);
    advance();
    assert_step("kept");
}

/* ---- forward ---- */

static void metadata_goes_step_by_step(void **state)
{
    intend(NULL);
    assert_step("intended");
    take();
    assert_false(tree_has(ENTRY));
    assert_true(tree_has(test.moved));
    advance();
    assert_step("moved");
    assert_true(volume_is(STORE_QUARANTINED));
    assert_true(test.wake_ns > clock_boottime());
    advance(); /* a writer that had the file open may still show */
    assert_step("moved");
    pass_seconds(3);
    advance();
    assert_step("kept");
    assert_decided("removed", "sandbox_ended");
    assert_true(tree_has(test.moved));
    assert_true(test.wake_ns > clock_boottime() + 3500 * NSEC_PER_SEC);
    pass_seconds(3601);
    advance();
    assert_step(NULL);
    assert_false(tree_has(test.moved));
    assert_int_equal(test.wake_ns, UINT64_MAX);
    assert_true(volume_is(STORE_REMOVED));
    assert_decided("removed", "sandbox_ended");
}

/* A daemon that was killed between the two. */
static void an_intent_without_a_move_is_forgotten(void **state)
{
    intend(NULL);
    advance();
    assert_step(NULL);
    assert_true(tree_has(INFO));
    assert_true(volume_is(STORE_PRESENT));
    assert_int_equal(number_of(the_store(), "SELECT count(*) FROM cleanups"), 0);
}

static void a_failed_move_is_on_record(void **state)
{
    struct store_trash row;
    char drawer[256];

    intend(NULL);
    assert_int_equal(store_get_trash(the_store(), test.cleanup_id, &row), STORE_FOUND);
    (void)snprintf(drawer, sizeof(drawer), "%.150s/%s", row.directory, row.name);
    tree_write(drawer, "somebody's file");
    take();
    assert_decided("failed", "cannot_move");
    assert_step(NULL);
    assert_true(tree_has(INFO));
}

static void a_failed_deletion_is_tried_again(void **state)
{
    char strange[320];

    remove_it();
    pass_seconds(3601);
    execute_sql(the_store(), "UPDATE trash SET step = 'deleting'");
    (void)snprintf(strange, sizeof(strange), "%s/directory", test.moved);
    tree_make(strange);
    advance();
    assert_step("deleting");
    tree_remove(strange);
    advance();
    assert_step(NULL);
}

/* ---- back ---- */

static void a_volume_staged_again_is_a_new_one(void **state)
{
    intend(NULL);
    take();
    advance();
    stage("/dev/new");
    pass_seconds(3);
    advance();
    assert_step("kept");
    assert_decided("removed", "staged_again");
    assert_true(tree_has(INFO));
}

static void a_directory_moved_back_by_hand_counts_as_never_moved(void **state)
{
    intend(NULL);
    take();
    advance();
    assert_int_equal(rename(tree_path(test.moved), tree_path(ENTRY)), 0);
    advance();
    assert_step(NULL);
    assert_decided("put-back", "changed");
    assert_true(volume_is(STORE_PRESENT));
}

static void a_loss_from_the_trash_is_reported(void **state)
{
    intend(NULL);
    take();
    advance();
    assert_int_equal(scratch_directory_remove(tree_path(test.moved)), 0);
    advance();
    assert_step(NULL);
    assert_decided("failed", "lost_from_trash");
}

static void a_directory_taken_out_by_hand_is_forgotten(void **state)
{
    remove_it();
    assert_int_equal(scratch_directory_remove(tree_path(test.moved)), 0);
    pass_seconds(3601);
    advance();
    assert_step(NULL);
}

/* ---- a person wants it back ---- */

static void assert_restore(int outcome, const char *text)
{
    test.error = (struct error){0};
    assert_int_equal(trash_restore(&test.cleanup, test.cleanup_id, &test.error), outcome);
    if (!strstr(test.error.text, text))
        fail_msg("\"%s\" does not say \"%s\"", test.error.text, text);
}

static void restore_refuses_a_directory_that_was_not_removed(void **state)
{
    test.cleanup_id = 99;
    assert_restore(TRASH_UNKNOWN, "there is no cleanup 99");
    intend(NULL);
    assert_restore(TRASH_BUSY, "is under way");
    take();
    advance();
    assert_restore(TRASH_BUSY, "is under way");
    assert_int_equal(scratch_directory_remove(tree_path(test.moved)), 0);
    advance();
    assert_restore(TRASH_REFUSED, "only what was removed can be restored");
}

/* ---- what fails ---- */

static void a_trash_that_will_not_do_keeps_what_is_in_it(void **state)
{
    assert_true(trash_is_usable(&test.cleanup, LAYOUT_KATA, &test.error));
    assert_true(trash_is_usable(&test.cleanup, LAYOUT_CRUST, &test.error));
    remove_it();
    pass_seconds(3601);
    assert_int_equal(rename(tree_path("/run/kata-containers/shared/direct-volumes"),
                            tree_path("/run/elsewhere")),
                     0);
    assert_false(trash_is_usable(&test.cleanup, LAYOUT_KATA, &test.error));
    assert_true(test.error.text[0] != '\0');
    advance();
    assert_step("kept");
    assert_true(tree_has(test.moved));
}

static void a_database_that_fails_leaves_all_as_it_was(void **state)
{
    remove_it();
    pass_seconds(3601);
    fail_writes(the_store());
    assert_true(trash_advance(&test.cleanup, &test.wake_ns) < 0);
    assert_true(trash_restore(&test.cleanup, test.cleanup_id, &test.error) < 0);
    assert_step("kept");
    assert_true(tree_has(test.moved));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(metadata_goes_step_by_step),
        TEST(an_intent_without_a_move_is_forgotten),
        TEST(a_failed_move_is_on_record),
        TEST(a_failed_deletion_is_tried_again),
        TEST(a_volume_staged_again_is_a_new_one),
        TEST(a_directory_moved_back_by_hand_counts_as_never_moved),
        TEST(a_loss_from_the_trash_is_reported),
        TEST(a_directory_taken_out_by_hand_is_forgotten),
        TEST(restore_refuses_a_directory_that_was_not_removed),
        TEST(a_trash_that_will_not_do_keeps_what_is_in_it),
        TEST(a_database_that_fails_leaves_all_as_it_was),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
