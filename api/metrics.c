/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c - writes each family in turn: from the store by counting in SQL, from counters that are
 * kept where events happen, from the watchers, and from the process itself. */
#include "api/server.h"

#include <dirent.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/text.h"
#include "lib/workers.h"
#include "model/volume.h"
#include "store/read.h"

/* ---- the format: Prometheus' text, version 0.0.4 ---- */

struct text {
    struct buffer *out; /* latches failures to append */
    const char *family;
};

enum { LABELS = 5 };

/* Ends with a name that is NULL. */
struct labels {
    struct {
        const char *name;
        const char *value; /* any text */
    } label[LABELS];
};

#define WITH(...) (&(const struct labels){{__VA_ARGS__}})

/* A single label that is not UTF-8 would make Prometheus refuse the whole answer. */
static void put_escaped(struct buffer *out, const char *value)
{
    const char *end = value + strlen(value);

    while (value < end) {
        uint32_t character;
        const size_t length = text_decode_utf8(value, (size_t)(end - value), &character);

        if (*value == '\\' || *value == '"' || *value == '\n')
            buffer_append_format(out, "\\%c", *value == '\n' ? 'n' : *value);
        else if (length == 0)
            buffer_append_text(out, "\xef\xbf\xbd");
        else
            buffer_append(out, value, length);
        value += length ? length : 1;
    }
}

/* NAME[SUFFIX]{name="value",…} VALUE; `limit` is the bucket's, or NULL. */
static void put_sample(struct text *text, const char *suffix, const struct labels *labels,
                       const char *limit, double value)
{
    const char *before = "{";

    buffer_append_format(text->out, "%s%s", text->family, suffix);
    for (size_t i = 0; labels && i < LABELS && labels->label[i].name; i++) {
        buffer_append_format(text->out, "%s%s=\"", before, labels->label[i].name);
        put_escaped(text->out, labels->label[i].value);
        buffer_append_text(text->out, "\"");
        before = ",";
    }
    if (limit)
        buffer_append_format(text->out, "%sle=\"%s\"", before, limit);
    buffer_append_format(text->out, "%s %.15g\n", limit || *before == ',' ? "}" : "", value);
}

/* Begins a family; type: "counter", "gauge", "histogram". Its samples follow. */
static void begin_family(struct text *text, const char *name, const char *type, const char *help)
{
    text->family = name;
    buffer_append_format(text->out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* labels NULL: none. */
static void put_value(struct text *text, const struct labels *labels, double value)
{
    put_sample(text, "", labels, NULL, value);
}

/* A family of one sample. */
static void put_one(struct text *text, const char *name, const char *type, const char *help,
                    double value)
{
    begin_family(text, name, type, help);
    put_value(text, NULL, value);
}

static void put_histogram(struct text *text, const struct labels *labels,
                          const struct histogram *histogram)
{
    uint64_t below = 0;

    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        char limit[32];

        below += histogram->bucket[i];
        (void)snprintf(limit, sizeof(limit), "%g", histogram_seconds[i]);
        put_sample(text, "_bucket", labels, limit, (double)below);
    }
    put_sample(text, "_bucket", labels, "+Inf", (double)histogram->count);
    put_sample(text, "_sum", labels, NULL, histogram->sum_seconds);
    put_sample(text, "_count", labels, NULL, (double)histogram->count);
}

/* ---- the store ---- */

/* A family of what a query counts, with a label for each of the names in a row. */
struct family {
    const char *name, *help;
    enum store_group counted;
    const char *label[STORE_GROUP_NAMES];
};

/* The first is followed by the volumes that it found abnormal. */
static const struct family families[] = {
    {"crustd_volumes",
     "Volumes that are staged on this node.",
     STORE_GROUP_VOLUMES,
     {"layout", "state", "reason"}},
    {"crustd_volumes_stalled",
     "Volumes whose resize does not proceed and needs attention.",
     STORE_GROUP_STALLED,
     {"state", "reason"}},
    {"crustd_volumes_not_resizable",
     "Volumes in use whose file system a resize would not reach, though crustd may resize them, by "
     "the first obstacle.",
     STORE_GROUP_NOT_RESIZABLE,
     {"reason"}},
    {"crustd_volumes_condition",
     "Volumes that a sandbox uses, by the condition that its guest last reported.",
     STORE_GROUP_CONDITIONS,
     {"condition"}},
    {"crustd_metadata_stale",
     "Metadata directories that look stale, by the reason for which they are kept.",
     STORE_GROUP_STALE,
     {"reason"}},
    {"crustd_sandboxes",
     "Sandboxes that are alive.",
     STORE_GROUP_SANDBOXES,
     {"runtime", "hypervisor"}},
    {"crustd_sandboxes_orphaned",
     "Sandboxes whose VMM has outlived its shim, with the volumes that it has.",
     STORE_GROUP_ORPHANS,
     {"sandbox", "pid", "volumes"}},
    {"crustd_drives",
     "Drives that clients attached to running VMs and that have not ended.",
     STORE_GROUP_DRIVES,
     {"state"}},
};

/* A family while its rows are read. */
struct group {
    struct text *text;
    const struct family *family;
    uint64_t abnormal;
};

static bool is_abnormal_state(const char *name)
{
    const enum volume_state state = state_from_name(name);

    return state == STATE_BLOCKED || state == STATE_SHRUNK;
}

static int put_row(void *userdata, const char *const name[static STORE_GROUP_NAMES], uint64_t count)
{
    struct group *group = userdata;
    struct labels labels = {0};

    for (size_t i = 0; i < STORE_GROUP_NAMES && group->family->label[i]; i++) {
        labels.label[i].name = group->family->label[i];
        labels.label[i].value = name[i];
    }
    if (group->family->counted == STORE_GROUP_VOLUMES && is_abnormal_state(name[1]))
        group->abnormal += count;
    put_value(group->text, &labels, (double)count);
    return buffer_error(group->text->out);
}

/* Adds those whose state has not counted them already. */
static int count_abnormal(void *userdata, const char *const name[static STORE_GROUP_NAMES],
                          uint64_t count)
{
    struct group *group = userdata;

    if (!is_abnormal_state(name[0]))
        group->abnormal += count;
    return 0;
}

static int write_family(struct text *text, struct store_reader *reader, const struct family *family,
                        struct error *error)
{
    struct group group = {text, family, 0};
    int r;

    begin_family(text, family->name, "gauge", family->help);
    r = store_each_group(reader, family->counted, put_row, &group, error);
    if (r < 0 || family->counted != STORE_GROUP_VOLUMES)
        return r;
    r = store_each_group(reader, STORE_GROUP_ABNORMAL, count_abnormal, &group, error);
    if (r == 0)
        put_one(text, "volume_stats_health_status_abnormal", "gauge",
                "Volumes that are blocked or shrunk, or abnormal as their guest says.",
                (double)group.abnormal);
    return r;
}

static int write_store(struct text *text, struct store_reader *reader, struct error *error)
{
    int64_t oldest_ms = 0, now_ms;
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_length(families); i++)
        r = write_family(text, reader, &families[i], error);
    if (r == 0)
        r = store_oldest_pending(reader, &oldest_ms, error);
    if (r < 0)
        return r;
    now_ms = clock_realtime_ms();
    put_one(text, "crustd_oldest_pending_seconds", "gauge",
            "Age of the oldest resize that is not done, of volumes that a sandbox uses and crustd "
            "may resize; 0 if there is none.",
            oldest_ms && now_ms > oldest_ms ? (double)(now_ms - oldest_ms) / 1000 : 0);
    return buffer_error(text->out);
}

/* ---- each volume ---- */

struct usage {
    const char *name, *help;
    size_t offset; /* in a store_usage_line */
    bool of_guest; /* known only after the guest has reported it; others: where it is not 0 */
    struct text *text;
};

/* A label that is not known is there, and empty: Prometheus takes that for no label, and with
 * honorLabels does not put crustd's own namespace and pod in its place. */
static int put_usage(void *userdata, const struct store_usage_line *line)
{
    const struct usage *usage = userdata;
    const uint64_t *number = (const void *)((const char *)line + usage->offset);

    if (usage->of_guest ? line->has_usage : *number != 0)
        put_value(usage->text,
                  WITH({"pv", line->pv}, {"kind", line->kind}, {"namespace", line->namespace},
                       {"persistentvolumeclaim", line->claim}, {"pod", line->pod}),
                  (double)*number);
    return buffer_error(usage->text->out);
}

static int write_usage(struct text *text, struct store_reader *reader, struct error *error)
{
    struct usage usages[] = {
        {"crustd_volume_size_bytes", "Size of the volume's device on the host.",
         offsetof(struct store_usage_line, size_bytes), false, text},
        {"crustd_volume_vm_size_bytes", "Size of the volume's disk, as its VM has it.",
         offsetof(struct store_usage_line, vm_bytes), false, text},
        {"crustd_volume_used_bytes", "Used bytes, as the guest last reported.",
         offsetof(struct store_usage_line, used_bytes), true, text},
        {"crustd_volume_available_bytes", "Available bytes, as the guest last reported.",
         offsetof(struct store_usage_line, available_bytes), true, text},
    };
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_length(usages); i++) {
        begin_family(text, usages[i].name, "gauge", usages[i].help);
        r = store_list_usage(reader, put_usage, &usages[i], error);
    }
    return r;
}

/* ---- events so far ---- */

static void write_counters(struct text *text, const struct store_counters *counters)
{
    static const char *const stages[] = {[STORE_STAGE_HYPERVISOR] = "hypervisor",
                                         [STORE_STAGE_GUEST] = "guest",
                                         [STORE_STAGE_TOTAL] = "total"};

    begin_family(text, "crustd_resizes_total", "counter",
                 "Resizes that finished (grown), came to be held up (blocked, each time), or ended "
                 "with their volume or sandbox (ended).");
    for (unsigned i = 0; i < counters->resize_results; i++) {
        const struct store_counted_resize *row = &counters->resize_result[i];

        put_value(text, WITH({"result", row->result}, {"reason", row->reason}), (double)row->count);
    }
    begin_family(
        text, "crustd_resize_duration_seconds", "histogram",
        "Of finished resizes: from detection to the hypervisor, on to the guest, and in total.");
    for (unsigned i = 0; i < STORE_STAGES; i++)
        put_histogram(text, WITH({"stage", stages[i]}), &counters->resizes[i]);
    begin_family(text, "crustd_cleanups_total", "counter", "Decisions about stale metadata.");
    for (enum cleanup_decision i = 0; i < CLEANUP_DECISIONS; i++)
        put_value(text, WITH({"decision", cleanup_decision_name(i)}),
                  (double)counters->cleanups[i]);
    put_one(text, "volumes_published_with_deferred_ops_total", "counter",
            "Volumes whose metadata appeared and read well, whoever wrote it, each once.",
            (double)counters->published);
    begin_family(text, "crustd_store_commit_seconds", "histogram", "Commits of the database.");
    put_histogram(text, NULL, &counters->commits);
}

/* ---- the daemon ---- */

static void write_sources(struct text *text, const struct reconciler_health *health)
{
    begin_family(text, "crustd_source_up", "gauge", "Whether a source of events works.");
    for (unsigned i = 0; i < health->sources; i++)
        put_value(text, WITH({"source", health->source[i].name}), health->source[i].up);
    begin_family(text, "crustd_events_total", "counter", "Events that a watcher reported.");
    for (unsigned i = 0; i < health->sources; i++)
        put_value(text, WITH({"source", health->source[i].name}), (double)health->source[i].events);
    begin_family(text, "crustd_event_overflows_total", "counter",
                 "How often events were lost, so that everything was observed again.");
    for (unsigned i = 0; i < health->sources; i++)
        put_value(text, WITH({"source", health->source[i].name}),
                  (double)health->source[i].overflows);
}

static void write_daemon(struct text *text, struct reconciler *reconciler,
                         const struct reconciler_modes *modes)
{
    const struct reconciler_findings *findings = reconciler_get_findings(reconciler);
    struct reconciler_health health = {0};
    struct workers_status workers;

    reconciler_get_health(reconciler, &health);
    workers_get_status(&workers);
    begin_family(text, "crustd_build_info", "gauge", "The version that runs.");
    put_value(text,
              WITH({"version", CRUST_VERSION}, {"revision", CRUST_REVISION}, {"node", log_node()}),
              1);
    begin_family(text, "crustd_config_info", "gauge", "What crustd may do on this node.");
    put_value(text, WITH({"resize_mode", modes->resize}, {"cleanup_mode", modes->cleanup}), 1);
    put_one(text, "crustd_degraded", "gauge",
            "1 while something that crustd needs is missing (/readyz says what).", health.degraded);
    put_one(text, "crustd_store_degraded", "gauge",
            "1 while the database's file fails, so that nothing is kept.",
            health.database_fails || health.in_memory);
    put_one(text, "crustd_loop_longest_pass_seconds", "gauge",
            "The longest that crustd has served nobody since it started.",
            (double)health.longest_pass_ns / (double)NSEC_PER_SEC);
    put_one(text, "crustd_loop_longest_pass_cpu_seconds", "gauge",
            "The most processor time that one pass of the loop has taken.",
            (double)health.longest_pass_processor_ns / (double)NSEC_PER_SEC);
    begin_family(text, "crustd_workers", "gauge",
                 "Worker processes, which talk to VMMs; hung: killed, and held by the kernel.");
    put_value(text, WITH({"state", "ready"}), workers.ready);
    put_value(text, WITH({"state", "busy"}), workers.busy);
    put_value(text, WITH({"state", "hung"}), workers.dying);
    begin_family(text, "crustd_worker_jobs_total", "counter",
                 "Jobs of worker processes, by how they ended.");
    put_value(text, WITH({"result", "answered"}), (double)workers.answered);
    put_value(text, WITH({"result", "late"}), (double)workers.late);
    put_value(text, WITH({"result", "died"}), (double)workers.died);
    begin_family(text, "crustd_journal_lines_total", "counter",
                 "Lines of the journal that were printed to stdout (log.journal), or dropped.");
    put_value(text, WITH({"result", "printed"}), (double)health.journal_printed);
    put_value(text, WITH({"result", "dropped"}), (double)health.journal_dropped);
    begin_family(text, "crustd_kubernetes_events_total", "counter",
                 "Events for Kubernetes (kubernetes.events), by what became of them.");
    put_value(text, WITH({"result", "sent"}), (double)health.events_sent);
    put_value(text, WITH({"result", "merged"}), (double)health.events_merged);
    put_value(text, WITH({"result", "refused"}), (double)health.events_refused);
    put_value(text, WITH({"result", "dropped"}), (double)health.events_dropped);
    write_sources(text, &health);
    begin_family(text, "crustd_doctor_findings", "gauge",
                 "What the last examination of the node found, but for what is well.");
    for (unsigned i = 0; i < findings->checks; i++)
        put_value(text,
                  WITH({"check", findings->check[i].check}, {"level", findings->check[i].level}),
                  findings->check[i].findings);
}

/* ---- the process ---- */

/* What every client library of Prometheus provides, read from /proc/self as in proc(5). */

struct process {
    uint64_t user_ticks, system_ticks, start_ticks;
    uint64_t virtual_bytes;
    int64_t resident_pages;
};

/* The name may contain any byte, and ends at the last parenthesis. */
static bool read_stat(struct process *ret_process)
{
    FILE *file = fopen("/proc/self/stat", "re");
    char line[1024] = "";
    const char *rest = NULL;

    if (!file)
        return false;
    if (fgets(line, sizeof(line), file))
        rest = strrchr(line, ')');
    (void)fclose(file);
    return rest &&
           sscanf(rest,
                  ") %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64
                  " %*d %*d %*d %*d %*d %*d %" SCNu64 " %" SCNu64 " %" SCNd64,
                  &ret_process->user_ticks, &ret_process->system_ticks, &ret_process->start_ticks,
                  &ret_process->virtual_bytes, &ret_process->resident_pages) == 5;
}

/* Excludes the descriptor that is used for counting; -1: unknown. */
static int count_descriptors(void)
{
    DIR *directory = opendir("/proc/self/fd");
    int count = -1;

    if (!directory)
        return -1;
    for (const struct dirent *entry = readdir(directory); entry; entry = readdir(directory))
        count += entry->d_name[0] != '.';
    (void)closedir(directory);
    return count;
}

/* Omits what /proc does not provide. */
static void write_process(struct text *text)
{
    /* Computed once: the clocks drift against each other, but the start time must stay the same. */
    static double started;
    const double ticks_per_second = (double)sysconf(_SC_CLK_TCK);
    struct process process;
    struct rlimit limit;
    int descriptors = count_descriptors();

    if (read_stat(&process)) {
        put_one(text, "process_cpu_seconds_total", "counter", "Processor time, of user and system.",
                (double)(process.user_ticks + process.system_ticks) / ticks_per_second);
        if (started == 0)
            started = (double)clock_realtime_ms() / 1000 -
                      (double)clock_boottime() / (double)NSEC_PER_SEC +
                      (double)process.start_ticks / ticks_per_second;
        put_one(text, "process_start_time_seconds", "gauge", "When it started, since 1970.",
                started);
        put_one(text, "process_virtual_memory_bytes", "gauge", "Virtual memory.",
                (double)process.virtual_bytes);
        put_one(text, "process_resident_memory_bytes", "gauge", "Memory that is in use.",
                (double)process.resident_pages * (double)sysconf(_SC_PAGESIZE));
    }
    if (descriptors >= 0)
        put_one(text, "process_open_fds", "gauge", "Open file descriptors.", descriptors);
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        put_one(text, "process_max_fds", "gauge", "File descriptors that it may have.",
                (double)limit.rlim_cur);
}

int metrics_write(struct reconciler *reconciler, const struct operations *operations,
                  struct buffer *ret_text, struct error *error)
{
    struct text text = {.out = ret_text};
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
    write_counters(&text, store_reader_counters(reader));
    begin_family(&text, "crustd_operations_seconds", "histogram", "Calls of clients.");
    for (const struct operation *one = operations->first; one; one = one->next)
        put_histogram(
            &text, WITH({"method_name", one->method}, {"grpc_status_code", status_name(one->code)}),
            &one->spans);
    write_process(&text);
    r = buffer_error(ret_text);
    return r < 0 ? error_set_errno(error, r, "metrics") : 0;
}

/* ---- operations ----------------------------------------------------------------------------- */

/* A linked list, because there are few. A call is not counted if there is no memory
 * for its entry. */

void operations_note(struct operations *operations, const char *method, enum status_code code,
                     uint64_t began_ns)
{
    struct operation *one = operations->first;

    while (one && (one->method != method || one->code != code))
        one = one->next;
    if (!one) {
        one = calloc(1, sizeof(*one));
        if (!one)
            return;
        one->next = operations->first;
        one->method = method;
        one->code = code;
        operations->first = one;
    }
    histogram_add(&one->spans, (double)(clock_boottime() - began_ns) / (double)NSEC_PER_SEC);
}

void operations_done(struct operations *operations)
{
    while (operations->first) {
        struct operation *one = operations->first;

        operations->first = one->next;
        free(one);
    }
}
