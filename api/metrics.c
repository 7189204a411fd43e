/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - writes each family in turn: from the store by counting in SQL, from counters that are
 * kept where events happen, from the watchers, and from the process itself. */
#include "api/metrics.h"

#include <string.h>

#include "api/metrics_text.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "model/state.h"
#include "store/counters.h"
#include "store/overview.h"

/* ---- the store ---- */

/* Volumes whose condition is abnormal, counted while all volumes are written. */
struct volumes {
    struct metrics_text *text;
    uint64_t abnormal;
};

static bool is_abnormal_state(const char *name)
{
    const enum volume_state state = state_from_name(name);

    return state == STATE_BLOCKED || state == STATE_SHRUNK;
}

static int put_volumes(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                       uint64_t count)
{
    struct volumes *volumes = userdata;

    if (is_abnormal_state(name[1]))
        volumes->abnormal += count;
    metrics_put(volumes->text,
                METRICS_WITH({"layout", name[0]}, {"state", name[1]}, {"reason", name[2]}),
                (double)count);
    return buffer_error(volumes->text->out);
}

static int put_stalled(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                       uint64_t count)
{
    struct metrics_text *text = userdata;

    metrics_put(text, METRICS_WITH({"state", name[0]}, {"reason", name[1]}), (double)count);
    return buffer_error(text->out);
}

static int put_reason(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                      uint64_t count)
{
    struct metrics_text *text = userdata;

    metrics_put(text, METRICS_WITH({"reason", name[0]}), (double)count);
    return buffer_error(text->out);
}

/* Adds those whose state has not counted them already. */
static int count_abnormal(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                          uint64_t count)
{
    struct volumes *volumes = userdata;

    if (!is_abnormal_state(name[0]))
        volumes->abnormal += count;
    return 0;
}

static int put_condition(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                         uint64_t count)
{
    struct metrics_text *text = userdata;

    metrics_put(text, METRICS_WITH({"condition", name[0]}), (double)count);
    return buffer_error(text->out);
}

static int put_sandboxes(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                         uint64_t count)
{
    struct metrics_text *text = userdata;

    metrics_put(text, METRICS_WITH({"runtime", name[0]}, {"hypervisor", name[1]}), (double)count);
    return buffer_error(text->out);
}

static int put_orphan(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                      uint64_t count)
{
    struct metrics_text *text = userdata;

    metrics_put(text, METRICS_WITH({"sandbox", name[0]}, {"pid", name[1]}, {"volumes", name[2]}),
                (double)count);
    return buffer_error(text->out);
}

static int put_state(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                     uint64_t count)
{
    struct metrics_text *text = userdata;

    metrics_put(text, METRICS_WITH({"state", name[0]}), (double)count);
    return buffer_error(text->out);
}

static int write_volumes(struct metrics_text *text, struct store_reader *reader,
                         struct error *error)
{
    struct volumes volumes = {.text = text};
    int r;

    metrics_begin(text, "crustd_volumes", "gauge", "Volumes that are staged on this node.");
    r = store_group_volumes(reader, put_volumes, &volumes, error);
    if (r == 0)
        r = store_group_abnormal(reader, count_abnormal, &volumes, error);
    if (r < 0)
        return r;
    metrics_begin(text, "volume_stats_health_status_abnormal", "gauge",
                  "Volumes that are blocked or shrunk, or abnormal as their guest says.");
    metrics_put(text, NULL, (double)volumes.abnormal);
    metrics_begin(text, "crustd_volumes_stalled", "gauge",
                  "Volumes whose resize does not proceed and needs attention.");
    r = store_group_stalled(reader, put_stalled, text, error);
    if (r < 0)
        return r;
    metrics_begin(text, "crustd_volumes_not_resizable", "gauge",
                  "Volumes in use whose file system a resize would not reach, though crustd may "
                  "resize them, by the first obstacle.");
    r = store_group_not_resizable(reader, put_reason, text, error);
    if (r < 0)
        return r;
    metrics_begin(text, "crustd_volumes_condition", "gauge",
                  "Volumes that a sandbox uses, by the condition that its guest last reported.");
    return store_group_conditions(reader, put_condition, text, error);
}

static int write_store(struct metrics_text *text, struct store_reader *reader, struct error *error)
{
    int64_t oldest_ms = 0, now_ms;
    int r = write_volumes(text, reader, error);

    if (r < 0)
        return r;
    metrics_begin(text, "crustd_metadata_stale", "gauge",
                  "Metadata directories that look stale, by the reason for which they are kept.");
    r = store_group_stale(reader, put_reason, text, error);
    if (r < 0)
        return r;
    metrics_begin(text, "crustd_sandboxes", "gauge", "Sandboxes that are alive.");
    r = store_group_sandboxes(reader, put_sandboxes, text, error);
    if (r < 0)
        return r;
    metrics_begin(text, "crustd_sandboxes_orphaned", "gauge",
                  "Sandboxes whose VMM has outlived its shim, with the volumes that it has.");
    r = store_group_orphans(reader, put_orphan, text, error);
    if (r < 0)
        return r;
    metrics_begin(text, "crustd_drives", "gauge",
                  "Drives that clients attached to running VMs and that have not ended.");
    r = store_group_drives(reader, put_state, text, error);
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
    return buffer_error(text->out);
}

/* ---- each volume ---- */

struct usage {
    struct metrics_text *text;
    uint64_t (*value_of)(const struct store_usage_line *line);
    bool of_guest; /* known only after the guest has reported it */
};

static uint64_t size_of(const struct store_usage_line *line)
{
    return line->size_bytes;
}

static uint64_t used_of(const struct store_usage_line *line)
{
    return line->used_bytes;
}

static uint64_t available_of(const struct store_usage_line *line)
{
    return line->available_bytes;
}

/* A label that is not known is there, and empty: Prometheus takes that for no label, and with
 * honorLabels does not put crustd's own namespace and pod in its place. */
static int put_usage(void *userdata, const struct store_usage_line *line)
{
    const struct usage *usage = userdata;

    if (usage->of_guest ? line->has_usage : line->size_bytes != 0)
        metrics_put(usage->text,
                    METRICS_WITH({"pv", line->pv}, {"namespace", line->namespace},
                                 {"persistentvolumeclaim", line->claim}, {"pod", line->pod}),
                    (double)usage->value_of(line));
    return buffer_error(usage->text->out);
}

static int write_usage(struct metrics_text *text, struct store_reader *reader, struct error *error)
{
    static const struct {
        const char *name, *help;
        uint64_t (*value_of)(const struct store_usage_line *line);
        bool of_guest;
    } families[] = {
        {"crustd_volume_size_bytes", "Size of the volume's device on the host.", size_of, false},
        {"crustd_volume_used_bytes", "Used bytes, as the guest last reported.", used_of, true},
        {"crustd_volume_available_bytes", "Available bytes, as the guest last reported.",
         available_of, true},
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_length(families); i++) {
        struct usage usage = {text, families[i].value_of, families[i].of_guest};

        metrics_begin(text, families[i].name, "gauge", families[i].help);
        r = store_list_usage(reader, put_usage, &usage, error);
    }
    return r;
}

/* ---- events so far ---- */

static void write_resizes(struct metrics_text *text, const struct store_counters *counters)
{
    static const char *const stages[] = {[STORE_STAGE_HYPERVISOR] = "hypervisor",
                                         [STORE_STAGE_GUEST] = "guest",
                                         [STORE_STAGE_TOTAL] = "total"};

    metrics_begin(
        text, "crustd_resizes_total", "counter",
        "Resizes that finished (grown), came to be held up (blocked, each time), or ended "
        "with their volume or sandbox (ended).");
    for (unsigned i = 0; i < counters->resize_results; i++) {
        const struct store_counted_resize *row = &counters->resize_result[i];

        metrics_put(text, METRICS_WITH({"result", row->result}, {"reason", row->reason}),
                    (double)row->count);
    }
    metrics_begin(
        text, "crustd_resize_duration_seconds", "histogram",
        "Of finished resizes: from detection to the hypervisor, on to the guest, and in total.");
    for (unsigned i = 0; i < STORE_STAGES; i++)
        metrics_put_histogram(text, METRICS_WITH({"stage", stages[i]}), &counters->resizes[i]);
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
    metrics_begin(text, "volumes_published_with_deferred_ops_total", "counter",
                  "Volumes whose metadata appeared and read well, whoever wrote it, each once.");
    metrics_put(text, NULL, (double)counters->published);
    metrics_begin(text, "crustd_store_commit_seconds", "histogram", "Commits of the database.");
    metrics_put_histogram(text, NULL, &counters->commits);
}

static void write_operations(struct metrics_text *text, const struct operations *operations)
{
    metrics_begin(text, "crustd_operations_seconds", "histogram", "Calls of clients.");
    for (const struct operation *one = operations->first; one; one = one->next) {
        metrics_put_histogram(text,
                              METRICS_WITH({"method_name", one->method},
                                           {"grpc_status_code", status_name(one->code)}),
                              &one->spans);
    }
}

/* ---- the daemon ---- */

static void write_sources(struct metrics_text *text, const struct reconciler_health *health)
{
    metrics_begin(text, "crustd_source_up", "gauge", "Whether a source of events works.");
    for (unsigned i = 0; i < health->sources; i++)
        metrics_put(text, METRICS_WITH({"source", health->source[i].name}), health->source[i].up);
    metrics_begin(text, "crustd_events_total", "counter", "Events that a watcher reported.");
    for (unsigned i = 0; i < health->sources; i++)
        metrics_put(text, METRICS_WITH({"source", health->source[i].name}),
                    (double)health->source[i].events);
    metrics_begin(text, "crustd_event_overflows_total", "counter",
                  "How often events were lost, so that everything was observed again.");
    for (unsigned i = 0; i < health->sources; i++)
        metrics_put(text, METRICS_WITH({"source", health->source[i].name}),
                    (double)health->source[i].overflows);
}

static void write_findings(struct metrics_text *text, const struct reconciler_findings *findings)
{
    metrics_begin(text, "crustd_doctor_findings", "gauge",
                  "What the last examination of the node found, but for what is well.");
    for (unsigned i = 0; i < findings->checks; i++)
        metrics_put(
            text,
            METRICS_WITH({"check", findings->check[i].check}, {"level", findings->check[i].level}),
            findings->check[i].findings);
}

static void write_daemon(struct metrics_text *text, struct reconciler *reconciler,
                         const struct reconciler_modes *modes)
{
    struct reconciler_health health = {0};

    reconciler_get_health(reconciler, &health);
    metrics_begin(text, "crustd_build_info", "gauge", "The version that runs.");
    metrics_put(text,
                METRICS_WITH({"version", CRUST_VERSION}, {"revision", CRUST_REVISION},
                             {"node", log_node()}),
                1);
    metrics_begin(text, "crustd_config_info", "gauge", "What crustd may do on this node.");
    metrics_put(text,
                METRICS_WITH({"resize_mode", modes->resize}, {"cleanup_mode", modes->cleanup}), 1);
    metrics_begin(text, "crustd_degraded", "gauge",
                  "1 while something that crustd needs is missing (/readyz says what).");
    metrics_put(text, NULL, health.degraded);
    metrics_begin(text, "crustd_store_degraded", "gauge",
                  "1 while the database's file fails, so that nothing is kept.");
    metrics_put(text, NULL, health.database_fails || health.in_memory);
    metrics_begin(text, "crustd_loop_longest_pass_seconds", "gauge",
                  "The longest that crustd has served nobody since it started.");
    metrics_put(text, NULL, (double)health.longest_pass_ns / (double)NSEC_PER_SEC);
    metrics_begin(text, "crustd_loop_longest_pass_cpu_seconds", "gauge",
                  "The most processor time that one pass of the loop has taken.");
    metrics_put(text, NULL, (double)health.longest_pass_processor_ns / (double)NSEC_PER_SEC);
    metrics_begin(text, "crustd_journal_lines_total", "counter",
                  "Lines of the journal that were printed to stdout (log.journal), or dropped.");
    metrics_put(text, METRICS_WITH({"result", "printed"}), (double)health.journal_printed);
    metrics_put(text, METRICS_WITH({"result", "dropped"}), (double)health.journal_dropped);
    metrics_begin(text, "crustd_kubernetes_events_total", "counter",
                  "Events for Kubernetes (kubernetes.events), by what became of them.");
    metrics_put(text, METRICS_WITH({"result", "sent"}), (double)health.events_sent);
    metrics_put(text, METRICS_WITH({"result", "merged"}), (double)health.events_merged);
    metrics_put(text, METRICS_WITH({"result", "refused"}), (double)health.events_refused);
    metrics_put(text, METRICS_WITH({"result", "dropped"}), (double)health.events_dropped);
    write_sources(text, &health);
    write_findings(text, reconciler_get_findings(reconciler));
}

int metrics_write(struct reconciler *reconciler, const struct operations *operations,
                  struct buffer *ret_text, struct error *error)
{
    struct metrics_text text = {.out = ret_text};
    struct store_reader *reader = reconciler_reader(reconciler);
    struct reconciler_modes modes;
    int r;

    reconciler_get_modes(reconciler, &modes);
    write_daemon(&text, reconciler, &modes);
    r = write_store(&text, reader, error);
    if (r == 0 && modes.per_volume)
        r = write_usage(&text, reader, error);
    if (r < 0)
        return r;
    write_resizes(&text, store_reader_counters(reader));
    write_cleanups(&text, store_reader_counters(reader));
    write_operations(&text, operations);
    metrics_write_process(&text);
    r = buffer_error(ret_text);
    return r < 0 ? error_set_errno(error, r, "metrics") : 0;
}
