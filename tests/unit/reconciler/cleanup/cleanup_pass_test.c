/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup_pass_test.c - stale metadata is found, moved to the trash, and comes back when asked for.
 */
#include "tests/unit/reconciler/fake_node.h"

#include "store/store_internal.h"

static struct error error;

static void end_sandbox(unsigned place)
{
    fake_sandbox[place].is_there = false;
    fake_unpinned = fake_sandbox[place].pid;
    work_queue_add_exit(&reconciler->queue, fake_sandbox[place].id, fake_sandbox[place].pid);
    settle();
}

/* A volume that was used by a sandbox that ended, long enough ago for the configuration. */
static int64_t leave_volume(void)
{
    int64_t volume_id;

    config.cleanup.grace_seconds = config.cleanup.unbound_grace_seconds = 0;
    tree_make(PODS "/uid-9");
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    run_node();
    volume_id = last_volume();
    end_sandbox(0);
    return volume_id;
}

static const char *gc(void)
{
    static char text[8192];
    struct buffer json = BUFFER_INIT(sizeof(text));

    assert_int_equal(reconciler_gc(reconciler, false, 0, &json, &error), STATUS_OK);
    (void)snprintf(text, sizeof(text), "%s", buffer_text(&json));
    buffer_done(&json);
    return text;
}

static bool is_staged(void)
{
    char path[600];

    (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s/mountInfo.json", key_of(TARGET));
    return tree_has(path);
}

/* What was found is in the trash, and comes back whole. */
static void stale_metadata_is_removed_and_restored(void **state)
{
    const int64_t volume_id = leave_volume();
    enum status_code code;
    char drawer[64];

    assert_non_null(strstr(gc(), "\"decision\":\"removing\",\"reason\":\"sandbox_ended\""));
    assert_false(is_staged());
    assert_int_equal(volume_of(volume_id).status, STORE_QUARANTINED);
    assert_string_equal(gc(), "[]");
    code = reconciler_restore(reconciler, 1, &error);
    assert_int_equal(code, STATUS_UNAVAILABLE); /* a writer may show for two seconds */
    while (code == STATUS_UNAVAILABLE) {
        loop_run_once(&loop);
        code = reconciler_restore(reconciler, 1, &error);
    }
    assert_int_equal(code, STATUS_OK);
    assert_true(is_staged());
    assert_int_equal(volume_of(volume_id).status, STORE_PRESENT);
    (void)snprintf(drawer, sizeof(drawer), "%.60s", config.paths.kata_trash);
    assert_int_equal(rmdir(tree_path(drawer)), 0); /* nothing is left in it */
}

/* Where the path is not known, nobody can ask the kubelet about it. */
static void metadata_under_a_name_whose_path_is_unknown_is_kept(void **state)
{
    static const char name[] = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    char path[200];

    config.cleanup.grace_seconds = config.cleanup.unbound_grace_seconds = 0;
    tree_make(PODS "/uid-9");
    (void)snprintf(path, sizeof(path), CRUST_VOLUMES "/%s", name);
    tree_make(path);
    (void)snprintf(path, sizeof(path), CRUST_VOLUMES "/%s/mountInfo.json", name);
    tree_write(path, "{\"volume-type\":\"block\",\"device\":\"" DISK "\",\"fstype\":\"ext4\"}");
    (void)snprintf(path, sizeof(path), CRUST_VOLUMES "/%s/sandbox-1", name);
    tree_write(path, "");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    run_node();
    end_sandbox(0);
    assert_non_null(strstr(gc(), "\"decision\":\"kept\",\"reason\":\"path_unknown\""));
    assert_true(tree_has(path));
}

static void gc_before_the_first_scan_is_refused(void **state)
{
    struct buffer json = BUFFER_INIT(1024);

    make_reconciler(NULL);
    assert_int_equal(reconciler_gc(reconciler, false, 0, &json, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "first scan"));
    buffer_done(&json);
}

static void gc_with_a_failing_database_removes_nothing(void **state)
{
    struct buffer json = BUFFER_INIT(8192);

    (void)leave_volume();
    assert_int_equal(sqlite3_exec(store->connection.db, "PRAGMA query_only = 1", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(reconciler_gc(reconciler, false, 0, &json, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "nothing was removed"));
    assert_true(is_staged());
    buffer_done(&json);
}

static void nothing_is_removed_while_a_watcher_is_down(void **state)
{
    fake_watcher_down = true;
    leave_volume();
    assert_non_null(strstr(gc(), "source_unhealthy"));
    assert_true(is_staged());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE(stale_metadata_is_removed_and_restored),
        NODE(metadata_under_a_name_whose_path_is_unknown_is_kept),
        NODE(gc_before_the_first_scan_is_refused),
        NODE(gc_with_a_failing_database_removes_nothing),
        NODE(nothing_is_removed_while_a_watcher_is_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
