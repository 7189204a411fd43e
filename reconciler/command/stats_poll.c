/* SPDX-License-Identifier: Apache-2.0 */
/* stats_poll.c - see stats_poll.h.
 *
 * No schedule is kept. Time is divided into periods of guest.stats_seconds, shifted for each
 * binding by a hash of its number. A volume is due when the start of a period has passed since the
 * timer ran last. So restarts, reloads and volumes that come or go need no special case.
 */
#include "reconciler/command/stats_poll.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/list.h"
#include "lib/log.h"
#include "lib/loop.h"
#include "model/reason.h"
#include "reconciler/act/slots.h"
#include "reconciler/command/clients.h"
#include "reconciler/core/context.h"
#include "store/store.h"

enum { TICKS_PER_PERIOD = 64, BACKOFF_MOST = 5 };
static const uint64_t TICK_LEAST_NS = 250 * NSEC_PER_MSEC;
static const uint64_t TICK_MOST_NS = 5 * NSEC_PER_SEC;

struct stats_poll {
    const struct context *context;
    struct clients *clients;
    bool begun, stopping;
    struct loop_timer timer;
    uint64_t polled_ns;   /* whose moment came until then has been asked */
    struct key_queue due; /* volume ids */
    struct slots slots;
    struct stats_question *asked;
    struct stats_question *answered; /* to be recorded */
    bool record;                     /* now */
};

struct stats_question {
    struct stats_question *next;
    struct stats_poll *poll;
    int64_t volume_id, sandbox_ref;
    struct stats_call *call; /* NULL: it has ended */
    uint64_t read_ns;        /* the guest was not read earlier */
    bool answered;           /* by the guest */
    struct reconciler_stats stats;
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
};

static uint64_t period_of(const struct stats_poll *poll)
{
    return poll->context->config->guest.stats_seconds * NSEC_PER_SEC;
}

/* ---- which volumes are due ---- */

/* Knuth's multiplicative hash: neighbours come to lie far from each other. */
static uint64_t shift_of(int64_t binding_id, uint64_t period_ns)
{
    const uint32_t hash = (uint32_t)binding_id * UINT32_C(2654435761);

    return (period_ns >> 16) * (hash >> 16);
}

/* How many of its moments had come by then. */
static uint64_t moments_until(uint64_t ns, int64_t binding_id, uint64_t period_ns)
{
    return (ns + period_ns - shift_of(binding_id, period_ns)) / period_ns;
}

bool stats_poll_is_moment(const struct stats_span *span, int64_t binding_id, uint32_t failures)
{
    const uint64_t number = moments_until(span->to_ns, binding_id, span->period_ns);
    const unsigned skipped = failures < BACKOFF_MOST ? failures : BACKOFF_MOST;

    return number != moments_until(span->from_ns, binding_id, span->period_ns) &&
           number % (UINT64_C(1) << skipped) == 0;
}

struct moment {
    struct stats_poll *poll;
    struct stats_span span;
};

static int queue_if_due(void *userdata, int64_t volume_id, int64_t binding_id, uint32_t failures)
{
    const struct moment *moment = userdata;

    if (stats_poll_is_moment(&moment->span, binding_id, failures))
        key_queue_add_number(&moment->poll->due, (uint64_t)volume_id);
    return 0;
}

/* ---- one question ---- */

static void begin_all(struct stats_poll *poll);

static void end_question(struct stats_question *question)
{
    struct stats_poll *poll = question->poll;

    LL_DELETE(poll->asked, question);
    question->call = NULL;
    question->next = poll->answered;
    poll->answered = question;
    slots_leave(&poll->slots, question->sandbox_ref);
}

/* An answer that somebody else was given before is older than the question. */
static void keep_answer(struct stats_question *question, const struct reconciler_stats *stats)
{
    const uint64_t read_ns = clock_boottime() - stats->age_ms * NSEC_PER_MSEC;

    question->stats = *stats;
    if (read_ns < question->read_ns)
        question->read_ns = read_ns;
}

static void on_counted(void *userdata, enum status_code code, const struct reconciler_stats *stats,
                       const struct error *error)
{
    struct stats_question *question = userdata;
    struct stats_poll *poll = question->poll;

    question->answered = code == STATUS_OK;
    if (question->answered)
        keep_answer(question, stats);
    else
        log_debug(&(struct log_ids){.volume = question->volume_id, .sandbox = question->sandbox_id},
                  "the guest was not read: %s", error->text);
    end_question(question);
    begin_all(poll);
}

static void ask(struct stats_poll *poll, const struct store_volume *volume)
{
    const struct reconciler_target target = {.volume_id = volume->volume_id};
    struct stats_question *question = calloc(1, sizeof(*question));
    struct error error = {0};

    if (!question) {
        slots_leave(&poll->slots, volume->sandbox_ref);
        return;
    }
    question->poll = poll;
    question->volume_id = volume->volume_id;
    question->sandbox_ref = volume->sandbox_ref;
    memcpy(question->sandbox_id, volume->sandbox_id, sizeof(question->sandbox_id));
    question->read_ns = clock_boottime();
    question->next = poll->asked;
    poll->asked = question;
    if (stats_begin(poll->clients, &target, on_counted, question, &question->call, &error) ==
        STATUS_OK)
        return;
    log_debug(&(struct log_ids){.volume = volume->volume_id, .sandbox = volume->sandbox_id},
              "the guest was not asked: %s", error.text);
    end_question(question);
}

/* Its next moment may come before its answer. */
static bool is_asked(const struct stats_poll *poll, int64_t volume_id)
{
    const struct stats_question *question = poll->asked;

    while (question && question->volume_id != volume_id)
        question = question->next;
    return question != NULL;
}

/* Whether its guest is to be asked: not if crustd has to leave the volume alone, nor if the VM
 * lacks the volume's device, because the guest would report another file system. */
static bool may_ask(const struct store_volume *volume)
{
    return volume->binding_id && volume->sandbox_ref && volume->state != STATE_UNMANAGED &&
           volume->state != STATE_DETACHED && volume->reason != REASON_BYPASSED;
}

/* It may have changed while it waited for its sandbox: then it waits for its next moment. */
static void begin_one(struct stats_poll *poll, int64_t volume_id)
{
    struct store_volume volume;

    if (is_asked(poll, volume_id))
        return;
    if (store_get_volume(poll->context->store, volume_id, &volume) != 0 || !may_ask(&volume))
        return;
    if (slots_enter(&poll->slots, volume.sandbox_ref, volume_id))
        ask(poll, &volume);
}

static void begin_all(struct stats_poll *poll)
{
    int64_t volume_id;
    uint64_t number;

    if (poll->stopping)
        return;
    while (slots_next(&poll->slots, &volume_id))
        begin_one(poll, volume_id);
    while (poll->slots.busy < poll->slots.parallel && key_queue_take_number(&poll->due, &number))
        begin_one(poll, (int64_t)number);
}

/* ---- the results ---- */

static void log_condition(const struct stats_question *question)
{
    const struct log_ids ids = {.volume = question->volume_id, .sandbox = question->sandbox_id};

    if (question->stats.guest_abnormal)
        log_warning(&ids, "the guest says that the volume's file system is abnormal: %s",
                    question->stats.guest_condition);
    else
        log_info(&ids, "the guest says that the volume's file system is normal again");
}

static int record_one(struct store *store, const struct stats_question *question)
{
    const struct reconciler_stats *stats = &question->stats;
    const struct store_guest_stats guest = {
        .binding_id = stats->binding_id,
        .has_bytes = stats->has_bytes,
        .total = stats->total,
        .used = stats->used,
        .available = stats->available,
        .abnormal = stats->guest_abnormal,
        .message = stats->guest_condition,
        .age_ms = (int64_t)((clock_boottime() - question->read_ns) / NSEC_PER_MSEC),
    };
    bool changed = false;
    int r;

    if (!question->answered)
        return store_note_guest_silent(store, question->volume_id);
    r = store_put_guest_stats(store, question->volume_id, &guest, &changed);
    if (changed)
        log_condition(question);
    return r;
}

bool stats_poll_is_due(const struct stats_poll *poll)
{
    return poll->record;
}

/* Results that a rolled-back pass recorded are lost; the next poll asks again. */
int stats_poll_record(struct stats_poll *poll)
{
    int r = 0;

    poll->record = false;
    while (poll->answered) {
        struct stats_question *question = poll->answered;

        poll->answered = question->next;
        if (r == 0)
            r = record_one(poll->context->store, question);
        free(question);
    }
    return r;
}

/* ---- time ---- */

static void on_timer(struct loop_timer *timer);

static void wait_for_tick(struct stats_poll *poll)
{
    uint64_t tick = period_of(poll) / TICKS_PER_PERIOD;

    if (tick < TICK_LEAST_NS)
        tick = TICK_LEAST_NS;
    loop_timer_start(poll->context->loop, &poll->timer, tick < TICK_MOST_NS ? tick : TICK_MOST_NS,
                     on_timer);
}

/* The passes report a store that fails. */
static void on_timer(struct loop_timer *timer)
{
    struct stats_poll *poll = container_of(timer, struct stats_poll, timer);
    struct moment moment = {poll, {poll->polled_ns, clock_boottime(), period_of(poll)}};

    poll->record = poll->answered != NULL;
    if (poll->stopping || !moment.span.period_ns)
        return;
    if (poll->begun) {
        (void)store_each_guest(poll->context->store, queue_if_due, &moment);
        begin_all(poll);
    }
    poll->polled_ns = moment.span.to_ns;
    wait_for_tick(poll);
}

struct stats_poll *stats_poll_new(const struct context *context, struct clients *clients)
{
    struct stats_poll *poll = calloc(1, sizeof(*poll));

    if (!poll)
        return NULL;
    poll->context = context;
    poll->clients = clients;
    slots_init(&poll->slots, STATS_POLLS);
    return poll;
}

void stats_poll_begin(struct stats_poll *poll)
{
    poll->begun = true;
}

void stats_poll_start(struct stats_poll *poll)
{
    if (!loop_timer_is_active(&poll->timer)) /* polls that came due while it was off are skipped */
        poll->polled_ns = clock_boottime();
    wait_for_tick(poll);
}

void stats_poll_stop(struct stats_poll *poll)
{
    poll->stopping = true;
}

static void free_questions(struct stats_question **list)
{
    while (*list) {
        struct stats_question *question = *list;

        *list = question->next;
        (void)reconciler_stats_cancel(question->call);
        free(question);
    }
}

void stats_poll_reset(struct stats_poll *poll)
{
    free_questions(&poll->asked);
    free_questions(&poll->answered);
    poll->begun = poll->record = false;
    slots_done(&poll->slots);
    key_queue_done(&poll->due);
}

struct stats_poll *stats_poll_free(struct stats_poll *poll)
{
    if (!poll)
        return NULL;
    loop_timer_stop(&poll->timer);
    stats_poll_reset(poll);
    free(poll);
    return NULL;
}
