/* metrics.c - each family in turn: from the store by counting in SQL, from counters that are kept
 * where things happen, from the senses, and from the process itself. */
#include "reconciler/serve/metrics.h"

#include <string.h>

#include "lib/clock.h"
#include "reconciler/serve/metrics_process.h"
#include "reconciler/serve/metrics_text.h"
#include "store/counters.h"
#include "store/overview.h"

/* ---- the store ---- */

/* Volumes that need somebody, counted while all are. */
struct volumes {
    struct metrics_text *text;
    uint64_t abnormal;
};

static int put_volumes(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                       uint64_t count)
{
    struct volumes *volumes = userdata;

    if (strcmp(name[1], "blocked") == 0 || strcmp(name[1], "shrunk") == 0)
        volumes->abnormal += count;
    metrics_put(volumes->text,
                METRICS_WITH({"layout", name[0]}, {"state", name[1]}, {"reason", name[2]}),
                (double)count);
    return volumes->text->result;
}

static int put_stalled(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                       uint64_t count)
{
    struct metrics_text *text = userdata;

    metrics_put(text, METRICS_WITH({"state", name[0]}, {"reason", name[1]}), (double)count);
    return text->result;
}

static int put_sandboxes(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                         uint64_t count)
{
    struct metrics_text *text = userdata;

    metrics_put(text, METRICS_WITH({"runtime", name[0]}, {"hypervisor", name[1]}), (double)count);
    return text->result;
}

static int write_store(struct metrics_text *text, struct store_reader *reader, struct error *error)
{
    struct volumes volumes = {.text = text};
    int64_t oldest_ms = 0, now_ms;
    int r;

    metrics_begin(text, "crustd_volumes", "gauge", "Volumes that are staged on this node.");
    r = store_group_volumes(reader, put_volumes, &volumes, error);
    if (r < 0)
        return r;
    metrics_begin(text, "volume_stats_health_status_abnormal", "gauge",
                  "Volumes that are blocked or shrunk.");
    metrics_put(text, NULL, (double)volumes.abnormal);
    metrics_begin(text, "crustd_volumes_stalled", "gauge",
                  "Volumes whose resize stands still and needs somebody.");
    r = store_group_stalled(reader, put_stalled, text, error);
    if (r < 0)
        return r;
    metrics_begin(text, "crustd_sandboxes", "gauge", "Sandboxes that are alive.");
    r = store_group_sandboxes(reader, put_sandboxes, text, error);
    if (r == 0)
        r = store_oldest_pending(reader, &oldest_ms, error);
    if (r < 0)
        return r;
    now_ms = clock_realtime_ms();
    metrics_begin(text, "crustd_oldest_pending_seconds", "gauge",
                  "Age of the oldest resize that is not done, of volumes that a sandbox uses and "
                  "crustd may resize; 0 if there is none.");
    metrics_put(text, NULL,
                oldest_ms && now_ms > oldest_ms ? (double)(now_ms - oldest_ms) / 1000 : 0);
    return text->result;
}

/* ---- what happened ---- */

static void write_growths(struct metrics_text *text, const struct store_counters *counters)
{
    static const char *const stages[] = {[STORE_STAGE_HYPERVISOR] = "hypervisor",
                                         [STORE_STAGE_GUEST] = "guest",
                                         [STORE_STAGE_TOTAL] = "total"};

    metrics_begin(text, "crustd_resizes_total", "counter",
                  "Growths that came through (grown), came to be held up (blocked, each time), or "
                  "ended with their volume or sandbox (ended).");
    for (unsigned i = 0; i < counters->growth_results; i++) {
        const struct store_counted_growth *row = &counters->growth_result[i];

        metrics_put(text, METRICS_WITH({"result", row->result}, {"reason", row->reason}),
                    (double)row->count);
    }
    metrics_begin(text, "crustd_resize_duration_seconds", "histogram",
                  "From a growth's detection to the hypervisor, on to the guest, and in all.");
    for (unsigned i = 0; i < STORE_STAGES; i++)
        metrics_put_histogram(text, METRICS_WITH({"stage", stages[i]}), &counters->growths[i]);
}

static void write_cleanups(struct metrics_text *text, const struct store_counters *counters)
{
    static const char *const decisions[] = {
        [STORE_COUNTED_KEPT] = "kept",         [STORE_COUNTED_REMOVED] = "removed",
        [STORE_COUNTED_PUT_BACK] = "put-back", [STORE_COUNTED_RESTORED] = "restored",
        [STORE_COUNTED_FAILED] = "failed",
    };

    metrics_begin(text, "crustd_cleanups_total", "counter", "Decisions about stale metadata.");
    for (unsigned i = 0; i < STORE_COUNTED_CLEANUPS; i++)
        metrics_put(text, METRICS_WITH({"decision", decisions[i]}), (double)counters->cleanups[i]);
    metrics_begin(text, "crustd_store_commit_seconds", "histogram", "Commits of the database.");
    metrics_put_histogram(text, NULL, &counters->commits);
}

static bool stages_volumes(const char *method)
{
    const char *name = strrchr(method, '/');

    return name &&
           (strcmp(name, "/RuntimeStageVolume") == 0 || strcmp(name, "/RuntimePublishVolume") == 0);
}

static void write_operations(struct metrics_text *text, const struct operations *operations)
{
    uint64_t staged = 0;

    metrics_begin(text, "crustd_operations_seconds", "histogram", "Calls of clients.");
    for (const struct operation *one = operations->first; one; one = one->next) {
        metrics_put_histogram(text,
                              METRICS_WITH({"method_name", one->method},
                                           {"grpc_status_code", status_name(one->code)}),
                              &one->spans);
        if (one->code == STATUS_OK && stages_volumes(one->method))
            staged += one->spans.count;
    }
    metrics_begin(text, "volumes_published_with_deferred_ops_total", "counter",
                  "Volumes that CSI drivers or a kubelet have staged here successfully.");
    metrics_put(text, NULL, (double)staged);
}

/* ---- the daemon ---- */

static void write_sources(struct metrics_text *text, const struct reconciler_health *health)
{
    metrics_begin(text, "crustd_source_up", "gauge", "Whether a source of events works.");
    for (unsigned i = 0; i < health->sources; i++)
        metrics_put(text, METRICS_WITH({"source", health->source[i].name}), health->source[i].up);
    metrics_begin(text, "crustd_events_total", "counter", "Events that a source has told.");
    for (unsigned i = 0; i < health->sources; i++)
        metrics_put(text, METRICS_WITH({"source", health->source[i].name}),
                    (double)health->source[i].events);
    metrics_begin(text, "crustd_event_overflows_total", "counter",
                  "Times that events were lost, so that everything was looked at.");
    for (unsigned i = 0; i < health->sources; i++)
        metrics_put(text, METRICS_WITH({"source", health->source[i].name}),
                    (double)health->source[i].overflows);
}

static void write_daemon(struct metrics_text *text, struct reconciler *reconciler)
{
    struct reconciler_health health = {0};

    reconciler_get_health(reconciler, &health);
    metrics_begin(text, "crustd_build_info", "gauge", "The version that runs.");
    metrics_put(text, METRICS_WITH({"version", CRUST_VERSION}), 1);
    metrics_begin(text, "crustd_degraded", "gauge",
                  "1 if something that crustd needs is not as it should be (/readyz says what).");
    metrics_put(text, NULL, health.degraded);
    write_sources(text, &health);
}

int metrics_write(struct reconciler *reconciler, const struct operations *operations,
                  struct buffer *ret_text, struct error *error)
{
    struct metrics_text text = {.out = ret_text};
    struct store_reader *reader = reconciler_reader(reconciler);
    int r;

    write_daemon(&text, reconciler);
    r = write_store(&text, reader, error);
    if (r < 0)
        return r;
    write_growths(&text, store_reader_counters(reader));
    write_cleanups(&text, store_reader_counters(reader));
    write_operations(&text, operations);
    metrics_write_process(&text);
    return text.result < 0 ? error_set_errno(error, text.result, "metrics") : 0;
}
