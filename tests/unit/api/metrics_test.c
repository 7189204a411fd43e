/* SPDX-License-Identifier: Apache-2.0 */
/* metrics_test.c - Prometheus' text, and what /metrics says with it. */
#include "tests/unit/api/fixture.h"

#include "api/server.h"
#include "tests/unit/volume_rows.h"

static void expect_line(struct fixture *fixture, const char *line)
{
    cleanup(buffer_done) struct buffer reply = ask(fixture, "GET", "/metrics");

    assert_int_equal(status_of(&reply), 200);
    if (!strstr(buffer_text(&reply), line))
        fail_msg("no %sin %s", line, buffer_text(&reply));
}

static void volumes_are_counted(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->reconciler.store;

    add_volumes(fixture, 3);
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(row_set_state(store, 2, STATE_BLOCKED, REASON_NO_DEVICE, NULL), 0);
    assert_int_equal(store_commit(store), 0);
    expect_line(fixture, "\ncrustd_volumes{layout=\"kata\",state=\"blocked\","
                         "reason=\"no_device\"} 1\n");
    expect_line(fixture, "\nvolume_stats_health_status_abnormal 1\n");
    expect_line(fixture, "\ncrustd_events_total{source=\"inotify\"} 7\n");
    expect_line(fixture, "\ncrustd_degraded 0\n");
    expect_line(fixture, "\ncrustd_oldest_pending_seconds 0\n");
    expect_line(fixture, "\ncrustd_store_degraded 0\n");
    fixture->reconciler.health.degraded = true;
    expect_line(fixture, "\ncrustd_degraded 1\n");
    fixture->reconciler.health.in_memory = true;
    expect_line(fixture, "\ncrustd_store_degraded 1\n");
}

static void the_modes_are_shown(void **state)
{
    expect_line(*state,
                "\ncrustd_config_info{resize_mode=\"observe\",cleanup_mode=\"report\"} 1\n");
}

/* Binds volume 1, whose guest then says that something is wrong. */
static void add_abnormal(struct fixture *fixture)
{
    struct store *store = fixture->reconciler.store;
    struct store_guest_stats stats = {
        .binding_id = 1, .has_bytes = true, .used = 5, .available = 7, .abnormal = true};
    bool changed = false;

    assert_int_equal(store_begin(store), 0);
    bind_first_volume(store);
    assert_int_equal(row_set_state(store, 1, STATE_IN_SYNC, REASON_NONE, NULL), 0);
    assert_int_equal(store_put_guest_stats(store, 1, &stats, &changed), 0);
    assert_true(changed);
    assert_int_equal(store_commit(store), 0);
}

static void each_volume_where_it_is_wanted(void **state)
{
    struct fixture *fixture = *state;

    add_volumes_with(
        fixture, 2,
        "{\"csi.storage.k8s.io/pvc/name\":\"data\",\"csi.storage.k8s.io/pvc/namespace\":\"shop\"}");
    add_abnormal(fixture);
    fixture->reconciler.per_volume = true;
    assert_int_equal(store_begin(fixture->reconciler.store), 0);
    assert_int_equal(
        store_put_hypervisor_result(
            fixture->reconciler.store,
            &(struct store_hypervisor_result){.volume_id = 1, .bytes = 64, .list = STORE_LIST_HAS}),
        0);
    assert_int_equal(store_commit(fixture->reconciler.store), 0);
    expect_line(fixture, "\ncrustd_volume_vm_size_bytes{pv=\"pv-0\",kind=\"direct_volume\","
                         "namespace=\"shop\",persistentvolumeclaim=\"data\",pod=\"db-0\"} 64\n");
    expect_line(fixture,
                "\ncrustd_volume_used_bytes{pv=\"pv-0\",kind=\"direct_volume\",namespace=\"shop\","
                "persistentvolumeclaim=\"data\",pod=\"db-0\"} 5\n");
    expect_line(
        fixture,
        "\ncrustd_volume_available_bytes{pv=\"pv-0\",kind=\"direct_volume\",namespace=\"shop\","
        "persistentvolumeclaim=\"data\",pod=\"db-0\"} 7\n");
}

static void resizes_are_counted_once_committed(void **state)
{
    struct fixture *fixture = *state;
    struct store *store = fixture->reconciler.store;

    add_volumes(fixture, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(store_begin(store), 0);
        assert_int_equal(row_open_resize(store, 1, 1, 2), 0);
        assert_int_equal(row_set_state(store, 1, STATE_BLOCKED, REASON_READ_ONLY, NULL), 0);
        if (i == 0)
            store_rollback(store);
        else
            assert_int_equal(store_commit(store), 0);
    }
    expect_line(fixture, "\ncrustd_resizes_total{result=\"blocked\",reason=\"read_only\"} 1\n");
    assert_int_equal(store_begin(store), 0);
    assert_int_equal(row_set_state(store, 1, STATE_IN_SYNC, REASON_NONE, NULL), 0);
    assert_int_equal(store_commit(store), 0);
    expect_line(fixture, "\ncrustd_resizes_total{result=\"grown\",reason=\"none\"} 1\n");
    expect_line(fixture, "\ncrustd_resize_duration_seconds_count{stage=\"total\"} 1\n");
    expect_line(fixture, "\ncrustd_resize_duration_seconds_count{stage=\"hypervisor\"} 0\n");
}

static void calls_are_counted(void **state)
{
    static const char stage[] = "/crust.v1.Runtime/RuntimeStageVolume";
    struct fixture *fixture = *state;

    operations_note(&fixture->operations, stage, STATUS_OK, clock_boottime());
    operations_note(&fixture->operations, stage, STATUS_OK, clock_boottime());
    operations_note(&fixture->operations, stage, STATUS_UNAVAILABLE, clock_boottime());
    expect_line(fixture, "\ncrustd_operations_seconds_count{method_name=\"/crust.v1.Runtime/"
                         "RuntimeStageVolume\",grpc_status_code=\"OK\"} 2\n");
    expect_line(fixture, "grpc_status_code=\"UNAVAILABLE\"} 1\n");
    expect_line(fixture, "\nvolumes_published_with_deferred_ops_total 0\n");
}

static void labels_are_escaped(void **state)
{
    struct fixture *fixture = *state;

    operations_note(&fixture->operations, "a\"b\\c\nd\xff\xc3\xa9", STATUS_OK, clock_boottime());
    expect_line(fixture, "\ncrustd_operations_seconds_count{method_name=\"a\\\"b\\\\c\\nd"
                         "\xef\xbf\xbd\xc3\xa9\",grpc_status_code=\"OK\"} 1\n");
}

static void buckets_add_up(void **state)
{
    static const uint64_t before_ns[] = {0, 300 * NSEC_PER_MSEC, 1000 * NSEC_PER_SEC};
    struct fixture *fixture = *state;

    for (size_t i = 0; i < array_length(before_ns); i++)
        operations_note(&fixture->operations, "m", STATUS_OK, clock_boottime() - before_ns[i]);
    expect_line(fixture, "m\",grpc_status_code=\"OK\",le=\"0.25\"} 1\n");
    expect_line(fixture, "m\",grpc_status_code=\"OK\",le=\"0.5\"} 2\n");
    expect_line(fixture, "m\",grpc_status_code=\"OK\",le=\"600\"} 2\n");
    expect_line(fixture, "m\",grpc_status_code=\"OK\",le=\"+Inf\"} 3\n");
    expect_line(fixture,
                "crustd_operations_seconds_count{method_name=\"m\",grpc_status_code=\"OK\"} 3\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(labels_are_escaped),
        TEST(buckets_add_up),
        TEST(volumes_are_counted),
        TEST(the_modes_are_shown),
        TEST(each_volume_where_it_is_wanted),
        TEST(resizes_are_counted_once_committed),
        TEST(calls_are_counted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
