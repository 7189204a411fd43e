/* SPDX-License-Identifier: Apache-2.0 */
/* volume.c - one volume: look at its device, have it bound, decide.
 *
 * Everything is read afresh, from the world and from the store, and compared; an equal fact writes
 * nothing. So it does not matter why a volume is looked at, or how often.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "hypervisor/hypervisor.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "observe/observe.h"
#include "reconciler/act/actor.h"
#include "reconciler/core/device_record.h"
#include "reconciler/core/internal.h"
#include "reconciler/core/permit.h"
#include "reconciler/decide/attachment.h"
#include "reconciler/decide/decide.h"
#include "reconciler/decide/layers.h"

/* ---- neighbours ---- */

struct neighbours {
    struct reconciler *reconciler;
    int64_t volume_id; /* whose they are */
};

static int mark_neighbour(void *userdata, int64_t volume_id)
{
    const struct neighbours *neighbours = userdata;

    return volume_id == neighbours->volume_id ? 0 : mark_volume(neighbours->reconciler, volume_id);
}

/* Who stands on the same device may be touched by what becomes of this volume. */
int mark_neighbours(struct reconciler *reconciler, const struct store_volume *volume)
{
    struct neighbours neighbours = {reconciler, volume->volume_id};

    return volume->device_id ? store_each_volume_of_device_id(reconciler->store, volume->device_id,
                                                              mark_neighbour, &neighbours)
                             : 0;
}

/* ---- the device ---- */

/* Where the volume's path leads now, and how large that is. */
static int refresh_device(struct reconciler *reconciler, struct store_volume *volume)
{
    struct observed_device observed;
    bool size_changed = false, changed = false;
    int64_t device_id = 0;
    int r;

    if (!volume->device_path[0])
        return 0;
    r = observe_device_path(reconciler->root, reconciler->sysfs, volume->device_path, &observed);
    if (r < 0) {
        log_warning(&(struct log_ids){.volume = volume->volume_id}, "cannot look at device %s: %s",
                    volume->device_path, strerror(-r));
        return 0;
    }
    if (r == OBSERVED)
        r = record_device(reconciler->store, &observed, &device_id, &size_changed);
    else
        r = 0;
    if (r == 0)
        r = store_set_volume_device(reconciler->store, volume->volume_id, device_id, &changed);
    if (r == 0 && changed)
        r = mark_neighbours(reconciler, volume); /* on the device that it leaves */
    if (r == 0 && changed && reconciler->synced) /* before, nothing is decided about it */
        r = store_get_volume(reconciler->store, volume->volume_id, volume);
    else if (r == 0 && (size_changed || changed))
        r = store_get_volume_itself(reconciler->store, volume);
    if (r == 0 && changed)
        r = mark_neighbours(reconciler, volume); /* on the one that it comes to */
    if (r == 0 && device_id && observed.kind == DEVICE_KIND_BLOCK)
        r = look_beneath(reconciler, volume, &observed);
    return r;
}

/* ---- the facts ---- */

/* When the device will have had its present size for resize.settle_ms. */
static uint64_t still_from(const struct reconciler *reconciler, const struct store_volume *volume)
{
    return volume->size_since_ns + reconciler->config.resize.settle_ms * NSEC_PER_MSEC;
}

/* Types that never stand for a block device of the host; others are judged by what the path is.
 * "blk" is the shim's own disk image of an emptyDir, unless it stands elsewhere and is a disk. */
static bool is_unsuitable_type(const struct store_volume *volume)
{
    static const char *const types[] = {"vfiovol", "vfio",     "spdkvol",
                                        "spdk",    "spoolvol", "network"};

    for (unsigned i = 0; i < array_length(types); i++)
        if (strcasecmp(volume->volume_type, types[i]) == 0)
            return true;
    return strcmp(volume->volume_type, "blk") == 0 &&
           (!volume->device_id || volume->device_kind != DEVICE_KIND_BLOCK ||
            strstr(volume->target_path, "/volumes/kubernetes.io~empty-dir/"));
}

static enum decide_device device_of(const struct store_volume *volume)
{
    if (is_unsuitable_type(volume) || volume->device_path[0] != '/')
        return DEVICE_UNSUITABLE;
    if (!volume->device_id)
        return DEVICE_MISSING;
    if (volume->device_kind == DEVICE_KIND_OTHER)
        return DEVICE_UNSUITABLE;
    return volume->device_kind == DEVICE_KIND_FILE ? DEVICE_FILE : DEVICE_BLOCK;
}

/* Whether another of its directories names another device; one that cannot be looked at might. */
static bool entries_disagree(struct reconciler *reconciler, const struct store_volume *volume)
{
    struct observed_device other;
    int r;

    if (!volume->other_device_path[0])
        return false;
    r = observe_device_path(reconciler->root, reconciler->sysfs, volume->other_device_path, &other);
    if (r != OBSERVED || other.kind != volume->device_kind)
        return true;
    return volume->device_kind == DEVICE_KIND_BLOCK
               ? other.major != volume->major || other.minor != volume->minor
               : other.file_device != volume->file_device || other.inode != volume->inode;
}

const char *volume_host_use(struct reconciler *reconciler, uint32_t major, uint32_t minor)
{
    if (!reconciler->mounts) {
        int r = observe_mounts(reconciler->sysfs, &reconciler->mounts);

        if (r < 0) {
            log_warning(NULL, "cannot read the host's mounts: %s", strerror(-r));
            return "(cannot tell)";
        }
    }
    return observed_mounts_find(reconciler->mounts, reconciler->sysfs, major, minor);
}

static bool is_used_by_host(struct reconciler *reconciler, const struct store_volume *volume)
{
    return volume->device_id && volume->device_kind == DEVICE_KIND_BLOCK &&
           volume_host_use(reconciler, volume->major, volume->minor);
}

static enum attachment_list list_of(const struct store_volume *volume)
{
    switch (volume->list) {
    case STORE_LIST_HAS:
        return LIST_HAS;
    case STORE_LIST_LACKS:
        return LIST_LACKS;
    case STORE_LIST_UNREAD:
        break;
    }
    return volume->hypervisor_reason != REASON_NONE ? LIST_REFUSED : LIST_UNREAD;
}

static enum attachment_record record_of(const struct store_volume *volume)
{
    if (volume->carrier == STORE_CARRIER_DIRECTORY)
        return RECORD_DIRECTORY;
    return volume->is_recorded || volume->carrier == STORE_CARRIER_DEVICE ? RECORD_DEVICE
                                                                          : RECORD_SILENT;
}

static enum decide_conflict attachment_of(const struct store_volume *volume)
{
    static const enum decide_conflict conflicts[ATTACHMENTS] = {
        [ATTACHMENT_OPEN] = CONFLICT_NONE,
        [ATTACHMENT_DETACHED] = CONFLICT_DETACHED,
        [ATTACHMENT_BYPASSED] = CONFLICT_BYPASSED,
        [ATTACHMENT_UNPLUGGED] = CONFLICT_UNPLUGGED,
    };
    const struct attachment_facts facts = {
        .list = list_of(volume),
        .record = record_of(volume),
        .has_container = volume->carrier != STORE_CARRIER_ENDED,
        .is_lasting = volume->list_misses >= ATTACHMENT_LASTING,
    };

    return volume->mapping_id ? conflicts[attachment_decide(&facts)] : CONFLICT_NONE;
}

static enum decide_conflict conflict_of(struct reconciler *reconciler,
                                        const struct store_volume *volume, bool mismatch)
{
    if (entries_disagree(reconciler, volume))
        return CONFLICT_ENTRIES_DISAGREE;
    if (mismatch)
        return CONFLICT_IDENTITY_MISMATCH;
    if (volume->shared_with)
        return CONFLICT_DEVICE_SHARED;
    if (volume->live_sandboxes == 1 && is_used_by_host(reconciler, volume))
        return CONFLICT_HOST_IN_USE;
    return volume->bypassed ? CONFLICT_BYPASSED : attachment_of(volume);
}

static enum decide_beneath beneath_of(const struct store_volume *volume)
{
    switch ((enum layer_state)volume->layers_state) {
    case LAYER_STALE:
        return BENEATH_STALE;
    case LAYER_PENDING:
        return BENEATH_PENDING;
    case LAYER_IN_STEP:
        break;
    }
    return BENEATH_IN_STEP;
}

static enum decide_status status_of(const struct store_volume *volume)
{
    switch (volume->status) {
    case STORE_PRESENT:
        return DECIDE_PRESENT;
    case STORE_INVALID:
        return DECIDE_INVALID;
    case STORE_QUARANTINED:
    case STORE_REMOVED:
        break;
    }
    return DECIDE_GONE;
}

/* The VMM opened the device when that had its present size already; but the VMM's word counts more.
 */
static bool size_is_assumed(const struct store_volume *volume)
{
    return volume->size_since_ns && volume->vmm_start_ns &&
           volume->size_since_ns < volume->vmm_start_ns && !volume->list_error[0];
}

/* All but the conflict, which is found by looking and not by reading a row. */
static struct decide_facts facts_of(const struct reconciler *reconciler,
                                    const struct store_volume *volume)
{
    struct decide_facts facts = {
        .status = status_of(volume),
        .permit = permit_of(&reconciler->config, volume),
        .device = device_of(volume),
        .beneath = beneath_of(volume),
        .read_only = volume->read_only,
        .live_sandboxes = volume->live_sandboxes,
        .device_bytes = volume->device_bytes,
        .first_bytes = volume->first_bytes,
        .largest_bytes = volume->largest_bytes,
        .hypervisor_bytes = volume->hypervisor_bytes,
        .guest_synced_bytes = volume->guest_synced_bytes,
        .list_read = volume->list == STORE_LIST_HAS,
        .list_again = volume->list_again,
        .list_doubtful = volume->list_doubt[0] != '\0',
        .size_assumed = size_is_assumed(volume),
        .guest_proven = volume->guest_proven,
        .growth_open = volume->resize_id != 0,
        .is_still = clock_boottime() >= still_from(reconciler, volume),
        .hypervisor_reason = volume->hypervisor_reason,
        .guest_reason = volume->guest_reason,
    };

    facts.may_try = volume->attempts == 0 ||
                    (volume->next_attempt_ns && clock_boottime() >= volume->next_attempt_ns);
    return facts;
}

/* ---- what follows ---- */

/* A growth is on the record from the moment it is seen, whatever comes of it. */
static bool is_new_growth(const struct decide_facts *facts, const struct store_volume *volume)
{
    return facts->status == DECIDE_PRESENT && facts->permit != POLICY_NEVER && volume->mapping_id &&
           !facts->read_only && facts->live_sandboxes == 1 &&
           (facts->device == DEVICE_BLOCK || facts->device == DEVICE_FILE) &&
           facts->conflict != CONFLICT_IDENTITY_MISMATCH &&
           facts->conflict != CONFLICT_ENTRIES_DISAGREE &&
           facts->device_bytes > decide_baseline(facts) &&
           (!volume->resize_id || volume->resize_to_bytes < facts->device_bytes);
}

static int open_growth(struct reconciler *reconciler, struct store_volume *volume,
                       struct decide_facts *facts)
{
    enum decide_conflict conflict = facts->conflict;
    uint64_t from = decide_baseline(facts);
    int r;

    r = store_open_resize(reconciler->store, volume->volume_id, from, volume->device_bytes);
    if (r == 0)
        r = store_get_volume_itself(reconciler->store, volume);
    if (r < 0)
        return r;
    log_info(&(struct log_ids){volume->volume_id, volume->sandbox_id, volume->device_name, NULL},
             "device grew from %" PRIu64 " to %" PRIu64 " bytes", from, volume->device_bytes);
    *facts = facts_of(reconciler, volume);
    facts->conflict = conflict;
    return 0;
}

static int set_state(struct reconciler *reconciler, const struct store_volume *volume,
                     const struct decision *decision)
{
    bool changed = false;
    int r = store_set_state(reconciler->store, volume->volume_id, decision->state, decision->reason,
                            &changed);

    if (r == 0 && volume->observed != (permit_of(&reconciler->config, volume) == POLICY_OBSERVE))
        r = store_set_observed(reconciler->store, volume->volume_id, !volume->observed);
    if (r == 0 && changed)
        log_info(
            &(struct log_ids){volume->volume_id, volume->sandbox_id, volume->device_name, NULL},
            "%s/%s -> %s/%s", state_name(volume->state), reason_name(volume->reason),
            state_name(decision->state), reason_name(decision->reason));
    if (r == 0 && changed)
        r = mark_neighbours(reconciler, volume);
    return r;
}

/* A volume that is due and has nothing to try does not wait: its state says what for. */
static int end_waiting(struct reconciler *reconciler, const struct store_volume *volume,
                       const struct decide_facts *facts)
{
    return volume->next_attempt_ns && (facts->may_try || facts->conflict == CONFLICT_DETACHED)
               ? store_set_attempts(reconciler->store, volume->volume_id, 0, 0, 0)
               : 0;
}

/* A growth that may go on yet: the timer of attempts has it looked at again. */
static int wait_until_still(struct reconciler *reconciler, const struct store_volume *volume)
{
    uint64_t due = still_from(reconciler, volume), now = clock_boottime();
    uint64_t left_ms = due > now ? (due - now) / NSEC_PER_MSEC : 0;

    if (volume->next_attempt_ns == due)
        return 0;
    return store_set_attempts(reconciler->store, volume->volume_id, 0, due,
                              clock_realtime_ms() + (int64_t)left_ms);
}

static int begin_act(struct reconciler *reconciler, const struct store_volume *volume,
                     enum decide_action action)
{
    return !reconciler->synced || reconciler->stopping
               ? 0
               : actor_decide(reconciler->actor, volume, action);
}

int look_at_volume_device(struct reconciler *reconciler, int64_t volume_id)
{
    struct store_volume volume = {.volume_id = volume_id};
    int r = store_get_volume_itself(reconciler->store, &volume);

    return r == 0 && volume.status == STORE_PRESENT ? refresh_device(reconciler, &volume) : r;
}

/* What is known of the volume, and what follows. */
static int judge(struct reconciler *reconciler, struct store_volume *volume, bool mismatch,
                 struct decide_facts *ret_facts, struct decision *ret_decision)
{
    struct decide_facts facts = facts_of(reconciler, volume);
    int r = 0;

    if (facts.status == DECIDE_PRESENT && facts.live_sandboxes > 0)
        facts.conflict = conflict_of(reconciler, volume, mismatch);
    if (facts.beneath == BENEATH_STALE && reconciler->config.resize.scsi_rescan)
        r = actor_may_rescan(reconciler->actor, volume, &facts.may_rescan);
    if (r == 0 && is_new_growth(&facts, volume))
        r = open_growth(reconciler, volume, &facts);
    *ret_facts = facts;
    *ret_decision = decide(&facts);
    return r;
}

/* Kata's Rust runtime makes the directory that shows the guest's path when the container exists,
 * long after its bundle. */
static bool wants_guest_path(const struct store_volume *volume, enum decide_action action)
{
    return action == ACTION_GROW_GUEST && volume->guest_path[0] != '/';
}

static int bind_and_judge(struct reconciler *reconciler, struct store_volume *volume,
                          struct decide_facts *ret_facts, struct decision *ret_decision)
{
    bool mismatch = false;
    int r = bind_volume(reconciler, volume, &mismatch);

    if (r < 0)
        return r;
    actor_cancel_stale(reconciler->actor, volume);
    return judge(reconciler, volume, mismatch, ret_facts, ret_decision);
}

static int look_for_guest_path(struct reconciler *reconciler, struct store_volume *volume,
                               struct decide_facts *facts, struct decision *decision)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    int r;

    if (!wants_guest_path(volume, decision->action) ||
        actor_is_acting(reconciler->actor, volume->volume_id))
        return 0;
    memcpy(sandbox_id, volume->sandbox_id, sizeof(sandbox_id));
    r = look_at_sandbox(reconciler, sandbox_id);
    if (r == 0)
        r = store_get_volume(reconciler->store, volume->volume_id, volume);
    return r < 0 ? r : bind_and_judge(reconciler, volume, facts, decision);
}

int reconcile_volume(struct reconciler *reconciler, int64_t volume_id)
{
    struct store_volume volume;
    struct decide_facts facts;
    struct decision decision;
    int r;

    r = store_get_volume(reconciler->store, volume_id, &volume);
    if (r == -ENOENT)
        return 0;
    if (r == 0 && volume.status == STORE_PRESENT && !reconciler->devices_are_fresh)
        r = refresh_device(reconciler, &volume);
    if (r == 0)
        r = bind_and_judge(reconciler, &volume, &facts, &decision);
    if (r == 0)
        r = look_for_guest_path(reconciler, &volume, &facts, &decision);
    if (r < 0)
        return r;
    actor_withdraw(reconciler->actor, volume_id, decision.action);
    r = set_state(reconciler, &volume, &decision);
    if (r == 0)
        r = note_evidence(reconciler, &volume, &decision);
    if (r == 0)
        r = note_resizable(reconciler, &volume, &facts);
    if (r < 0)
        return r;
    if (decision.action == ACTION_WAIT)
        return wait_until_still(reconciler, &volume);
    return decision.action == ACTION_NONE ? end_waiting(reconciler, &volume, &facts)
                                          : begin_act(reconciler, &volume, decision.action);
}
