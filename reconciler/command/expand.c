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

#include "lib/cleanup.h"
#include "lib/collections.h"
#include "model/reason.h"
#include "observe/observe.h"
#include "reconciler/command/runtime_cli.h"
#include "reconciler/core/reconciler_internal.h"

struct expansion {
    struct expansion *next;
    struct reconciler *reconciler;
    struct reconciler_expand asked;
    int64_t volume_id;
    uint64_t
        unused_bytes; /* the size of a raw block claim that no VM has; 0: a VM has the volume */
    bool decided;     /* since the client asked */
    bool owed;        /* the last decision, of this pass or an older one, recorded a debt */
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

#define DEVICE_TOO_LARGE "the device has %" PRIu64 " bytes, more than limit_bytes %" PRIu64
#define DEVICE_TOO_SMALL                                                                           \
    "the device has %" PRIu64 " bytes on the host, less than required_bytes %" PRIu64              \
    ": it must grow there first"

/* ---- asking ---- */

/* If the store fails, the next attempt stays as it was. */
static void try_at_once(struct reconciler *reconciler, int64_t volume_id)
{
    int r = store_begin(reconciler->context.store);

    if (r == 0)
        r = store_set_attempts(reconciler->context.store, volume_id, 0, 0, 0);
    if (r == 0)
        r = store_want_list(reconciler->context.store, volume_id);
    (void)store_end(reconciler->context.store, r);
    work_queue_add_urgent_volume(reconciler->context.queue, volume_id);
}

static void on_cli(const struct runtime_cli_answer *answer, void *userdata)
{
    struct expansion *expansion = userdata;
    struct reconciler *reconciler = expansion->reconciler;

    expansion->cli = runtime_cli_free(expansion->cli);
    try_at_once(reconciler, expansion->volume_id); /* the tool may have resized the drive */
    if (!answer)
        return;
    LL_DELETE(reconciler->expansions, expansion);
    tell(expansion, STATUS_OK, answer->capacity_bytes, NULL);
}

/* Whether the tool is asked. It is asked for nothing that crustd itself would refuse this client.
 */
static bool ask_cli(struct expansion *expansion)
{
    const struct context *context = &expansion->reconciler->context;
    const uint64_t limit = expansion->asked.limit_bytes;
    struct store_volume volume;

    return context->config->resize.mode == RESIZE_GROW &&
           store_get_volume(context->store, expansion->volume_id, &volume) == 0 &&
           volume.policy == POLICY_GROW && !volume.is_block_claim &&
           (!limit || volume.device_bytes <= limit) && !expand_is_barred(&volume) &&
           runtime_cli_try(context,
                           (struct runtime_cli_question){
                               .volume_id = expansion->volume_id,
                               .target_path = expansion->asked.target.target_path,
                               .resizes = true,
                               .required_bytes = expansion->asked.required_bytes,
                               .limit_bytes = limit,
                           },
                           on_cli, expansion, &expansion->cli);
}

/* Of a raw block claim there is nothing but its device until a container in a VM has it, which then
 * takes the size that it finds. The kubelet waits for this answer before it starts the pod, and
 * also asks about claims of pods that are in no VM. */
static uint64_t size_of_unused_claim(const struct context *context, const char *path)
{
    struct observed_publish_path publish;
    struct observed_device device;

    return path && node_publish_path(context, path, &publish) == 0 && publish.is_block &&
                   observe_device_path(context->root, context->sysfs, path, &device) == OBSERVED &&
                   device.kind == DEVICE_KIND_BLOCK
               ? device.size_bytes
               : 0;
}

enum status_code reconciler_expand(struct reconciler *reconciler,
                                   const struct reconciler_expand *asked, reconciler_expanded *done,
                                   void *userdata, struct expansion **ret_expansion,
                                   struct error *error)
{
    struct expansion *expansion;
    const uint64_t unused_bytes =
        size_of_unused_claim(&reconciler->context, asked->target.target_path);
    const enum answer unknown = unused_bytes ? ANSWER_UNKNOWN_TO_STATS : ANSWER_UNKNOWN_VOLUME;
    int64_t volume_id = 0;
    enum status_code code;

    if (asked->limit_bytes && asked->required_bytes > asked->limit_bytes)
        return answer_refuse(error, ANSWER_BAD_REQUEST, "required_bytes is more than limit_bytes");
    code = find_volume(reconciler, &asked->target, unknown, &volume_id, error);
    if (code == STATUS_NOT_FOUND && unused_bytes) {
        if (asked->limit_bytes && unused_bytes > asked->limit_bytes)
            return answer_refuse(error, ANSWER_DEVICE_TOO_LARGE, DEVICE_TOO_LARGE, unused_bytes,
                                 asked->limit_bytes);
        if (unused_bytes < asked->required_bytes)
            return answer_refuse(error, ANSWER_DEVICE_TOO_SMALL, DEVICE_TOO_SMALL, unused_bytes,
                                 asked->required_bytes);
        code = STATUS_OK;
    }
    if (code != STATUS_OK)
        return code;
    expansion = calloc(1, sizeof(*expansion));
    if (!expansion)
        return answer_refuse(error, ANSWER_OUT_OF_MEMORY, "out of memory");
    *expansion = (struct expansion){.next = reconciler->expansions,
                                    .reconciler = reconciler,
                                    .asked = *asked,
                                    .volume_id = volume_id,
                                    .unused_bytes = volume_id ? 0 : unused_bytes,
                                    .done = done,
                                    .userdata = userdata};
    reconciler->expansions = expansion;
    if (!volume_id)
        work_queue_wake(reconciler->context.queue, 0);
    else if (!asked->target.target_path || !ask_cli(expansion))
        try_at_once(reconciler, volume_id);
    expansion->asked.target = (struct reconciler_target){0}; /* the caller's */
    *ret_expansion = expansion;
    return STATUS_OK;
}

struct expansion *reconciler_expand_cancel(struct expansion *expansion)
{
    if (!expansion)
        return NULL;
    LL_DELETE(expansion->reconciler->expansions, expansion);
    (void)runtime_cli_free(expansion->cli);
    free(expansion);
    return NULL;
}

/* ---- answering ---- */

static int judge(const struct expansion *expansion, uint64_t *ret_bytes, struct error *error)
{
    struct reconciler *reconciler = expansion->reconciler;
    struct store_volume volume;
    struct expand_facts facts = {
        .volume = &volume,
        .required_bytes = expansion->asked.required_bytes,
        .limit_bytes = expansion->asked.limit_bytes,
    };
    int r = store_get_volume(reconciler->context.store, expansion->volume_id, &volume);

    if (r == STORE_NO_VOLUME)
        return (int)answer_refuse(error, ANSWER_UNKNOWN_VOLUME, "the volume was removed");
    if (r < 0)
        return EXPAND_WAIT; /* the next pass says more */
    facts.policy = resize_policy_of(reconciler->context.config, &volume);
    facts.usable_bytes = volume_usable_bytes(&reconciler->context, &volume);
    *ret_bytes = volume.device_bytes;
    return expand_answer(&facts, error);
}

/* It counts from where the file system is known to end. */
static int open_debt(struct expansion *expansion)
{
    struct store *store = expansion->reconciler->context.store;
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

int expansions_note(struct reconciler *reconciler, int64_t volume_id)
{
    int r = 0;

    for (struct expansion *one = reconciler->expansions; r == 0 && one; one = one->next) {
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

void expansions_forget(struct reconciler *reconciler)
{
    for (struct expansion *one = reconciler->expansions; one; one = one->next)
        one->decided = one->owed = false;
}

/* EXPAND_WAIT or a status. */
static int answer(struct expansion *expansion, bool *synced, uint64_t *ret_bytes,
                  struct error *error)
{
    struct reconciler *reconciler = expansion->reconciler;
    struct store *store = reconciler->context.store;
    int code = EXPAND_WAIT;

    *ret_bytes = expansion->unused_bytes;
    if (expansion->unused_bytes)
        return STATUS_OK;
    if (actor_is_acting(reconciler->context.actor, expansion->volume_id))
        return EXPAND_WAIT;
    if (expansion->decided && !expansion->cli)
        code = judge(expansion, ret_bytes, error);
    if (code == EXPAND_LATER) { /* a debt that is not on disk does not count */
        code = (int)require_durable(store, error);
        if (code == STATUS_OK && !expansion->owed)
            code = EXPAND_WAIT;
        else if (code == STATUS_OK && !*synced && store_sync(store) < 0)
            code = (int)answer_database_fails(store, error);
        *synced |= code == STATUS_OK;
    }
    if (code == EXPAND_WAIT && reconciler->context.stopping)
        code = (int)answer_refuse(error, ANSWER_STOPPING, "crustd stops");
    return code;
}

void expansions_answer(struct reconciler *reconciler)
{
    struct expansion **link = &reconciler->expansions;
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

void expansions_done(struct reconciler *reconciler)
{
    while (reconciler->expansions)
        (void)reconciler_expand_cancel(reconciler->expansions);
}

/* ---- the volume's state as a client's answer ------------------------------------------------ */

/* First the obstacles that no attempt changes, then the sizes, then how far the resize has come. A
 * failure counts only if it came after the client's call, which cleared the count of attempts: with
 * no attempt since, the recorded reason is an old one. */

/* The guest's reason may come before the volume counts as block_grown. */
static int say_reason(const struct store_volume *volume, enum volume_reason reason,
                      struct error *error)
{
    enum volume_state state = volume->state == STATE_IN_SYNC ? STATE_BLOCK_GROWN : volume->state;

    return error_set(error, (int)reason_code(reason, state),
                     "the volume is %s, %s: crustctl explain '#%" PRId64 "' says what helps",
                     state_name(volume->state), reason_name(reason), volume->volume_id);
}

bool expand_is_barred(const struct store_volume *volume)
{
    return volume->state == STATE_BLOCKED && volume->reason != volume->hypervisor_reason;
}

/* EXPAND_WAIT: no obstacle that lasts, and the sizes are as asked. */
static int check_standing(const struct expand_facts *facts, struct error *error)
{
    const struct store_volume *volume = facts->volume;
    const uint64_t bytes = volume->device_bytes;

    if (volume->status == STORE_REMOVED || volume->status == STORE_QUARANTINED)
        return (int)answer_refuse(error, ANSWER_UNKNOWN_VOLUME, "the volume was removed");
    if (volume->state == STATE_UNBOUND && !volume->device_id)
        return say_reason(volume, REASON_NO_DEVICE, error);
    if (volume->state == STATE_UNMANAGED || expand_is_barred(volume))
        return say_reason(volume, volume->reason, error);
    if (volume->state == STATE_SHRUNK)
        return (int)answer_refuse(
            error, ANSWER_DEVICE_SHRUNK,
            "the device has %" PRIu64 " bytes, less than it had: crustd only grows", bytes);
    if (facts->limit_bytes && bytes > facts->limit_bytes)
        return (int)answer_refuse(error, ANSWER_DEVICE_TOO_LARGE, DEVICE_TOO_LARGE, bytes,
                                  facts->limit_bytes);
    /* If it lags behind its lower device, a header is not why that is larger. */
    if (bytes < facts->required_bytes &&
        (volume->reason == REASON_HOST_STALE || volume->reason == REASON_HOST_LAYER_PENDING))
        return say_reason(volume, volume->reason, error);
    if (facts->usable_bytes < facts->required_bytes)
        return (int)answer_refuse(error, ANSWER_DEVICE_TOO_SMALL, DEVICE_TOO_SMALL,
                                  facts->usable_bytes, facts->required_bytes);
    return EXPAND_WAIT;
}

int expand_answer(const struct expand_facts *facts, struct error *error)
{
    const struct store_volume *volume = facts->volume;
    const bool is_synced =
        !volume->grows_file_system || volume->guest_synced_bytes >= volume->device_bytes;
    enum volume_reason reason = volume->reason;
    int code = check_standing(facts, error);

    if (code != EXPAND_WAIT)
        return code;
    if (is_synced && (volume->state == STATE_DETACHED || volume->state == STATE_IN_SYNC))
        return STATUS_OK;
    /* No attempt follows: crustd may only observe, or a regular file would have to grow in the VM,
     * or nothing says whether it did. */
    if (facts->policy == POLICY_OBSERVE ||
        (facts->policy == POLICY_GUEST &&
         (volume->state == STATE_HOST_GROWN ||
          (volume->state == STATE_UNKNOWN && volume->reason == REASON_NONE))))
        return say_reason(volume, REASON_POLICY, error);
    if (volume->state == STATE_UNBOUND || volume->state == STATE_DETACHED)
        return EXPAND_LATER;
    if (volume->state == STATE_IN_SYNC)
        reason = volume->guest_reason;
    if (reason == REASON_NONE || reason == REASON_UNVERIFIED || volume->attempts == 0)
        return EXPAND_WAIT; /* no attempt has ended yet, or nothing stands in the way */
    return say_reason(volume, reason, error);
}
