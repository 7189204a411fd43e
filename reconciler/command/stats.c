/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - a guest asked for the size of a file system: for a client, and in turn for the record.
 *
 * The routes are those of a resize, in the same order (agent-client/guest_call.h), but all of them
 * are tried: an agent that cannot grow can often count. Nothing is changed, so a question needs no
 * pass and no slot of its sandbox. Each costs a connection and some memory until the guest answers
 * or its time is over, so their number is bounded, in total and per sandbox, so that a guest that
 * hangs does not use up all of them.
 *
 * For a client, the tool of the volume's runtime is asked before the guest, if it is named and may
 * be run.
 *
 * No schedule is kept of the polls. Time is divided into periods of guest.stats_seconds, shifted
 * for each binding by a hash of its number. A volume is due when the start of a period has passed
 * since the timer ran last. So restarts, reloads and volumes that come or go need no special case.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/log.h"
#include "lib/process.h"
#include "reconciler/command/runtime_cli.h"
#include "reconciler/core/reconciler_internal.h"
#include "reconciler/helper/helper.h"

enum { AT_ONCE = 64, PER_SANDBOX = 8, TICKS_PER_PERIOD = 64, BACKOFF_MOST = 5 };
static const uint64_t TICK_LEAST_NS = 250 * NSEC_PER_MSEC;
static const uint64_t TICK_MOST_NS = 5 * NSEC_PER_SEC;

struct stats_call {
    struct stats_call *next;
    struct reconciler *reconciler;
    struct store_volume volume;
    char shim_socket[GUEST_ADDRESS_BYTES];
    struct guest_call *guest;
    struct runtime_cli_run *cli;
    struct loop_timer deferred;  /* an answer that needs nobody else */
    reconciler_stats_done *done; /* NULL: a poll, whose answer is recorded */
    void *userdata;
    uint64_t asked_ns; /* of a poll */
};

struct stats_call *reconciler_stats_cancel(struct stats_call *call)
{
    if (!call)
        return NULL;
    LL_DELETE(call->reconciler->stats, call);
    (void)guest_call_free(call->guest);
    (void)runtime_cli_free(call->cli);
    loop_timer_stop(&call->deferred);
    free(call);
    return NULL;
}

void stats_done(struct reconciler *reconciler)
{
    while (reconciler->stats)
        (void)reconciler_stats_cancel(reconciler->stats);
    loop_timer_stop(&reconciler->stats_poll.timer);
    slots_done(&reconciler->stats_poll.slots);
    key_queue_done(&reconciler->stats_poll.due);
}

/* The condition is a sentence for whoever reads the pod's volume health, and the words to search
 * for. */
static void describe(const struct store_volume *volume, const struct guest_reply *reply,
                     struct reconciler_stats *ret_stats)
{
    const struct agent_stats *from = &reply->stats;
    const uint64_t age_seconds = reply->age_ns / NSEC_PER_SEC;
    const struct explanation *text = reason_explain(volume->reason, volume->state);
    char *condition = ret_stats->condition;
    const size_t size = sizeof(ret_stats->condition);
    bool is_held_up = volume->state == STATE_BLOCKED || volume->state == STATE_SHRUNK;

    *ret_stats = (struct reconciler_stats){
        .has_bytes = from->has_bytes,
        .has_inodes = from->has_inodes,
        .total = from->total,
        .used = from->used,
        .available = from->available,
        .total_inodes = from->total_inodes,
        .used_inodes = from->used_inodes,
        .available_inodes = from->available_inodes,
        .abnormal = is_held_up || from->abnormal,
    };
    if (!text)
        text = state_explain(volume->state);
    if (from->abnormal && !is_held_up)
        (void)snprintf(condition, size, "the guest says: %s",
                       from->condition[0] ? from->condition : "abnormal");
    else if (volume->state == STATE_IN_SYNC && volume->reason == REASON_NONE)
        (void)snprintf(condition, size, "%s",
                       volume->grows_file_system ? "the file system fills its device"
                                                 : "the VM's disk has the size of the device");
    else
        (void)snprintf(condition, size, "%s (%s/%s)", text ? text->meaning : "",
                       state_name(volume->state), reason_name(volume->reason));
    if (age_seconds > 0)
        (void)snprintf(condition + strlen(condition), size - strlen(condition),
                       "; the guest was read %" PRIu64 " s ago", age_seconds);
}

static void finish_poll(struct stats_call *call, const struct guest_reply *reply,
                        const struct error *error);

static void finish(struct stats_call *call, const struct guest_reply *reply)
{
    const struct store_volume *asked = &call->volume;
    struct reconciler_stats stats;
    struct store_volume now;
    struct error error;
    enum status_code code = STATUS_OK;

    if (reply->reason == REASON_NONE) {
        describe(asked, reply, &stats);
    } else if (process_has_ended(asked->vmm_pid, asked->vmm_start_ns) == 1 ||
               (store_get_volume(call->reconciler->context.store, asked->volume_id, &now) == 0 &&
                now.sandbox_ref != asked->sandbox_ref)) { /* its end may not be on record yet */
        code = answer_refuse(&error, ANSWER_NO_SANDBOX,
                             "the volume's sandbox ended while it was asked");
    } else {
        code = reason_code(reply->reason, STATE_BLOCK_GROWN);
        (void)error_set(&error, 0, "%s: %s", reason_name(reply->reason), reply->error.text);
    }
    if (!call->done) {
        finish_poll(call, code == STATUS_OK ? reply : NULL, &error);
        return;
    }
    call->done(call->userdata, code, code == STATUS_OK ? &stats : NULL,
               code == STATUS_OK ? NULL : &error);
    (void)reconciler_stats_cancel(call);
}

static bool is_helper_possible(void *userdata)
{
    const struct stats_call *call = userdata;

    return helper_is_possible(call->reconciler->context.config, &call->volume);
}

static int begin_helper(void *userdata, uint64_t allowed_ns, guest_helper_done *done,
                        void *done_userdata, struct helper_call **ret_call)
{
    struct stats_call *call = userdata;

    return helper_call_new(call->reconciler->context.helpers, &call->volume, HELPER_STATS,
                           allowed_ns, done, done_userdata, ret_call);
}

static const struct guest_helper_ops helper_ops = {
    .is_possible = is_helper_possible,
    .begin = begin_helper,
    .free = helper_call_free,
};

static void on_guest(struct guest_call *guest, const struct guest_reply *reply, void *userdata)
{
    struct stats_call *call = userdata;

    (void)guest;
    finish(call, reply);
}

static enum status_code begin(struct stats_call *call, struct error *error);

/* If the tool was of no help, the guest is asked. */
static void on_cli(const struct runtime_cli_answer *answer, void *userdata)
{
    struct stats_call *call = userdata;
    struct error error = {0};
    enum status_code code;

    call->cli = runtime_cli_free(call->cli);
    if (answer) {
        finish(call, &(struct guest_reply){.stats = answer->stats});
        return;
    }
    code = begin(call, &error);
    if (code == STATUS_OK)
        return;
    call->done(call->userdata, code, NULL, &error);
    (void)reconciler_stats_cancel(call);
}

/* What is known without the guest: the size of a raw disk. */
static void on_deferred(struct loop_timer *timer)
{
    struct stats_call *call = container_of(timer, struct stats_call, deferred);
    const uint64_t bytes = call->volume.grows_file_system ? 0 : call->volume.hypervisor_bytes;

    finish(call, &(struct guest_reply){.stats = {.has_bytes = bytes > 0, .total = bytes}});
}

static enum status_code begin(struct stats_call *call, struct error *error)
{
    const struct store_volume *volume = &call->volume;
    const struct context *context = &call->reconciler->context;
    /* The guest then has another directory in the volume's place, or none, and cannot report its
     * usage, unless another container has the volume itself. */
    const bool is_bypassed = volume->state == STATE_BLOCKED && volume->reason == REASON_BYPASSED &&
                             !(volume->sandbox_ref && volume->bypassed);
    struct guest_request request;

    if (!is_bypassed && volume->live_sandboxes > 1)
        return error_set(error, (int)reason_code(REASON_MULTIPLE_SANDBOXES, STATE_BLOCKED),
                         "more than one live sandbox uses the volume");
    if (!is_bypassed && !volume->sandbox_ref)
        return answer_refuse(error, ANSWER_NO_SANDBOX, "no sandbox uses the volume yet");
    if (is_bypassed || !volume->grows_file_system) {
        loop_timer_start(context->loop, &call->deferred, 0, on_deferred);
        return STATUS_OK;
    }
    guest_routes_describe(context, &call->volume, call->shim_socket, &request);
    request.helper = &helper_ops;
    request.owner = call;
    request.ends_at =
        clock_boottime() + context->config->resize.call_timeout_seconds * NSEC_PER_SEC;
    return guest_call_new(context->loop, &request, on_guest, call, &call->guest) < 0
               ? answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory")
               : STATUS_OK;
}

/* The call is in the list already. */
static enum status_code check_room(const struct stats_call *call, struct error *error)
{
    unsigned all = 0, of_sandbox = 0;

    for (const struct stats_call *one = call->reconciler->stats; one; one = one->next) {
        all++;
        of_sandbox +=
            one->volume.sandbox_ref && one->volume.sandbox_ref == call->volume.sandbox_ref;
    }
    if (of_sandbox > PER_SANDBOX)
        return answer_refuse(error, ANSWER_BUSY,
                             "the volume's sandbox has %d such calls to answer already",
                             PER_SANDBOX);
    if (all > AT_ONCE)
        return answer_refuse(error, ANSWER_BUSY, "%d such calls wait for guests already", AT_ONCE);
    return STATUS_OK;
}

static struct stats_call *call_new(struct reconciler *reconciler)
{
    struct stats_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    call->reconciler = reconciler;
    LL_PREPEND(reconciler->stats, call);
    return call;
}

enum status_code reconciler_ask_stats(struct reconciler *reconciler,
                                      const struct reconciler_target *target,
                                      reconciler_stats_done *done, void *userdata,
                                      struct stats_call **ret_call, struct error *error)
{
    struct stats_call *call;
    int64_t volume_id = 0;
    enum status_code code =
        find_volume(reconciler, target, ANSWER_UNKNOWN_TO_STATS, &volume_id, error);

    if (code != STATUS_OK)
        return code;
    call = call_new(reconciler);
    if (!call)
        return answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
    call->done = done;
    call->userdata = userdata;
    if (store_get_volume(reconciler->context.store, volume_id, &call->volume) != 0)
        code = answer_database_fails(reconciler->context.store, error);
    if (code == STATUS_OK)
        code = check_room(call, error);
    /* The tool of the volume's runtime, if the client named the volume by its path. Of a barred
     * volume, it would count what is not this volume. */
    if (code == STATUS_OK &&
        !(target->target_path && !call->volume.is_block_claim && !expand_is_barred(&call->volume) &&
          runtime_cli_try(&reconciler->context,
                          (struct runtime_cli_question){.volume_id = volume_id,
                                                        .target_path = target->target_path},
                          on_cli, call, &call->cli)))
        code = begin(call, error);
    if (code != STATUS_OK)
        (void)reconciler_stats_cancel(call);
    else
        *ret_call = call;
    return code;
}

/* ---- polls ---------------------------------------------------------------------------------- */

static uint64_t period_of(const struct reconciler *reconciler)
{
    return reconciler->context.config->guest.stats_seconds * NSEC_PER_SEC;
}

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

/* The answer may have been given to somebody else before: then it is older than the question. */
static int record(const struct stats_call *call, const struct guest_reply *reply)
{
    const struct agent_stats *stats = &reply->stats;
    const uint64_t asked_ns = clock_boottime() - call->asked_ns;
    const uint64_t age_ns = reply->age_ns > asked_ns ? reply->age_ns : asked_ns;
    const struct store_guest_stats guest = {
        .binding_id = call->volume.binding_id,
        .has_bytes = stats->has_bytes,
        .total = stats->total,
        .used = stats->used,
        .available = stats->available,
        .abnormal = stats->abnormal,
        .message = stats->condition,
        .age_ms = (int64_t)(age_ns / NSEC_PER_MSEC),
    };
    const struct log_ids ids = {.volume = call->volume.volume_id,
                                .sandbox = call->volume.sandbox_id};
    bool changed = false;
    int r = store_put_guest_stats(call->reconciler->context.store, call->volume.volume_id, &guest,
                                  &changed);

    if (changed && stats->abnormal)
        log_warning(&ids, "the guest says that the volume's file system is abnormal: %s",
                    stats->condition);
    else if (changed)
        log_info(&ids, "the guest says that the volume's file system is normal again");
    return r;
}

/* reply: NULL if the guest was not read, and the error says why. The passes report a store that
 * fails. */
static void end_poll(struct stats_call *call, const struct guest_reply *reply,
                     const struct error *error)
{
    const struct store_volume *volume = &call->volume;
    struct store *store = call->reconciler->context.store;
    int r = store_begin(store);

    if (!reply)
        log_debug(&(struct log_ids){.volume = volume->volume_id, .sandbox = volume->sandbox_id},
                  "the guest was not read: %s", error->text);
    if (r == 0)
        (void)store_end(store, reply ? record(call, reply)
                                     : store_note_guest_silent(store, volume->volume_id));
    slots_leave(&call->reconciler->stats_poll.slots, volume->sandbox_ref);
    (void)reconciler_stats_cancel(call);
}

/* It may have changed while it waited for its sandbox: then it waits for its next moment. */
static void begin_one(struct reconciler *reconciler, int64_t volume_id)
{
    struct stats_poll *poll = &reconciler->stats_poll;
    struct store_volume volume;
    struct stats_call *call;
    struct error error = {0};

    for (const struct stats_call *one = reconciler->stats; one; one = one->next)
        if (!one->done && one->volume.volume_id == volume_id)
            return; /* its next moment came before its answer */
    /* It is not asked if crustd has to leave the volume alone, nor if the VM lacks the volume's
     * device, because the guest would report another file system. */
    if (store_get_volume(reconciler->context.store, volume_id, &volume) != 0 ||
        !volume.binding_id || !volume.sandbox_ref || !volume.grows_file_system ||
        volume.state == STATE_UNMANAGED || volume.state == STATE_DETACHED ||
        volume.reason == REASON_BYPASSED ||
        !slots_enter(&poll->slots, volume.sandbox_ref, volume_id, false))
        return;
    call = call_new(reconciler);
    if (!call) {
        slots_leave(&poll->slots, volume.sandbox_ref);
        return;
    }
    call->volume = volume;
    call->asked_ns = clock_boottime();
    if (check_room(call, &error) != STATUS_OK || begin(call, &error) != STATUS_OK)
        end_poll(call, NULL, &error);
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

static void finish_poll(struct stats_call *call, const struct guest_reply *reply,
                        const struct error *error)
{
    struct reconciler *reconciler = call->reconciler;

    end_poll(call, reply, error);
    begin_all(reconciler);
}

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
