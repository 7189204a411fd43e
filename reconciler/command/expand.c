/* SPDX-License-Identifier: Apache-2.0 */
/* expand.c - clients that wait for a resize.
 *
 * Nothing is resized here. If the volume's runtime left a tool for it, and the volume may be
 * resized, the tool is asked first. A client's call has the volume observed again and clears its
 * failed attempts, so that the resize is tried at once; then the client waits. After each committed
 * pass, clients of volumes that were decided since, and for which nothing is in flight, get the
 * answer of expand_answer() or go on waiting. The client sets the limit.
 *
 * The kubelet asks for a resize before the pod's sandbox exists, and does not start the pod before
 * the call succeeds. The call then leaves a debt: an open resize of the unbound volume, which is on
 * disk before the client is answered, and which the next binding completes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/list.h"
#include "model/reason.h"
#include "observe/observe.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/clients_state.h"
#include "reconciler/command/expand_answer.h"
#include "reconciler/command/runtime_cli.h"
#include "reconciler/core/context.h"
#include "reconciler/core/permit.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"

struct expansion {
    struct expansion *next;
    struct clients *clients;
    struct reconciler_expand asked;
    int64_t volume_id;
    bool decided; /* since the client asked */
    bool owed;    /* the last decision left a debt on record, of this pass or an older one */
    struct runtime_cli_run *cli; /* the runtime's own tool is asked first */
    reconciler_expanded *done;
    void *userdata;
};

/* It is in no list any more. */
static void tell(struct expansion *expansion, enum status_code code, uint64_t bytes,
                 const struct error *error)
{
    const struct reconciler_capacity capacity = {
        .bytes = bytes,
        .is_owed = code == STATUS_OK && expansion->owed,
    };

    expansion->done(expansion->userdata, code, &capacity, error);
    (void)runtime_cli_free(expansion->cli);
    free(expansion);
}

/* ---- asking ---- */

static enum status_code check_range(const struct reconciler_expand *asked, struct error *error)
{
    if (!asked->limit_bytes || asked->required_bytes <= asked->limit_bytes)
        return STATUS_OK;
    return answer_refuse(error, ANSWER_BAD_REQUEST, "required_bytes is more than limit_bytes");
}

/* If the store fails, the next attempt stays as it was. */
static void try_at_once(struct clients *clients, int64_t volume_id)
{
    int r = store_begin(clients->context->store);

    if (r == 0)
        r = store_set_attempts(clients->context->store, volume_id, 0, 0, 0);
    if (r == 0)
        r = store_want_list(clients->context->store, volume_id);
    (void)store_end(clients->context->store, r);
    work_queue_add_urgent_volume(clients->options.context->queue, volume_id);
}

static void on_cli(const struct runtime_cli_answer *answer, void *userdata)
{
    struct expansion *expansion = userdata;
    struct clients *clients = expansion->clients;

    expansion->cli = runtime_cli_free(expansion->cli);
    try_at_once(clients, expansion->volume_id); /* the tool may have resized the drive */
    if (!answer)
        return;
    LL_DELETE(clients->expansions, expansion);
    tell(expansion, STATUS_OK, answer->capacity_bytes, NULL);
}

/* The tool is not asked for anything that crustd itself would refuse this client. */
static bool is_permitted(const struct expansion *expansion)
{
    struct clients *clients = expansion->clients;
    uint64_t limit = expansion->asked.limit_bytes;
    struct store_volume volume;

    return clients->context->config->resize.mode == RESIZE_GROW &&
           store_get_volume(clients->context->store, expansion->volume_id, &volume) == 0 &&
           volume.policy == POLICY_GROW && (!limit || volume.device_bytes <= limit) &&
           !expand_is_barred(&volume);
}

/* Whether it is asked. */
static bool ask_cli(struct expansion *expansion)
{
    struct clients *clients = expansion->clients;
    const struct reconciler_expand *asked = &expansion->asked;
    struct runtime_cli cli;
    const struct runtime_cli_question question = {
        .cli = &cli,
        .volume_id = expansion->volume_id,
        .target_path = asked->target.target_path,
        .resizes = true,
        .required_bytes = asked->required_bytes,
        .limit_bytes = asked->limit_bytes,
    };
    struct error error = {0};
    int r;

    if (!is_permitted(expansion))
        return false;
    r = runtime_cli_find(clients->context, asked->target.target_path, &cli, &error);
    if (r == RUNTIME_CLI_UNSAFE)
        runtime_cli_pass_over(expansion->volume_id, &error);
    return r == RUNTIME_CLI_FOUND &&
           runtime_cli_ask(clients->context, &question, on_cli, expansion, &expansion->cli) == 0;
}

enum status_code expand_begin(struct clients *clients, const struct reconciler_expand *asked,
                              reconciler_expanded *done, void *userdata,
                              struct expansion **ret_expansion, struct error *error)
{
    struct expansion *expansion;
    int64_t volume_id = 0;
    enum status_code code = check_range(asked, error);

    if (code == STATUS_OK)
        code = find_volume(clients, &asked->target, ANSWER_UNKNOWN_VOLUME, &volume_id, error);
    if (code != STATUS_OK)
        return code;
    expansion = calloc(1, sizeof(*expansion));
    if (!expansion)
        return answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
    *expansion = (struct expansion){.next = clients->expansions,
                                    .clients = clients,
                                    .asked = *asked,
                                    .volume_id = volume_id,
                                    .done = done,
                                    .userdata = userdata};
    clients->expansions = expansion;
    if (!asked->target.target_path || !ask_cli(expansion))
        try_at_once(clients, volume_id);
    expansion->asked.target = (struct reconciler_target){0}; /* the caller's */
    *ret_expansion = expansion;
    return STATUS_OK;
}

struct expansion *reconciler_expand_cancel(struct expansion *expansion)
{
    if (!expansion)
        return NULL;
    LL_DELETE(expansion->clients->expansions, expansion);
    (void)runtime_cli_free(expansion->cli);
    free(expansion);
    return NULL;
}

/* ---- answering ---- */

/* The device, with what a LUKS header takes from what it stands on: to a driver that made the
 * header itself, those bytes are the volume's. */
uint64_t volume_usable_bytes(const struct context *context, const struct store_volume *volume)
{
    struct observed_layer layer[OBSERVE_LAYERS];
    struct observed_device device;
    uint64_t bytes = volume->device_bytes;
    unsigned count, at = 0;

    if (volume->device_kind != DEVICE_KIND_BLOCK ||
        observe_device_number(context->sysfs, volume->major, volume->minor, &device) != OBSERVED)
        return bytes;
    count = observe_stack(context->sysfs, &device, layer);
    for (unsigned i = 1; i < count && layer[at].kind == LAYER_CRYPT; i++)
        if (layer[i].above == at) {
            at = i;
            bytes = layer[i].device.size_bytes;
        }
    return bytes > volume->device_bytes ? bytes : volume->device_bytes;
}

static int judge(const struct expansion *expansion, uint64_t *ret_bytes, struct error *error)
{
    struct clients *clients = expansion->clients;
    struct store_volume volume;
    struct expand_facts facts = {
        .volume = &volume,
        .required_bytes = expansion->asked.required_bytes,
        .limit_bytes = expansion->asked.limit_bytes,
    };
    int r = store_get_volume(clients->context->store, expansion->volume_id, &volume);

    if (r == STORE_NO_VOLUME)
        return (int)answer_refuse(error, ANSWER_UNKNOWN_VOLUME, "the volume was removed");
    if (r < 0)
        return EXPAND_WAIT; /* the next pass says more */
    facts.observes = permit_of(clients->context->config, &volume) == POLICY_OBSERVE;
    facts.usable_bytes = volume_usable_bytes(clients->context, &volume);
    *ret_bytes = volume.device_bytes;
    return expand_answer(&facts, error);
}

/* ---- a debt, within the pass that decided ---- */

/* It counts from where the file system is known to end. */
static int open_debt(struct expansion *expansion)
{
    struct store *store = expansion->clients->context->store;
    struct store_volume volume;
    uint64_t reached = 0;
    int r = store_get_volume(store, expansion->volume_id, &volume);

    if (r == STORE_NO_VOLUME)
        return 0;
    if (r == 0)
        r = store_get_reached_size(store, expansion->volume_id, &reached);
    if (r < 0)
        return r;
    expansion->owed = true;
    return store_open_resize(store, &volume, reached < volume.device_bytes ? reached : 0,
                             volume.device_bytes);
}

int expansions_note(struct clients *clients, int64_t volume_id)
{
    int r = 0;

    for (struct expansion *one = clients->expansions; r == 0 && one; one = one->next) {
        struct error error;
        uint64_t bytes;

        if (one->volume_id != volume_id)
            continue;
        one->decided = true;
        one->owed = false;
        if (!one->cli && judge(one, &bytes, &error) == EXPAND_LATER)
            r = open_debt(one);
    }
    return r;
}

void expansions_forget(struct clients *clients)
{
    for (struct expansion *one = clients->expansions; one; one = one->next)
        one->decided = one->owed = false;
}

/* ---- after its commit ---- */

/* A debt that is not on disk does not count. */
static int answer_debt(struct expansion *expansion, bool *synced, struct error *error)
{
    struct clients *clients = expansion->clients;
    enum status_code code = promise_check(clients->context->store, error);
    int r;

    if (code != STATUS_OK || !expansion->owed)
        return code == STATUS_OK ? EXPAND_WAIT : (int)code;
    if (*synced)
        return STATUS_OK;
    r = store_sync(clients->context->store);
    *synced = r == 0;
    return r == 0 ? STATUS_OK
                  : (int)answer_refuse(error, ANSWER_DATABASE, "the database fails: %s",
                                       store_error_text(clients->context->store));
}

/* EXPAND_WAIT or a status. */
static int answer(struct expansion *expansion, bool *synced, uint64_t *ret_bytes,
                  struct error *error)
{
    struct clients *clients = expansion->clients;
    int code = EXPAND_WAIT;

    if (actor_is_acting(clients->options.actor, expansion->volume_id))
        return EXPAND_WAIT;
    if (expansion->decided && !expansion->cli)
        code = judge(expansion, ret_bytes, error);
    if (code == EXPAND_LATER)
        code = answer_debt(expansion, synced, error);
    if (code == EXPAND_WAIT && clients->options.context->stopping)
        code = (int)answer_refuse(error, ANSWER_STOPPING, "crustd stops");
    return code;
}

void expansions_answer(struct clients *clients)
{
    struct expansion **link = &clients->expansions;
    bool synced = false;

    while (*link) {
        struct expansion *one = *link;
        struct error error = {0};
        uint64_t bytes = 0;
        int code = answer(one, &synced, &bytes, &error);

        if (code == EXPAND_WAIT) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        tell(one, (enum status_code)code, bytes, &error);
    }
}

/* In another store its volume has another id. */
void expansions_end(struct clients *clients)
{
    struct error error;

    (void)error_set(&error, 0, "crustd starts over with another database: call again");
    while (clients->expansions) {
        struct expansion *one = clients->expansions;

        clients->expansions = one->next;
        tell(one, answer_code(ANSWER_DATABASE), 0, &error);
    }
}

void expansions_done(struct clients *clients)
{
    while (clients->expansions)
        (void)reconciler_expand_cancel(clients->expansions);
}

/* ---- expand answer -------------------------------------------------------------------------- */

/* The volume's state as a client's answer.
 *
 * First the obstacles that no attempt changes, then the sizes, then how far the resize has come. A
 * failure counts only if it came after the client's call, which cleared the count of attempts: with
 * no attempt since, the recorded reason is an old one.
 */

/* The guest's reason may come before the volume counts as block_grown. */
static int say_reason(const struct store_volume *volume, enum volume_reason reason,
                      struct error *error)
{
    enum volume_state state = volume->state == STATE_IN_SYNC ? STATE_BLOCK_GROWN : volume->state;

    return error_set(error, (int)reason_code(reason, state),
                     "the volume is %s, %s: crustctl explain '#%" PRId64 "' says what helps",
                     state_name(volume->state), reason_name(reason), volume->volume_id);
}

static int say_policy(const struct store_volume *volume, struct error *error)
{
    return say_reason(volume, REASON_POLICY, error);
}

bool expand_is_barred(const struct store_volume *volume)
{
    return volume->state == STATE_BLOCKED && volume->reason != volume->hypervisor_reason;
}

/* EXPAND_WAIT: none of it. */
static int check_standing(const struct store_volume *volume, struct error *error)
{
    if (volume->status == STORE_REMOVED || volume->status == STORE_QUARANTINED)
        return (int)answer_refuse(error, ANSWER_UNKNOWN_VOLUME, "the volume was removed");
    if (volume->state == STATE_UNMANAGED)
        return say_reason(volume, volume->reason, error);
    if (volume->state == STATE_UNBOUND && !volume->device_id)
        return say_reason(volume, REASON_NO_DEVICE, error);
    if (expand_is_barred(volume))
        return say_reason(volume, volume->reason, error);
    if (volume->state == STATE_SHRUNK)
        return (int)answer_refuse(error, ANSWER_DEVICE_SHRUNK,
                                  "the device has %" PRIu64
                                  " bytes, less than it had: crustd only grows",
                                  volume->device_bytes);
    return EXPAND_WAIT;
}

/* The lower device is then larger for another reason than a header. */
static bool lags_behind_its_disk(const struct store_volume *volume)
{
    return volume->reason == REASON_HOST_STALE || volume->reason == REASON_HOST_LAYER_PENDING;
}

static int check_sizes(const struct expand_facts *facts, struct error *error)
{
    uint64_t bytes = facts->volume->device_bytes;

    if (facts->limit_bytes && bytes > facts->limit_bytes)
        return (int)answer_refuse(error, ANSWER_DEVICE_TOO_LARGE,
                                  "the device has %" PRIu64
                                  " bytes, more than limit_bytes %" PRIu64,
                                  bytes, facts->limit_bytes);
    if (bytes < facts->required_bytes && lags_behind_its_disk(facts->volume))
        return say_reason(facts->volume, facts->volume->reason, error);
    if (facts->usable_bytes < facts->required_bytes)
        return (int)answer_refuse(error, ANSWER_DEVICE_TOO_SMALL,
                                  "the device has %" PRIu64
                                  " bytes on the host, less than required_bytes %" PRIu64
                                  ": it must grow there first",
                                  facts->usable_bytes, facts->required_bytes);
    return EXPAND_WAIT;
}

/* A reason that an attempt ended with; none: nothing stands in the way. */
static int check_attempt(const struct expand_facts *facts, enum volume_reason reason,
                         struct error *error)
{
    const struct store_volume *volume = facts->volume;

    if (facts->observes)
        return say_policy(volume, error);
    if (reason == REASON_NONE || reason == REASON_UNVERIFIED || volume->attempts == 0)
        return EXPAND_WAIT;
    return say_reason(volume, reason, error);
}

int expand_answer(const struct expand_facts *facts, struct error *error)
{
    const struct store_volume *volume = facts->volume;
    int code = check_standing(volume, error);

    if (code == EXPAND_WAIT)
        code = check_sizes(facts, error);
    if (code != EXPAND_WAIT)
        return code;
    if (volume->state == STATE_DETACHED && volume->guest_synced_bytes >= volume->device_bytes)
        return STATUS_OK;
    if (volume->state == STATE_UNBOUND || volume->state == STATE_DETACHED)
        return facts->observes ? say_policy(volume, error) : EXPAND_LATER;
    if (volume->state != STATE_IN_SYNC)
        return check_attempt(facts, volume->reason, error);
    if (volume->guest_synced_bytes >= volume->device_bytes)
        return STATUS_OK;
    return check_attempt(facts, volume->guest_reason, error);
}
