/* SPDX-License-Identifier: Apache-2.0 */
/* stats_poll.c - see clients.h.
 *
 * No schedule is kept. Time is divided into periods of guest.stats_seconds, shifted for each
 * binding by a hash of its number. A volume is due when the start of a period has passed since the
 * timer ran last. So restarts, reloads and volumes that come or go need no special case.
 */

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/log.h"
#include "reconciler/core/reconciler_internal.h"

enum { TICKS_PER_PERIOD = 64, BACKOFF_MOST = 5 };
static const uint64_t TICK_LEAST_NS = 250 * NSEC_PER_MSEC;
static const uint64_t TICK_MOST_NS = 5 * NSEC_PER_SEC;

struct stats_question {
    struct stats_question *next;
    struct reconciler *reconciler;
    int64_t volume_id, sandbox_ref;
    struct stats_call *call;
    uint64_t asked_ns;
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
};

static uint64_t period_of(const struct reconciler *reconciler)
{
    return reconciler->context.config->guest.stats_seconds * NSEC_PER_SEC;
}

/* ---- which volumes are due ---- */

/* How many of the binding's moments had come by then. Knuth's multiplicative hash shifts them, so
 * that neighbours come to lie far from each other. */
static uint64_t moments_until(uint64_t ns, int64_t binding_id, uint64_t period_ns)
{
    const uint32_t hash = (uint32_t)binding_id * UINT32_C(2654435761);
    const uint64_t shift_ns = (period_ns >> 16) * (hash >> 16);

    return (ns + period_ns - shift_ns) / period_ns;
}

bool stats_poll_is_moment(const struct stats_span *span, int64_t binding_id, uint32_t failures)
{
    const uint64_t number = moments_until(span->to_ns, binding_id, span->period_ns);
    const unsigned skipped = failures < BACKOFF_MOST ? failures : BACKOFF_MOST;

    return number != moments_until(span->from_ns, binding_id, span->period_ns) &&
           number % (UINT64_C(1) << skipped) == 0;
}

struct moment {
    struct key_queue *due;
    struct stats_span span;
};

static int queue_if_due(void *userdata, int64_t volume_id, int64_t binding_id, uint32_t failures)
{
    const struct moment *moment = userdata;

    if (stats_poll_is_moment(&moment->span, binding_id, failures))
        key_queue_add_number(moment->due, (uint64_t)volume_id);
    return 0;
}

/* ---- one question ---- */

/* The answer may have been given to somebody else before: then it is older than the question. */
static int record(const struct stats_question *question, const struct reconciler_stats *stats)
{
    const int64_t asked_ms = (int64_t)((clock_boottime() - question->asked_ns) / NSEC_PER_MSEC);
    const struct store_guest_stats guest = {
        .binding_id = stats->binding_id,
        .has_bytes = stats->has_bytes,
        .total = stats->total,
        .used = stats->used,
        .available = stats->available,
        .abnormal = stats->guest_abnormal,
        .message = stats->guest_condition,
        .age_ms = (int64_t)stats->age_ms > asked_ms ? (int64_t)stats->age_ms : asked_ms,
    };
    const struct log_ids ids = {.volume = question->volume_id, .sandbox = question->sandbox_id};
    bool changed = false;
    int r = store_put_guest_stats(question->reconciler->context.store, question->volume_id, &guest,
                                  &changed);

    if (changed && stats->guest_abnormal)
        log_warning(&ids, "the guest says that the volume's file system is abnormal: %s",
                    stats->guest_condition);
    else if (changed)
        log_info(&ids, "the guest says that the volume's file system is normal again");
    return r;
}

/* stats: NULL if the guest was not read, and the error says why. The passes report a store that
 * fails. */
static void end_question(struct stats_question *question, const struct reconciler_stats *stats,
                         const struct error *error)
{
    struct stats_poll *poll = &question->reconciler->stats_poll;
    struct store *store = question->reconciler->context.store;
    int r = store_begin(store);

    if (!stats)
        log_debug(&(struct log_ids){.volume = question->volume_id, .sandbox = question->sandbox_id},
                  "the guest was not read: %s", error->text);
    if (r == 0)
        (void)store_end(store, stats ? record(question, stats)
                                     : store_note_guest_silent(store, question->volume_id));
    slots_leave(&poll->slots, question->sandbox_ref);
    LL_DELETE(poll->questions, question);
    free(question);
}

static void begin_all(struct reconciler *reconciler);

static void on_counted(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                       const struct error *error)
{
    struct stats_question *question = userdata;
    struct reconciler *reconciler = question->reconciler;

    end_question(question, code == STATUS_OK ? stats : NULL, error);
    begin_all(reconciler);
}

static void ask(struct reconciler *reconciler, const struct store_volume *volume)
{
    struct stats_poll *poll = &reconciler->stats_poll;
    const struct reconciler_target target = {.volume_id = volume->volume_id};
    struct stats_question *question = calloc(1, sizeof(*question));
    struct error error = {0};

    if (!question) {
        slots_leave(&poll->slots, volume->sandbox_ref);
        return;
    }
    question->reconciler = reconciler;
    question->volume_id = volume->volume_id;
    question->sandbox_ref = volume->sandbox_ref;
    memcpy(question->sandbox_id, volume->sandbox_id, sizeof(question->sandbox_id));
    question->asked_ns = clock_boottime();
    LL_PREPEND(poll->questions, question);
    if (reconciler_ask_stats(reconciler, &target, on_counted, question, &question->call, &error) !=
        STATUS_OK)
        end_question(question, NULL, &error);
}

/* Whether its guest is to be asked: not if crustd has to leave the volume alone, nor if the VM
 * lacks the volume's device, because the guest would report another file system. */
static bool may_ask(const struct store_volume *volume)
{
    return volume->binding_id && volume->sandbox_ref && volume->grows_file_system &&
           volume->state != STATE_UNMANAGED && volume->state != STATE_DETACHED &&
           volume->reason != REASON_BYPASSED;
}

/* It may have changed while it waited for its sandbox: then it waits for its next moment. */
static void begin_one(struct reconciler *reconciler, int64_t volume_id)
{
    struct stats_poll *poll = &reconciler->stats_poll;
    struct store_volume volume;

    for (const struct stats_question *one = poll->questions; one; one = one->next)
        if (one->volume_id == volume_id)
            return; /* its next moment came before its answer */
    if (store_get_volume(reconciler->context.store, volume_id, &volume) == 0 && may_ask(&volume) &&
        slots_enter(&poll->slots, volume.sandbox_ref, volume_id, false))
        ask(reconciler, &volume);
}

static void begin_all(struct reconciler *reconciler)
{
    struct stats_poll *poll = &reconciler->stats_poll;
    int64_t volume_id;
    uint64_t number;

    if (reconciler->context.stopping)
        return;
    while (slots_next(&poll->slots, &volume_id))
        begin_one(reconciler, volume_id);
    while (poll->slots.busy < STATS_POLLS && key_queue_take_number(&poll->due, &number))
        begin_one(reconciler, (int64_t)number);
}

/* ---- time ---- */

static void on_timer(struct loop_timer *timer);

static void wait_for_tick(struct reconciler *reconciler)
{
    uint64_t tick = period_of(reconciler) / TICKS_PER_PERIOD;

    if (tick < TICK_LEAST_NS)
        tick = TICK_LEAST_NS;
    loop_timer_start(reconciler->context.loop, &reconciler->stats_poll.timer,
                     tick < TICK_MOST_NS ? tick : TICK_MOST_NS, on_timer);
}

static void on_timer(struct loop_timer *timer)
{
    struct reconciler *reconciler = container_of(timer, struct reconciler, stats_poll.timer);
    struct stats_poll *poll = &reconciler->stats_poll;
    struct moment moment = {&poll->due, {poll->polled_ns, clock_boottime(), period_of(reconciler)}};

    if (reconciler->context.stopping || !moment.span.period_ns)
        return;
    if (reconciler->context.synced) {
        (void)store_each_guest(reconciler->context.store, queue_if_due, &moment);
        begin_all(reconciler);
    }
    poll->polled_ns = moment.span.to_ns;
    wait_for_tick(reconciler);
}

void stats_poll_start(struct reconciler *reconciler)
{
    struct stats_poll *poll = &reconciler->stats_poll;

    poll->slots.parallel = STATS_POLLS;
    if (!loop_timer_is_active(&poll->timer)) /* polls that came due while it was off are skipped */
        poll->polled_ns = clock_boottime();
    wait_for_tick(reconciler);
}

void stats_poll_done(struct reconciler *reconciler)
{
    struct stats_poll *poll = &reconciler->stats_poll;
    struct stats_question *question, *next;

    loop_timer_stop(&poll->timer);
    LL_FOREACH_SAFE(poll->questions, question, next)
    {
        (void)reconciler_stats_cancel(question->call);
        free(question);
    }
    slots_done(&poll->slots);
    key_queue_done(&poll->due);
}
