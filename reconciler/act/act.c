/* SPDX-License-Identifier: Apache-2.0 */
/* act.c - acts as such: their lists, their deadlines, the recording of what came of them. */
#include "reconciler/act/act.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lib/clock.h"
#include "lib/log.h"
#include "reconciler/decide/backoff.h"

struct act *act_new(struct reconciler *reconciler, const struct store_volume *volume,
                    unsigned action)
{
    struct act *act = malloc(sizeof(*act));

    if (!act)
        return NULL;
    memset(act, 0, offsetof(struct act, volume));
    act->reconciler = reconciler;
    act->action = action;
    act->volume = *volume;
    act->next = reconciler->starting;
    reconciler->starting = act;
    return act;
}

static void act_free(struct act *act)
{
    hypervisor_call_free(act->hypervisor);
    agent_call_free(act->agent);
    shim_call_free(act->shim);
    helper_call_free(act->helper);
    http_exchange_free(act->asking);
    slow_write_free(act->rescan);
    lanes_leave(&act->reconciler->lanes, act->volume.sandbox_ref);
    free(act);
}

static void free_list(struct act **list)
{
    while (*list) {
        struct act *act = *list;

        *list = act->next;
        act_free(act);
    }
}

void acts_drop_starting(struct reconciler *reconciler)
{
    free_list(&reconciler->starting);
}

void acts_done(struct reconciler *reconciler)
{
    free_list(&reconciler->starting);
    free_list(&reconciler->running);
    free_list(&reconciler->finished);
}

void acts_withdraw(struct reconciler *reconciler, int64_t volume_id, unsigned action)
{
    for (struct act **link = &reconciler->starting; *link; link = &(*link)->next) {
        struct act *act = *link;

        if (act->volume.volume_id != volume_id || act->action == action)
            continue;
        *link = act->next;
        act_free(act);
        return;
    }
}

void acts_cancel_stale(struct reconciler *reconciler, const struct store_volume *volume)
{
    for (struct act **link = &reconciler->running; *link;) {
        struct act *act = *link;

        if (act->volume.volume_id != volume->volume_id ||
            act->volume.mapping_id == volume->mapping_id) {
            link = &act->next;
            continue;
        }
        *link = act->next;
        act_free(act);
    }
}

static bool is_in(const struct act *list, int64_t volume_id)
{
    while (list && list->volume.volume_id != volume_id)
        list = list->next;
    return list != NULL;
}

bool act_is_in_flight(const struct reconciler *reconciler, int64_t volume_id)
{
    return is_in(reconciler->starting, volume_id) || is_in(reconciler->running, volume_id);
}

/* What an action is done by, and what is said if it cannot even be started. */
struct doer {
    int (*start)(struct act *act);
    int (*record)(struct act *act);
    enum volume_reason reason;
    const char *problem;
};

static const struct doer *doer_of(const struct act *act)
{
    static const struct doer hypervisor = {act_hypervisor_start, act_hypervisor_record,
                                           REASON_HYPERVISOR_UNREACHABLE,
                                           "the call to the hypervisor could not be started"};
    static const struct doer guest = {act_guest_start, act_guest_record, REASON_AGENT_UNREACHABLE,
                                      "the call to the agent could not be started"};
    static const struct doer rescan = {act_rescan_start, act_rescan_record, REASON_HOST_STALE,
                                       "the disk could not be rescanned"};

    if (act->action == ACTION_RESCAN_DISK)
        return &rescan;
    return act->action == ACTION_GROW_GUEST ? &guest : &hypervisor;
}

static void act_start(struct act *act)
{
    uint32_t seconds = act->reconciler->config.resize.call_timeout_seconds;
    const struct doer *doer = doer_of(act);
    int r;

    act->deadline_ns = clock_boottime() + seconds * NSEC_PER_SEC;
    r = doer->start(act);
    if (r < 0) {
        act->reason = doer->reason;
        error_set_errno(&act->error, r, "%s", doer->problem);
        act_finish(act);
    }
}

/* In the order in which they were decided. */
void acts_start(struct reconciler *reconciler)
{
    struct act *ordered = NULL;

    while (reconciler->starting) {
        struct act *act = reconciler->starting;

        reconciler->starting = act->next;
        act->next = ordered;
        ordered = act;
    }
    while (ordered) {
        struct act *act = ordered;

        ordered = act->next;
        act->next = reconciler->running;
        reconciler->running = act;
        act_start(act);
    }
}

void act_finish(struct act *act)
{
    struct act **link = &act->reconciler->running;

    while (*link != act)
        link = &(*link)->next;
    *link = act->next;
    act->next = act->reconciler->finished;
    act->reconciler->finished = act;
}

uint64_t act_time_left(const struct act *act)
{
    uint64_t now = clock_boottime();

    return act->deadline_ns > now ? act->deadline_ns - now : 1;
}

static uint64_t random_number(void)
{
    uint64_t number;

    if (getrandom(&number, sizeof(number), GRND_NONBLOCK) != sizeof(number))
        number = clock_boottime();
    return number;
}

/* A device that grew while the call was under way has a growth of its own to begin with. */
static int has_grown_since(const struct act *act, bool *ret_has_grown)
{
    struct store_volume volume = {.volume_id = act->volume.volume_id};
    int r = store_get_volume_itself(act->reconciler->store, &volume);

    *ret_has_grown = r == 0 && volume.device_bytes > act->volume.device_bytes;
    return r;
}

/* A step that worked starts counting anew; one that failed waits, or waits for something to change.
 */
static int record_attempt(const struct act *act)
{
    struct store *store = act->reconciler->store;
    uint32_t failures = act->volume.attempts + 1;
    bool starts_anew = act->reason == REASON_NONE || act->reason == REASON_UNVERIFIED;
    uint64_t delay;
    int r = starts_anew ? 0 : has_grown_since(act, &starts_anew);

    if (r < 0)
        return r;
    if (starts_anew)
        return store_set_attempts(store, act->volume.volume_id, 0, 0, 0);
    if (!reason_heals(act->reason))
        return store_set_attempts(store, act->volume.volume_id, failures, 0, 0);
    delay = backoff_delay(failures, random_number());
    return store_set_attempts(store, act->volume.volume_id, failures, clock_boottime() + delay,
                              clock_realtime_ms() + (int64_t)(delay / NSEC_PER_MSEC));
}

static int act_record(struct act *act)
{
    struct log_ids ids = {act->volume.volume_id, act->volume.sandbox_id, act->volume.device_name,
                          NULL};
    bool is_open = false;
    int r;

    if (act->reason == REASON_NONE || act->reason == REASON_UNVERIFIED)
        log_info(&ids, "%s: done", decide_action_name(act->action));
    else
        log_warning(&ids, "%s: %s: %s", decide_action_name(act->action), reason_name(act->reason),
                    act->error.text);
    if (act->action == ACTION_RESCAN_DISK)
        return act_rescan_record(act); /* of the host alone, whoever has the volume */
    /* The volume may have been bound elsewhere meanwhile; then this says nothing about it. */
    r = store_is_mapping_open(act->reconciler->store, act->volume.mapping_id, &is_open);
    if (r < 0 || !is_open)
        return r;
    r = doer_of(act)->record(act);
    return r < 0 ? r : record_attempt(act);
}

/* Their lanes are free from here on. If this turn is rolled back, what they found out is lost with
 * it and found out again. */
int acts_record(struct reconciler *reconciler)
{
    while (reconciler->finished) {
        struct act *act = reconciler->finished;
        int r = act_record(act);

        (void)mark_volume(reconciler, act->volume.volume_id);
        reconciler->finished = act->next;
        act_free(act);
        if (r < 0)
            return r;
    }
    return 0;
}
