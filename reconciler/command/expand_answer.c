/* SPDX-License-Identifier: Apache-2.0 */
/* expand_answer.c - the volume's state as a client's answer.
 *
 * First the obstacles that no attempt changes, then the sizes, then how far the resize has come. A
 * failure counts only if it came after the client's call, which cleared the count of attempts: with
 * no attempt since, the recorded reason is an old one.
 */
#include "reconciler/command/expand_answer.h"

#include <inttypes.h>
#include <string.h>

#include "model/reason.h"
#include "reconciler/command/answers.h"

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
