/* SPDX-License-Identifier: Apache-2.0 */
/* cleanup_pass.c - list, examine, count processes; decide; act.
 *
 * Only the last part writes. It reads everything again, decides all suspects in one transaction,
 * commits the intents durably, and only then moves anything. The next step of the trash records the
 * results. A failure of the store ends the pass, and none of it is on record.
 *
 * The limits are applied to what would otherwise be removed; the same table then decides these
 * again with the limit as a fact.
 */
#include "reconciler/cleanup/cleanup_pass.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/process.h"
#include "observe/observe.h"
#include "observe/process_scan.h"
#include "reconciler/cleanup/cleaner.h"
#include "reconciler/core/context.h"
#include "reconciler/core/database.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"

enum { ROOM_FOR_END = 16 };

/* What was found out about one directory, or one file in it. */
struct verdict {
    int64_t entry_id, volume_id;
    char file[STORE_SANDBOX_ID_BYTES];
    struct stale_facts facts;
    struct stale_decision decision;
    enum stale_reason reason_before;
    bool held;                   /* by the breaker, until a person confirms */
    bool unobserved;             /* the directory differs from the record */
    enum stale_reason waits_for; /* a limit that a person overrides */
    char fingerprint[SHA256_HEX_BYTES], state[SHA256_HEX_BYTES];
    uint64_t since_ns;
    enum volume_layout layout;
    int64_t cleanup_id; /* of the intent */
    char *json;
};

struct cleanup_pass {
    struct cleanup *cleanup;
    bool person, dry;
    int64_t volume_id; /* the only one in question; 0: all */
    bool listed, counted;
    struct key_queue entries, suspects; /* entry ids: yet to be examined; examined and kept */
    struct process_scan *process_scan;
    struct pass_view view;
    struct verdict *verdict;
    size_t verdicts, verdict_room;
    uint64_t wake_ns; /* when another pass is due before the sweep; UINT64_MAX */
};

/* ---- a pass ------------------------------------------------------------------------------ */

struct cleanup_pass *cleanup_pass_free(struct cleanup_pass *pass)
{
    if (!pass)
        return NULL;
    for (size_t i = 0; i < pass->verdicts; i++)
        free(pass->verdict[i].json);
    free(pass->verdict);
    key_queue_done(&pass->entries);
    key_queue_done(&pass->suspects);
    process_scan_free(pass->process_scan);
    free(pass);
    return NULL;
}

int cleanup_pass_new(struct cleanup *cleanup, const struct cleanup_question *question,
                     struct cleanup_pass **ret_pass)
{
    struct cleanup_pass *pass = calloc(1, sizeof(*pass));
    int r;

    if (!pass)
        return -ENOMEM;
    pass->cleanup = cleanup;
    pass->person = question;
    pass->dry = question && question->dry;
    pass->volume_id = question ? question->volume_id : 0;
    pass->wake_ns = UINT64_MAX;
    r = process_scan_new(&pass->process_scan);
    if (r < 0) {
        cleanup_pass_free(pass);
        return r;
    }
    *ret_pass = pass;
    return 0;
}

static int add_entry(void *userdata, int64_t entry_id)
{
    struct cleanup_pass *pass = userdata;

    key_queue_add_number(&pass->entries, (uint64_t)entry_id);
    return pass->entries.lost ? -ENOMEM : 0;
}

int cleanup_pass_prepare(struct cleanup_pass *pass)
{
    uint64_t entry_id;
    bool suspect;
    int r;

    if (!pass->listed) {
        pass->listed = true;
        r = store_each_entry_id(pass->cleanup->context->store, pass->volume_id, add_entry, pass);
        return r < 0 ? r : PROGRESS_MORE;
    }
    if (key_queue_take_number(&pass->entries, &entry_id)) {
        r = evidence_suspects(pass->cleanup, (int64_t)entry_id, pass->volume_id != 0,
                              pass->process_scan, &suspect);
        if (r == 0 && suspect)
            key_queue_add_number(&pass->suspects, entry_id);
        if (pass->suspects.lost)
            r = -ENOMEM;
        return r < 0 ? r : PROGRESS_MORE;
    }
    if (key_queue_is_empty(&pass->suspects))
        return 0;
    if (pass->counted)
        return observe_cache_refresh(pass->cleanup->context->cache);
    r = process_scan_step(pass->process_scan);
    pass->counted = r == 0;
    return r < 0 ? r : PROGRESS_MORE;
}

/* ---- verdicts ---------------------------------------------------------------------------- */

static struct stale_decision decide_one(const struct verdict *verdict)
{
    return verdict->file[0] ? stale_decide_file(&verdict->facts) : stale_decide(&verdict->facts);
}

/* No exit of its sandbox was observed. A single dead sandbox's file does not count as a volume. */
static bool is_doubtful(const struct verdict *verdict)
{
    return !verdict->file[0] && verdict->facts.sandbox != STALE_SANDBOX_SEEN;
}

static int add_verdict(void *userdata, struct evidence *evidence)
{
    struct cleanup_pass *pass = userdata;
    struct verdict *verdict;

    if (pass->verdicts == pass->verdict_room) {
        size_t room = pass->verdict_room ? 2 * pass->verdict_room : 16;

        verdict = reallocarray(pass->verdict, room, sizeof(*verdict));
        if (!verdict)
            return -ENOMEM;
        pass->verdict = verdict;
        pass->verdict_room = room;
    }
    verdict = &pass->verdict[pass->verdicts++];
    *verdict = (struct verdict){.entry_id = evidence->suspect.entry_id,
                                .volume_id = evidence->suspect.volume_id,
                                .facts = evidence->facts,
                                .since_ns = evidence->since_ns,
                                .layout = evidence->suspect.layout,
                                .json = take_pointer(&evidence->json.data)};
    memcpy(verdict->file, evidence->file, sizeof(verdict->file));
    memcpy(verdict->fingerprint, evidence->fingerprint, sizeof(verdict->fingerprint));
    memcpy(verdict->state, evidence->state, sizeof(verdict->state));
    if (!evidence->file[0])
        verdict->reason_before = evidence->suspect.stale_reason;
    verdict->held = evidence->suspect.held && !pass->person && is_doubtful(verdict);
    if (verdict->held)
        verdict->facts.limit = STALE_LIMIT_BREAKER;
    /* What would keep it from being removed by crustd's own pass, according to the last one. */
    verdict->waits_for = verdict->facts.mode == STALE_MODE_REPORT         ? STALE_REASON_REPORT_ONLY
                         : evidence->suspect.held && is_doubtful(verdict) ? STALE_REASON_BREAKER
                         : verdict->reason_before == STALE_REASON_RATE_LIMIT
                             ? STALE_REASON_RATE_LIMIT
                             : STALE_REASON_NONE;
    /* Report mode does not limit a pass that a person requests. */
    if (pass->person && verdict->facts.mode == STALE_MODE_REPORT)
        verdict->facts.mode = STALE_MODE_DELETE;
    verdict->decision = decide_one(verdict);
    if (verdict->decision.reason == STALE_REASON_GRACE && evidence->settles_ns < pass->wake_ns)
        pass->wake_ns = evidence->settles_ns;
    return 0;
}

static int judge(struct cleanup_pass *pass, int64_t entry_id)
{
    cleanup(evidence_done) struct evidence evidence = {0};
    int r = evidence_take(pass->cleanup, &pass->view, entry_id, &evidence);

    if (r == EVIDENCE_TAKEN) {
        r = add_verdict(pass, &evidence);
        return r < 0 ? r
                     : evidence_each_file(pass->cleanup, &pass->view, entry_id, add_verdict, pass);
    }
    if (r < 0 || !pass->volume_id)
        return r < 0 ? r : 0;
    evidence_done(&evidence);
    evidence = (struct evidence){.suspect.entry_id = entry_id};
    buffer_init(&evidence.json, ROOM_FOR_END);
    r = buffer_append_text(&evidence.json, "{}");
    if (r == 0)
        r = add_verdict(pass, &evidence);
    if (r == 0)
        pass->verdict[pass->verdicts - 1].unobserved = true;
    return r;
}

/* ---- the limits -------------------------------------------------------------------------- */

static bool is_removable(const struct verdict *verdict)
{
    return verdict->decision.verdict == STALE_REMOVE;
}

static void limit_one(struct verdict *verdict, enum stale_limit limit)
{
    verdict->facts.limit = limit;
    verdict->decision = decide_one(verdict);
}

/* Includes those that the breaker already holds. A volume in both layouts has two directories, and
 * counts once. */
static unsigned long count_doubtful(const struct cleanup_pass *pass)
{
    cleanup(key_queue_done) struct key_queue counted = {0};
    unsigned long doubtful = 0;

    for (size_t i = 0; i < pass->verdicts; i++) {
        const struct verdict *verdict = &pass->verdict[i];
        size_t before = key_queue_count(&counted);

        if ((!is_removable(verdict) && verdict->decision.reason != STALE_REASON_BREAKER) ||
            !is_doubtful(verdict))
            continue;
        key_queue_add_number(&counted, (uint64_t)verdict->volume_id);
        doubtful += counted.lost || key_queue_count(&counted) > before;
    }
    return doubtful;
}

static int apply_breaker(struct cleanup_pass *pass)
{
    unsigned long doubtful = count_doubtful(pass);
    bool holds = false;
    uint64_t volumes;
    int r = store_count_volumes(pass->cleanup->context->store, &volumes);

    if (r < 0 || !stale_breaks(doubtful, volumes))
        return r;
    for (size_t i = 0; i < pass->verdicts; i++)
        if (is_removable(&pass->verdict[i]) && is_doubtful(&pass->verdict[i])) {
            limit_one(&pass->verdict[i], STALE_LIMIT_BREAKER);
            pass->verdict[i].held = holds = true;
        }
    if (holds)
        log_warning(NULL,
                    "%lu of %" PRIu64 " volumes look stale at once, and their sandboxes were not "
                    "seen to end: they are kept until a person runs crustctl gc",
                    doubtful, volumes);
    return 0;
}

/* No minute has more removals than the rate, because the count is cleared only after a minute
 * without any. It is kept in memory: after a restart of the daemon the grace time starts over as
 * well. */

static const uint64_t MINUTE_NS = 60 * NSEC_PER_SEC;

static unsigned long removed_lately(const struct cleanup *cleanup, uint64_t now_ns)
{
    return now_ns - cleanup->removed_ns > MINUTE_NS ? 0 : cleanup->removed;
}

/* How many more may be removed now; ret_wake_ns: when more will be allowed, if none are. */
static unsigned long allowance_of(const struct cleanup *cleanup, uint32_t max_per_minute,
                                  uint64_t now_ns, uint64_t *ret_wake_ns)
{
    const unsigned long removed = removed_lately(cleanup, now_ns);

    *ret_wake_ns = (removed ? cleanup->removed_ns + MINUTE_NS : now_ns) + NSEC_PER_SEC;
    return removed < max_per_minute ? max_per_minute - removed : 0;
}

static void note_removal(struct cleanup *cleanup, uint64_t now_ns)
{
    cleanup->removed = removed_lately(cleanup, now_ns) + 1;
    cleanup->removed_ns = now_ns;
}

static void apply_rate(struct cleanup_pass *pass)
{
    const struct config *config = pass->cleanup->context->config;
    uint64_t wake_ns;
    unsigned long left =
        allowance_of(pass->cleanup, config->cleanup.max_per_minute, pass->view.now_ns, &wake_ns);
    bool held = false;

    for (size_t i = 0; i < pass->verdicts; i++) {
        if (!is_removable(&pass->verdict[i]))
            continue;
        if (left) {
            left--;
            continue;
        }
        limit_one(&pass->verdict[i], STALE_LIMIT_RATE);
        held = true;
    }
    if (held && wake_ns < pass->wake_ns)
        pass->wake_ns = wake_ns;
}

/* ---- writing ----------------------------------------------------------------------------- */

static int note(struct cleanup_pass *pass, const struct verdict *verdict)
{
    bool stale = verdict->decision.verdict != STALE_NOT;
    const enum stale_reason reason = verdict->decision.reason;
    struct store_stale stale_row = {.reason = reason,
                                    .fingerprint = stale ? verdict->state : NULL,
                                    .since_ns = stale ? verdict->since_ns : 0,
                                    .held = stale && verdict->held,
                                    .evidence = verdict->json};

    if (stale && !verdict->file[0] && reason != verdict->reason_before)
        log_info(&(struct log_ids){.volume = verdict->volume_id},
                 "its metadata looks stale but is kept: %s", stale_reason_name(reason));
    if (verdict->file[0])
        return store_note_stale_file(pass->cleanup->context->store, verdict->entry_id,
                                     verdict->file, &stale_row);
    return store_note_stale(pass->cleanup->context->store, verdict->entry_id, &stale_row);
}

/* Only intents have to be on disk before anything else happens. */
static int write_verdicts(struct cleanup_pass *pass)
{
    const struct context *context = pass->cleanup->context;
    bool intends = false;
    int r = 0;

    for (size_t i = 0; r == 0 && i < pass->verdicts; i++) {
        struct verdict *verdict = &pass->verdict[i];
        const struct store_cleanup_intent intent = {
            .reason = verdict->file[0] ? STALE_REASON_DEAD_SANDBOX_FILE : verdict->decision.reason,
            .evidence = verdict->json,
            .fingerprint = verdict->fingerprint,
            .directory = node_trash_path(context->config, verdict->layout),
            .file = verdict->file[0] ? verdict->file : NULL,
            .now_ns = pass->view.now_ns,
        };

        r = is_removable(verdict) ? store_intend_cleanup(context->store, verdict->entry_id, &intent,
                                                         &verdict->cleanup_id)
                                  : note(pass, verdict);
        intends |= verdict->cleanup_id != 0;
    }
    if (r < 0)
        return r;
    return intends ? store_commit_durable(context->store) : store_commit(context->store);
}

/* The rate is counted from now, because the pass may have begun long ago. */
static void take_away(struct cleanup_pass *pass)
{
    struct cleanup *cleanup = pass->cleanup;
    uint64_t now_ns = clock_boottime();
    cleanup(key_queue_done) struct key_queue ids = {0};

    for (size_t i = 0; i < pass->verdicts; i++) {
        if (!pass->verdict[i].cleanup_id)
            continue;
        key_queue_add_number(&ids, (uint64_t)pass->verdict[i].cleanup_id);
        note_removal(cleanup, now_ns);
    }
    if (key_queue_is_empty(&ids))
        return;
    cleanup->trash_wanted = true;
    /* Intents that are only in memory would not be found after a restart. */
    if (store_is_degraded(pass->cleanup->context->store))
        return;
    trash_take(pass->cleanup, &ids);
}

/* ---- deciding ---------------------------------------------------------------------------- */

static enum stale_daemon judge_daemon(const struct cleanup_pass *pass, enum volume_layout layout,
                                      bool database)
{
    struct cleanup *cleanup = pass->cleanup;
    const struct context *context = cleanup->context;
    struct error error = {0};
    struct stat st;

    if (!cleanup->watch_health.well_since_ns ||
        !cleanup->watch_health.root[tree_of_layout(layout)].seen)
        return STALE_DAEMON_SOURCES;
    if (!database)
        return STALE_DAEMON_DATABASE;
    if (context->config->cleanup.mode == CLEANUP_REPORT && (!pass->person || pass->volume_id))
        return STALE_DAEMON_FIT;
    /* The check makes the trash if it is missing, which a dry run must not do. */
    if (pass->dry && path_is_missing(path_stat_in_root(
                         context->root, node_trash_path(context->config, layout), &st)))
        return STALE_DAEMON_FIT;
    if (trash_is_usable(cleanup, layout, &error))
        return STALE_DAEMON_FIT;
    log_warning(NULL, "stale metadata cannot be removed: %s", error.text);
    return STALE_DAEMON_TRASH;
}

/* The layouts of the suspects are not known yet, so both are checked. */
static void observe_sources(struct cleanup_pass *pass)
{
    struct cleanup *cleanup = pass->cleanup;
    const struct context *context = cleanup->context;
    bool database = !database_is_waiting(context->database) && !store_is_degraded(context->store);

    if (database) {
        database = store_begin(context->store) == 0;
        store_rollback(context->store);
    }
    watch_health_check(&cleanup->watch_health);
    pass->view = (struct pass_view){
        .now_ns = clock_boottime(),
        .well_since_ns = cleanup->watch_health.well_since_ns,
        .sees_host = namespaces_show_all_processes(),
        .process_scan = pass->process_scan,
    };
    for (enum volume_layout layout = LAYOUT_KATA; layout <= LAYOUT_CRUST; layout++)
        pass->view.daemon[layout] = judge_daemon(pass, layout, database);
}

static int judge_all(struct cleanup_pass *pass)
{
    uint64_t entry_id;
    int r = 0;

    while (r == 0 && key_queue_take_number(&pass->suspects, &entry_id))
        r = judge(pass, (int64_t)entry_id);
    if (r == 0 && !pass->person)
        r = apply_breaker(pass);
    if (r == 0 && !pass->person)
        apply_rate(pass);
    return r;
}

int cleanup_pass_finish(struct cleanup_pass *pass)
{
    struct store *store = pass->cleanup->context->store;
    int r;

    if (key_queue_is_empty(&pass->suspects)) {
        watch_health_check(&pass->cleanup->watch_health);
        return 0;
    }
    observe_sources(pass);
    if (pass->dry)
        return judge_all(pass);
    r = store_begin(store);
    if (r == 0)
        r = judge_all(pass);
    if (r == 0)
        r = write_verdicts(pass);
    if (r == 0)
        take_away(pass);
    else
        store_rollback(store);
    return r;
}

/* ---- the report -------------------------------------------------------------------------- */

static int append_verdict(struct cleanup_pass *pass, const struct verdict *verdict, bool first,
                          struct buffer *json)
{
    const bool is_stale = verdict->decision.verdict != STALE_NOT;
    const char *decision = is_removable(verdict) ? pass->dry ? "would_remove" : "removing"
                           : is_stale            ? "kept"
                                                 : "not_stale";
    const enum stale_reason reason = verdict->unobserved ? STALE_REASON_NOT_OBSERVED
                                     : !is_stale         ? stale_why_not(&verdict->facts)
                                     : verdict->file[0] && is_removable(verdict)
                                         ? STALE_REASON_DEAD_SANDBOX_FILE
                                         : verdict->decision.reason;
    struct store_suspect suspect = {0};
    char pv[STORE_KEY_BYTES] = "";
    int r = store_get_suspect(pass->cleanup->context->store, verdict->entry_id, &suspect);

    if (r >= 0)
        r = store_get_pv(pass->cleanup->context->store, suspect.volume_id, pv);
    if (r < 0)
        return r;
    buffer_append_format(json, "%s{\"volume_id\":%" PRId64, first ? "" : ",", suspect.volume_id);
    json_append_member(json, "key", suspect.key);
    json_append_member(json, "target_path", suspect.target_path[0] ? suspect.target_path : NULL);
    json_append_member(json, "pv", pv[0] ? pv : NULL);
    json_append_member(json, "decision", decision);
    json_append_member(json, "reason", stale_reason_name(reason));
    json_append_member(json, "waits_for",
                       pass->dry && is_removable(verdict) && verdict->waits_for
                           ? stale_reason_name(verdict->waits_for)
                           : NULL);
    json_append_name(json, "cleanup_id");
    if (verdict->cleanup_id)
        buffer_append_format(json, "%" PRId64, verdict->cleanup_id);
    else
        buffer_append_text(json, "null");
    return buffer_append_format(json, ",\"evidence\":%s}", verdict->json);
}

/* Appends as many verdicts as there is room for, leaving room for the end of the array. */
int cleanup_pass_report(struct cleanup_pass *pass, struct buffer *json)
{
    size_t limit = json->limit;
    bool first = true;
    int r = buffer_append_text(json, "[");

    if (json->limit > ROOM_FOR_END)
        json->limit -= ROOM_FOR_END;
    for (size_t i = 0; r == 0 && i < pass->verdicts; i++) {
        struct buffer_mark before = buffer_mark(json);

        if (pass->verdict[i].decision.verdict == STALE_NOT &&
            (!pass->volume_id || pass->verdict[i].file[0]))
            continue;
        r = append_verdict(pass, &pass->verdict[i], first, json);
        if (r < 0)
            buffer_rewind(json, before);
        first = false;
    }
    json->limit = limit;
    return r < 0 && r != BUFFER_FULL ? r : buffer_append_text(json, "]");
}

uint64_t cleanup_pass_wake(const struct cleanup_pass *pass)
{
    return pass->wake_ns;
}
