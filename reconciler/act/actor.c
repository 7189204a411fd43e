/* SPDX-License-Identifier: Apache-2.0 */
/* actor.c - the acts that are decided, running and answered, with their slots, deadlines and
 * records. */
#include "reconciler/act/actor.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "config/config.h"
#include "lib/child.h"
#include "lib/clock.h"
#include "lib/list.h"
#include "lib/log.h"
#include "reconciler/act/act.h"
#include "reconciler/act/slots.h"
#include "reconciler/core/context.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/decide/decide.h"

struct actor {
    const struct context *context;
    struct helpers *helpers;
    struct slots slots;
    struct act *decided; /* in this pass, latest first: to run once it is committed */
    struct act *running;
    struct act *finished; /* their results are recorded by the next pass */
};

static const struct act_ops *ops_of(const struct act *act)
{
    if (act->action == ACTION_RESCAN_DISK)
        return &act_rescan_ops;
    return act->action == ACTION_RESIZE_GUEST ? &act_guest_ops : &act_hypervisor_ops;
}

/* ---- lists ---- */

static void push(struct act **list, struct act *act)
{
    act->next = *list;
    *list = act;
}

static struct act *pop(struct act **list)
{
    struct act *act = *list;

    if (act)
        *list = act->next;
    return act;
}

static void act_free(struct act *act)
{
    ops_of(act)->done(act);
    slots_leave(&act->actor->slots, act->volume.sandbox_ref);
    free(act);
}

static void free_list(struct act **list)
{
    struct act *act;

    while ((act = pop(list)))
        act_free(act);
}

static bool is_in(const struct act *list, int64_t volume_id)
{
    while (list && list->volume.volume_id != volume_id)
        list = list->next;
    return list != NULL;
}

/* ---- life ---- */

struct actor *actor_new(const struct context *context, struct helpers *helpers)
{
    struct actor *actor = calloc(1, sizeof(*actor));

    if (!actor)
        return NULL;
    actor->context = context;
    actor->helpers = helpers;
    slots_init(&actor->slots, context->config->resize.parallel);
    return actor;
}

void actor_reset(struct actor *actor)
{
    free_list(&actor->decided);
    free_list(&actor->running);
    free_list(&actor->finished);
    slots_done(&actor->slots);
}

struct actor *actor_free(struct actor *actor)
{
    if (!actor)
        return NULL;
    actor_reset(actor);
    free(actor);
    return NULL;
}

void actor_set_parallel(struct actor *actor, unsigned parallel)
{
    actor->slots.parallel = parallel;
}

/* ---- decided ---- */

static struct act *act_new(struct actor *actor, const struct store_volume *volume,
                           enum decide_action action)
{
    struct act *act = malloc(sizeof(*act));

    if (!act)
        return NULL;
    memset(act, 0, offsetof(struct act, volume));
    act->actor = actor;
    act->context = actor->context;
    act->action = action;
    store_volume_copy(&act->volume, volume);
    push(&actor->decided, act);
    return act;
}

/* One helper grows the file systems of all volumes of a sandbox, after its VMM has all their sizes.
 */
static bool enter(struct actor *actor, const struct store_volume *volume, enum decide_action action)
{
    return action == ACTION_RESIZE_GUEST
               ? slots_enter(&actor->slots, volume->sandbox_ref, volume->volume_id)
               : slots_enter_first(&actor->slots, volume->sandbox_ref, volume->volume_id);
}

int actor_decide(struct actor *actor, const struct store_volume *volume, enum decide_action action)
{
    struct act *act;

    if (actor_is_acting(actor, volume->volume_id) || !enter(actor, volume, action))
        return 0;
    act = act_new(actor, volume, action);
    if (!act) {
        slots_leave(&actor->slots, volume->sandbox_ref);
        return -ENOMEM;
    }
    return ops_of(act)->intend(act);
}

void actor_drop(struct actor *actor)
{
    free_list(&actor->decided);
}

void actor_withdraw(struct actor *actor, int64_t volume_id, enum decide_action action)
{
    for (struct act **link = &actor->decided; *link; link = &(*link)->next)
        if ((*link)->volume.volume_id == volume_id && (*link)->action != action) {
            act_free(pop(link));
            return;
        }
}

void actor_cancel_stale(struct actor *actor, const struct store_volume *volume)
{
    struct act **link = &actor->running;

    while (*link)
        if ((*link)->volume.volume_id == volume->volume_id &&
            (*link)->volume.binding_id != volume->binding_id)
            act_free(pop(link));
        else
            link = &(*link)->next;
}

int actor_may_rescan(const struct actor *actor, const struct store_volume *volume, bool *ret_may)
{
    struct store_disk disk;
    int r = act_rescan_find(actor->context->store, volume, &disk);

    *ret_may = r == STORE_FOUND;
    return r < 0 ? r : 0;
}

bool actor_next_volume(struct actor *actor, int64_t *ret_volume_id)
{
    return slots_next(&actor->slots, ret_volume_id);
}

/* ---- running ---- */

static void act_start(struct act *act)
{
    const struct act_ops *ops = ops_of(act);
    struct error error;
    int r;

    act->deadline_ns =
        clock_boottime() + act->context->config->resize.call_timeout_seconds * NSEC_PER_SEC;
    r = ops->start(act);
    if (r == 0)
        return;
    (void)error_set(&error, r, "%s: %s", ops->problem, child_explain(r));
    act_finish(act, ops->unstarted, &error);
}

/* In the order in which they were decided. */
void actor_start(struct actor *actor)
{
    struct act *ordered = NULL, *act;

    while ((act = pop(&actor->decided)))
        push(&ordered, act);
    while ((act = pop(&ordered))) {
        push(&actor->running, act);
        act_start(act);
    }
}

void act_finish(struct act *act, enum volume_reason reason, const struct error *error)
{
    act->reason = reason;
    act->error = *error;
    LL_DELETE(act->actor->running, act);
    push(&act->actor->finished, act);
}

uint64_t act_time_left(const struct act *act)
{
    uint64_t now = clock_boottime();

    return act->deadline_ns > now ? act->deadline_ns - now : 1;
}

void act_rest(struct act *act)
{
    slots_rest(&act->actor->slots, act->volume.sandbox_ref);
}

struct helpers *act_helpers(const struct act *act)
{
    return act->actor->helpers;
}

/* ---- answered ---- */

static uint64_t random_number(void)
{
    uint64_t number;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
        number = clock_boottime();
    return number;
}

/* If the device grew during the call, a resize has to be opened for it first. */
static int has_grown_since(const struct act *act, bool *ret_has_grown)
{
    struct store_volume volume = {.volume_id = act->volume.volume_id};
    int r = store_get_volume_itself(act->context->store, &volume);

    *ret_has_grown = r == 0 && volume.device_bytes > act->volume.device_bytes;
    return r;
}

static bool has_worked(const struct act *act)
{
    return act->reason == REASON_NONE || act->reason == REASON_UNVERIFIED;
}

/* A success clears the count of attempts; a failure waits for its next attempt, or for a change.
 * What goes on is no failure, and is asked after the first pause again. */
static int record_attempt(const struct act *act)
{
    struct store *store = act->context->store;
    uint32_t failures = act->reason == REASON_GROWING ? 0 : act->volume.attempts + 1;
    bool starts_anew = has_worked(act);
    enum volume_state state =
        act->action == ACTION_RESIZE_GUEST ? STATE_BLOCK_GROWN : STATE_BLOCKED;
    uint64_t delay;
    int r = starts_anew ? 0 : has_grown_since(act, &starts_anew);

    if (r < 0)
        return r;
    if (starts_anew)
        return store_set_attempts(store, act->volume.volume_id, 0, 0, 0);
    if (!reason_heals(act->reason, state))
        return store_set_attempts(store, act->volume.volume_id, failures, 0, 0);
    delay = backoff_delay(failures, random_number());
    return store_set_attempts(store, act->volume.volume_id, failures, clock_boottime() + delay,
                              clock_realtime_ms() + (int64_t)(delay / NSEC_PER_MSEC));
}

static void log_result(const struct act *act)
{
    const struct log_ids ids = {act->volume.volume_id, act->volume.sandbox_id,
                                act->volume.device_name, NULL, act->volume.pv};

    if (has_worked(act))
        log_info(&ids, "%s: done", decide_action_name(act->action));
    else if (act->reason == REASON_GROWING)
        log_info(&ids, "%s: %s", decide_action_name(act->action), act->error.text);
    else
        log_warning(&ids, "%s: %s: %s", decide_action_name(act->action), reason_name(act->reason),
                    act->error.text);
}

static int act_record(struct act *act)
{
    bool is_open = false;
    int r;

    log_result(act);
    if (act->action == ACTION_RESCAN_DISK)
        return ops_of(act)->record(
            act); /* about the host alone, whichever sandbox has the volume */
    /* If the volume has been bound elsewhere meanwhile, the result does not concern it. */
    r = store_is_binding_open(act->context->store, act->volume.binding_id, &is_open);
    if (r < 0 || !is_open)
        return r;
    r = ops_of(act)->record(act);
    return r < 0 ? r : record_attempt(act);
}

int actor_record(struct actor *actor)
{
    struct act *act;
    int r = 0;

    while (r == 0 && (act = pop(&actor->finished))) {
        r = act_record(act);
        (void)work_queue_add_volume(actor->context->queue, act->volume.volume_id);
        act_free(act);
    }
    return r;
}

/* ---- queries ---------- */

bool actor_is_acting(const struct actor *actor, int64_t volume_id)
{
    return is_in(actor->decided, volume_id) || is_in(actor->running, volume_id);
}

unsigned actor_count_running(const struct actor *actor)
{
    unsigned count = 0;

    for (const struct act *act = actor->running; act; act = act->next)
        count++;
    return count;
}

bool actor_has_decided(const struct actor *actor)
{
    return actor->decided != NULL;
}

bool actor_has_results(const struct actor *actor)
{
    return actor->finished != NULL;
}

bool actor_has_next_volume(const struct actor *actor)
{
    return slots_have_next(&actor->slots);
}

bool actor_take_loss(struct actor *actor)
{
    return slots_take_loss(&actor->slots);
}
