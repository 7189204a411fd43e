/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup_pass_test.c - stale metadata is found, moved to the trash, and comes back when asked for.
 */
#include "tests/unit/reconciler/fake_node.h"

#include "store/internal.h"

static struct error error;

static void end_sandbox(unsigned place)
{
    fake_sandbox[place].is_there = false;
    fake_unpinned = fake_sandbox[place].pid;
    reconciler_queue_exit(reconciler, fake_sandbox[place].id, fake_sandbox[place].pid);
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

static const char *gc(bool dry_run)
{
    static char text[8192];
    struct buffer json = BUFFER_INIT(sizeof(text));

    assert_int_equal(reconciler_gc(reconciler, dry_run, 0, &json, &error), STATUS_OK);
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

static void live_metadata_is_kept(void **state)
{
    (void)state;
    config.cleanup.grace_seconds = 0;
    stage(TARGET, DISK, "sandbox-1");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    run_node();
    assert_string_equal(gc(false), "[]");
    assert_true(is_staged());
}

static void a_dry_run_moves_nothing(void **state)
{
    (void)state;
    config.cleanup.mode = CLEANUP_REPORT;
    leave_volume();
    assert_non_null(strstr(gc(true), "\"key\""));
    assert_true(is_staged());
    assert_false(tree_has(config.paths.kata_trash)); /* it is made by the first removal */
}

static void every_root_that_vanished_is_named(void **state)
{
    (void)state;
    leave_volume();
    assert_int_equal(rename(tree_path(CRUST_VOLUMES), tree_path("/run/elsewhere")), 0);
    assert_int_equal(rename(tree_path("/run/vc/sbs"), tree_path("/run/vc/elsewhere")), 0);
    assert_non_null(strstr(gc(true), CRUST_VOLUMES ": was there, and is gone; "
                                                   "/run/vc/sbs: was there, and is gone"));
    assert_true(is_staged());
}

/* What was found is in the trash, and comes back whole. */
static void stale_metadata_is_removed_and_restored(void **state)
{
    const int64_t volume_id = leave_volume();
    enum status_code code;
    char drawer[64];

    (void)state;
    assert_non_null(strstr(gc(false), "\"decision\":\"removing\",\"reason\":\"sandbox_ended\""));
    assert_false(is_staged());
    assert_int_equal(volume_of(volume_id).status, STORE_QUARANTINED);
    assert_string_equal(gc(false), "[]");
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

static void a_process_of_the_sandbox_keeps_its_metadata(void **state)
{
    (void)state;
    fake_process = true;
    leave_volume();
    assert_non_null(strstr(gc(false), "\"decision\":\"kept\",\"reason\":\"sandbox_alive\""));
    assert_true(is_staged());
}

static void a_pod_directory_of_the_kubelet_keeps_metadata(void **state)
{
    (void)state;
    tree_make(TARGET);
    leave_volume();
    assert_non_null(strstr(gc(false), "\"decision\":\"kept\""));
    assert_true(is_staged());
}

static void nothing_is_removed_where_the_node_is_not_seen(void **state)
{
    (void)state;
    fake_sees_host = false;
    leave_volume();
    assert_non_null(strstr(gc(false), "pid_namespace"));
    assert_true(is_staged());
}

/* Kata takes the first name it finds beside the metadata for the sandbox's. */
static void the_file_of_a_sandbox_that_ended_goes_alone(void **state)
{
    char file[600];

    (void)state;
    config.cleanup.grace_seconds = config.cleanup.unbound_grace_seconds = 0;
    tree_make(PODS "/uid-9");
    stage(TARGET, DISK, "sandbox-1");
    stage(TARGET, DISK, "sandbox-2");
    put_disk(0, DISK, 1, GIB);
    start_sandbox(0, "sandbox-1");
    start_sandbox(1, "sandbox-2");
    run_node();
    end_sandbox(1);
    assert_is(last_volume(), STATE_UNKNOWN, REASON_MONITOR_MISSING); /* one sandbox has it */
    (void)snprintf(file, sizeof(file), KATA_VOLUMES "/%s/sandbox-2", key_of(TARGET));
    assert_true(tree_has(file));
    assert_non_null(strstr(gc(false), "\"file\":\"sandbox-2\""));
    assert_false(tree_has(file));
    assert_true(is_staged());
}

/* Of nothing else does the kubelet say whether it is needed. */
static void metadata_of_another_path_than_the_kubelets_is_kept(void **state)
{
    static const char *const targets[] = {"/srv/volume", "/var/lib/kubelet/pods"};
    const char *found;

    (void)state;
    for (size_t i = 0; i < array_length(targets); i++) {
        config.cleanup.grace_seconds = config.cleanup.unbound_grace_seconds = 0;
        stage(targets[i], DISK, "sandbox-1");
    }
    put_disk(0, DISK, 1, GIB);
    tree_make(PODS "/uid-9");
    start_sandbox(0, "sandbox-1");
    run_node();
    end_sandbox(0);
    found = gc(false);
    for (size_t i = 0; i < array_length(targets); i++) {
        found = strstr(found, "\"decision\":\"kept\",\"reason\":\"not_kubelet_path\"");
        assert_non_null(found);
        found++;
    }
}

/* Where the path is not known, nobody can ask the kubelet about it. */
static void metadata_under_a_name_whose_path_is_unknown_is_kept(void **state)
{
    static const char name[] = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";
    char path[200];

    (void)state;
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
    assert_non_null(strstr(gc(false), "\"decision\":\"kept\",\"reason\":\"path_unknown\""));
    assert_true(tree_has(path));
}

static void a_volume_that_no_sandbox_ever_had_is_kept_for_its_pod(void **state)
{
    (void)state;
    config.cleanup.grace_seconds = config.cleanup.unbound_grace_seconds = 0;
    tree_make(PODS "/uid-9");
    tree_make(PODS "/uid-1");
    stage(TARGET, DISK, NULL);
    run_node();
    assert_non_null(strstr(gc(false), "\"decision\":\"kept\",\"reason\":\"pod_exists\""));
    assert_true(is_staged());
    tree_remove(PODS "/uid-1");
    assert_non_null(strstr(gc(false), "\"decision\":\"removing\""));
    assert_false(is_staged());
}

/* ---- by itself, at a sweep ---- */

enum { MANY = 5 };

static char targets[MANY][sizeof(TARGET)], devices[MANY][16], ids[MANY][16];

static unsigned staged(void)
{
    unsigned count = 0;

    for (size_t i = 0; i < MANY; i++) {
        char path[600];

        (void)snprintf(path, sizeof(path), KATA_VOLUMES "/%s/mountInfo.json", key_of(targets[i]));
        count += tree_has(path);
    }
    return count;
}

/* Each on a device of its own, in a sandbox of its own. */
static void use_volumes(unsigned count)
{
    config.cleanup.grace_seconds = config.cleanup.unbound_grace_seconds = 0;
    config.resize.sweep_seconds = 1;
    tree_make(PODS "/uid-9");
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(targets[i], sizeof(targets[i]),
                       PODS "/uid-%u/volumes/kubernetes.io~csi/pv-%u/mount", i % 10, i % 10);
        (void)snprintf(devices[i], sizeof(devices[i]), "/dev/disk-%u", i % 10);
        (void)snprintf(ids[i], sizeof(ids[i]), "sandbox-%u", i % 10);
    }
    for (unsigned i = 0; i < count; i++) {
        stage(targets[i], devices[i], ids[i]);
        put_disk(i, devices[i], i + 1, GIB);
        start_sandbox(i, ids[i]);
    }
    run_node();
    assert_int_equal(staged(), count);
}

/* Until so many volumes are looked upon as stale for this reason. */
static void sweep_until(const char *reason, int64_t count)
{
    char sql[128];
    int64_t found = 0;

    (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM cleanups WHERE reason = '%s'", reason);
    fake_goes_on = true;
    while (found < count) {
        loop_run_once(&loop);
        assert_int_equal(sql_pragma_number(&store->connection, sql, &found), 0);
    }
    fake_goes_on = false;
}

static void a_sweep_removes_no_more_than_the_rate_allows(void **state)
{
    (void)state;
    config.cleanup.max_per_minute = 1;
    use_volumes(2);
    end_sandbox(0);
    end_sandbox(1);
    sweep_until("rate_limit", 1);
    assert_int_equal(staged(), 1);
    assert_non_null(strstr(gc(false), "\"decision\":\"removing\"")); /* a person is not held back */
    assert_int_equal(staged(), 0);
}

/* They may be alive, and crustd blind. */
static void a_sweep_leaves_many_whose_ends_were_not_seen_to_a_person(void **state)
{
    (void)state;
    use_volumes(MANY);
    for (unsigned i = 0; i < MANY; i++) {
        fake_sandbox[i].is_there = false;
        reconciler_queue_directory(reconciler, TREE_GO_SANDBOXES, ids[i]);
    }
    sweep_until("breaker", MANY);
    assert_int_equal(staged(), MANY);
    assert_non_null(strstr(gc(true), "\"decision\":\"would_remove\""));
    assert_int_equal(staged(), MANY);
    (void)gc(false);
    assert_int_equal(staged(), 0);
}

static void cleanup_that_is_off_refuses(void **state)
{
    struct buffer json = BUFFER_INIT(1024);

    (void)state;
    config.cleanup.mode = CLEANUP_OFF;
    run_node();
    assert_int_equal(reconciler_gc(reconciler, false, 0, &json, &error),
                     STATUS_FAILED_PRECONDITION);
    buffer_done(&json);
}

static void gc_before_the_first_scan_is_refused(void **state)
{
    struct buffer json = BUFFER_INIT(1024);

    (void)state;
    make_reconciler(NULL);
    assert_int_equal(reconciler_gc(reconciler, false, 0, &json, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "first scan"));
    buffer_done(&json);
}

/* Brakes are overridden for all that is stale, or not at all. */
static void gc_of_one_volume_is_a_dry_run_only(void **state)
{
    struct buffer json = BUFFER_INIT(8192);
    int64_t volume_id = leave_volume();

    (void)state;
    assert_int_equal(reconciler_gc(reconciler, false, volume_id, &json, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_true(is_staged());
    assert_int_equal(reconciler_gc(reconciler, true, volume_id, &json, &error), STATUS_OK);
    assert_non_null(strstr(buffer_text(&json), "\"decision\":\"would_remove\""));
    assert_true(is_staged());
    buffer_done(&json);
}

static void gc_with_a_failing_database_removes_nothing(void **state)
{
    struct buffer json = BUFFER_INIT(8192);

    (void)state;
    (void)leave_volume();
    assert_int_equal(sqlite3_exec(store->connection.db, "PRAGMA query_only = 1", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(reconciler_gc(reconciler, false, 0, &json, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "nothing was removed"));
    assert_true(is_staged());
    buffer_done(&json);
}

static void a_cleanup_that_is_not_known_is_not_restored(void **state)
{
    (void)state;
    run_node();
    assert_int_equal(reconciler_restore(reconciler, 99, &error), STATUS_NOT_FOUND);
}

static void nothing_is_removed_while_a_watcher_is_down(void **state)
{
    (void)state;
    fake_watcher_down = true;
    leave_volume();
    assert_non_null(strstr(gc(false), "source_unhealthy"));
    assert_true(is_staged());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        NODE(live_metadata_is_kept),
        NODE(a_dry_run_moves_nothing),
        NODE(every_root_that_vanished_is_named),
        NODE(stale_metadata_is_removed_and_restored),
        NODE(a_process_of_the_sandbox_keeps_its_metadata),
        NODE(a_pod_directory_of_the_kubelet_keeps_metadata),
        NODE(nothing_is_removed_where_the_node_is_not_seen),
        NODE(the_file_of_a_sandbox_that_ended_goes_alone),
        NODE(metadata_of_another_path_than_the_kubelets_is_kept),
        NODE(metadata_under_a_name_whose_path_is_unknown_is_kept),
        NODE(a_volume_that_no_sandbox_ever_had_is_kept_for_its_pod),
        NODE(a_sweep_removes_no_more_than_the_rate_allows),
        NODE(a_sweep_leaves_many_whose_ends_were_not_seen_to_a_person),
        NODE(cleanup_that_is_off_refuses),
        NODE(gc_before_the_first_scan_is_refused),
        NODE(gc_of_one_volume_is_a_dry_run_only),
        NODE(gc_with_a_failing_database_removes_nothing),
        NODE(a_cleanup_that_is_not_known_is_not_restored),
        NODE(nothing_is_removed_while_a_watcher_is_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
