/* SPDX-License-Identifier: Apache-2.0 */
/* drive_pass.c - decides the next act of a drive in a reconcile pass, by the table in
 * decide/decide_drive.h and by what the table does not know: claims, growth, limits and containers.
 */
#include "lib/clock.h"
#include "lib/process.h"
#include "reconciler/drive/drive_work.h"

/* ---- the facts for the table ---- */

/* After so many unmounts in a row without an answer, the guest of a drive that is unmounted already
 * is not asked again: the VMM takes the disk away. */
enum { UNMOUNT_TIMEOUTS = 5 };

static enum drive_in_guest in_guest(const struct drive_work *work)
{
    const enum drive_state state = work->row.state;

    if (work->guest != DRIVE_IN_GUEST_MOUNTED)
        return work->guest;
    /* It may lack some containers: another mount call tells. */
    if (state == DRIVE_SEEN && store_drive_mount_has_containers(&work->row))
        return DRIVE_IN_GUEST_ABSENT;
    /* The guest was asked before the VM had the disk. What it has under this drive's serial is then
     * of an earlier one. */
    if (work->vmm == DRIVE_IN_VMM_ABSENT && (state == DRIVE_REQUESTED || state == DRIVE_CLAIMED))
        return DRIVE_IN_GUEST_ABSENT;
    return DRIVE_IN_GUEST_MOUNTED;
}

/* Whether the guest may have got the device back since it last removed it: such a guest scans its
 * bus at the mount of any drive. Not if it probably hangs and has nothing left to write: then the
 * VMM takes the disk away. */
static bool may_return(const struct drive_work *work)
{
    const bool is_left_to_the_vmm = work->unmount_timeouts >= UNMOUNT_TIMEOUTS &&
                                    drive_state_is_flushed(work->row.state) &&
                                    work->guest != DRIVE_IN_GUEST_MOUNTED;

    return work->vmm > DRIVE_IN_VMM_ABSENT && !work->guest_unmounted && !work->lacks_agent &&
           !is_left_to_the_vmm && drive_act_makes_serial(work);
}

struct drive_decision drive_work_ask_table(const struct drive_work *work)
{
    /* The disk was never claimed, so the VMM got nothing and need not be asked. A VMM without a
     * monitor would never answer. */
    const bool was_given_nothing = work->vmm == DRIVE_IN_VMM_UNKNOWN && !work->row.has_disk &&
                                   work->row.state == DRIVE_REQUESTED &&
                                   drive_has_failed(&work->row);
    const struct drive_facts facts = {
        .state = work->row.state,
        .vm_is_alive = work->row.sandbox_is_alive,
        .is_wanted = work->row.wanted,
        .is_open = work->disk >= 0,
        .may_return = may_return(work),
        .vmm = was_given_nothing ? DRIVE_IN_VMM_ABSENT : work->vmm,
        .guest = in_guest(work),
    };

    return drive_decide(&facts);
}

/* ---- the next act ---- */

static const char *why_lost(const struct store_drive_mount *row)
{
    if (row->sandbox_is_alive)
        return "another client removed the disk from the VM; data that was not synced is missing "
               "on it";
    return drive_state_is_flushed(row->state)
               ? "the VM ended; the guest had confirmed that it had unmounted the disk"
               : "the VM ended before the guest confirmed that it had unmounted the disk; data "
                 "that was not synced is missing on it";
}

static int advance(struct drive_work *work, enum drive_state state)
{
    return state == work->row.state
               ? 0
               : drive_work_set_state(work, state, work->row.status, work->row.message);
}

static int begin_act(struct drive_work *work, unsigned act, enum drive_state state)
{
    int r;

    work->act = act;
    if (!drives_have_slot(work->drives, work)) {
        work->due = work->lacks_slot = true;
        work->waiting_to_detach = drive_acts[act].does & ACT_TAKES_OUT;
        return 0;
    }
    r = store_get_helper_sandbox(work->drives->context->store, work->row.sandbox_ref,
                                 &work->sandbox);
    work->step = DRIVE_DECIDED;
    return r < 0 ? r : advance(work, state);
}

/* Whoever attaches the disk elsewhere next relies on this answer: STATUS_OK, or STATUS_UNAVAILABLE
 * with a text. While the VM runs, the VMM must report that it does not have the disk, its process
 * must not have it open, and an exclusive open of the disk must succeed. The report alone does not
 * count, because a VMM that was taken over may keep what it was told to give back.
 *
 * A sandbox ends with its VMM, or when another VMM runs under its id. A VMM that was killed may
 * still live then, because a thread waits for storage, so its process is looked for. The disk is
 * not examined then: it is free once that process is gone, and may have a new, rightful user
 * already. Returns 0, or a failure of the store. */
static int check_process(const struct drive_work *work, enum status_code *ret_code,
                         struct error *error)
{
    const struct store_drive_mount *row = &work->row;
    const bool is_planned = drive_phase(row->state) == DRIVE_PLANNED;
    const struct hypervisor_disk disk = drive_disk_identity(&row->disk);
    struct store_helper_run sandbox;
    int r;

    *ret_code = STATUS_OK;
    if (!row->has_disk && is_planned)
        return 0; /* no VMM got the disk, or may have got it */
    r = store_get_helper_sandbox(work->drives->context->store, row->sandbox_ref, &sandbox);
    if (r < 0)
        return r;
    if (row->sandbox_is_alive) {
        if (row->has_disk && !is_planned && hypervisor_may_hold(sandbox.vmm_pid, &disk))
            *ret_code = (enum status_code)error_set(
                error, STATUS_UNAVAILABLE,
                "process %d, the VMM of sandbox %s, says that it does not have the drive, and it "
                "may have the disk open",
                (int)sandbox.vmm_pid, sandbox.sandbox_id);
        return 0;
    }
    r = process_has_ended(sandbox.vmm_pid, sandbox.vmm_start_ns);
    if (r > 0)
        return 0;
    *ret_code = STATUS_UNAVAILABLE;
    if (r < 0)
        (void)error_set_errno(error, r,
                              "cannot tell whether process %d, the VMM of sandbox %s, has ended",
                              (int)sandbox.vmm_pid, sandbox.sandbox_id);
    else
        (void)error_set(error, STATUS_UNAVAILABLE,
                        "process %d, the VMM of sandbox %s, has not ended, although the sandbox "
                        "has: it may have the disk open",
                        (int)sandbox.vmm_pid, sandbox.sandbox_id);
    return 0;
}

static int end_drive(struct drive_work *work, enum drive_state state, bool has_free_disk)
{
    const struct store_drive_mount *row = &work->row;
    struct error error = {0};
    enum status_code code;
    int r = check_process(work, &code, &error);

    if (r < 0)
        return r;
    if (code != STATUS_OK) {
        work->result = (struct drive_result){.status = code, .error = error};
        if (work->act != DRIVE_END)
            work->failures = 0; /* earlier failures do not predict how soon a process ends */
        work->act = DRIVE_END;
        drive_work_log_failure(work);
        return drive_work_retry_later(work, code);
    }
    if (row->sandbox_is_alive && state != DRIVE_LOST && row->has_disk &&
        row->disk.kind == DEVICE_KIND_BLOCK && !has_free_disk)
        return begin_act(work, DRIVE_END, row->state); /* checks that the disk is free */
    drive_work_drop_disk(work);
    work->next_ns = 0;
    if (state == DRIVE_LOST)
        return drive_work_set_state(
            work, state, drive_status_heals(row->status) ? STATUS_OK : row->status, why_lost(row));
    if (drive_has_failed(row))
        return drive_work_set_state(work, DRIVE_FAILED, row->status, row->message);
    if (state == DRIVE_FAILED)
        return drive_work_set_state(work, state, STATUS_NOT_FOUND,
                                    "the VM ended before the disk was mounted");
    return drive_work_set_state(work, state, STATUS_OK, "");
}

/* A VM that has ended does not answer. And a detach does not wait for a long mount if the guest
 * cancels that mount when asked to unmount. */
static bool is_overtaken(const struct drive_work *work)
{
    if (work->step != DRIVE_RUNNING)
        return false;
    return !work->row.sandbox_is_alive ||
           (!work->row.wanted && !work->is_held &&
            (work->act == DRIVE_MOUNT || work->act == DRIVE_LOOK_GUEST ||
             work->act == DRIVE_ENTER) &&
            !drive_guest_must_end(&work->guest_call));
}

/* Without a claim, somebody may have opened the disk meanwhile. */
static bool must_claim_again(const struct drive_work *work, const struct drive_decision *decision)
{
    return (work->vmm == DRIVE_IN_VMM_HAS || work->vmm == DRIVE_IN_VMM_PARTLY) &&
           decision->act != DRIVE_REMOVE &&
           (!work->tried_claim || drive_acts[decision->act].does & ACT_MAKES_WRITER) &&
           drive_act_needs_claim(work);
}

/* If the guest has lost the drive, this call mounts it, so the claim is needed. */
static bool must_enter(const struct drive_work *work)
{
    return !work->enter_ns && work->row.state == DRIVE_READY &&
           store_drive_mount_has_containers(&work->row) && !drive_act_needs_claim(work);
}

/* A file system that cannot be grown does not keep containers from getting the drive. After a
 * failed growth it is unknown whether the guest still has the drive, so DRIVE_IN_GUEST_UNKNOWN is
 * accepted. */
static bool may_enter_meanwhile(const struct drive_work *work)
{
    return work->waits_to_grow && work->row.wanted && work->vmm == DRIVE_IN_VMM_HAS &&
           work->guest != DRIVE_IN_GUEST_ABSENT && must_enter(work);
}

/* The table asks for nothing: what else a ready drive may need. */
static int decide_ready(struct drive_work *work, enum drive_state state)
{
    if (work->has_new_limits)
        return begin_act(work, DRIVE_LIMIT, state);
    work->new_bytes = drive_disk_growth(work);
    if (work->vmm_bytes < work->new_bytes)
        return begin_act(work, DRIVE_RESIZE, state);
    if (must_enter(work))
        return begin_act(work, DRIVE_ENTER, state);
    if (work->new_bytes > 0)
        return begin_act(work, DRIVE_GROW, state);
    work->failures = 0;
    return advance(work, state);
}

/* A VM that has ended has no drives. */
static int decide_list(struct drive_work *list)
{
    int r = store_get_helper_sandbox(list->drives->context->store, list->row.sandbox_ref,
                                     &list->sandbox);

    list->due = false;
    if (r < 0)
        return r;
    if (!list->sandbox.is_alive) {
        drive_act_stop(list);
        drives_give_slots(list->drives);
        list->step = DRIVE_IDLE;
        list->row.state = DRIVE_LOST;
    } else if (list->step == DRIVE_IDLE && !list->is_listed &&
               !drive_state_is_end(list->row.state)) {
        return begin_act(list, DRIVE_LIST_VMM, list->row.state);
    }
    return 0;
}

static int decide(struct drive_work *work)
{
    struct drive_decision decision;
    bool has_free_disk = work->has_free_disk;
    int r = drive_work_read(work);

    if (r < 0)
        return r;
    work->has_free_disk = false;
    if (is_overtaken(work)) {
        drive_act_stop(work);
        drives_give_slots(work->drives);
        work->step = DRIVE_IDLE;
        work->guest = DRIVE_IN_GUEST_UNKNOWN;
    }
    work->due = false;
    if (work->step != DRIVE_IDLE)
        return 0;
    /* The pause applies to a VM that runs; once it has ended, only DRIVE_END waits. */
    if ((work->row.sandbox_is_alive || work->act == DRIVE_END) && work->next_ns > clock_boottime())
        return may_enter_meanwhile(work) ? begin_act(work, DRIVE_ENTER, work->row.state) : 0;
    work->has_new_limits = work->has_new_limits && work->row.wanted;
    decision = drive_work_ask_table(work);
    if (decision.act == DRIVE_END)
        return end_drive(work, decision.state, has_free_disk);
    /* The VM has parts of a device of this name, which were left under a row that was lost: this
     * drive's disk is not known yet. */
    if (decision.act == DRIVE_ATTACH && !work->row.has_disk)
        return begin_act(work, DRIVE_CLAIM, work->row.state);
    if (must_claim_again(work, &decision))
        return begin_act(work, DRIVE_RECLAIM, work->row.state);
    /* The disk has grown since it was claimed. The VMM takes the new size before the mount, because
     * the guest compares the size of the disk with the one in the request. The file system is grown
     * after the mount. */
    if (decision.act == DRIVE_MOUNT) {
        work->new_bytes = drive_disk_growth(work);
        if (work->vmm_bytes < work->new_bytes)
            return begin_act(work, DRIVE_RESIZE, work->row.state);
    }
    if (decision.act == DRIVE_DO_NOTHING)
        return decide_ready(work, decision.state);
    if (decision.act == DRIVE_ANSWER) {
        work->failures = 0;
        work->due = work->vmm_bytes > work->row.disk.size_bytes;
        return advance(work, decision.state);
    }
    if (decision.act == DRIVE_UNMOUNT && work->is_held)
        return begin_act(work, DRIVE_LOOK_GUEST, decision.state);
    work->is_held = false;
    return begin_act(work, decision.act, decision.state);
}

int drive_work_decide(struct drive_work *work)
{
    bool waited = work->waiting_to_detach;
    int r;

    work->waiting_to_detach = false;
    r = work->drive_ref ? decide(work) : decide_list(work);
    if (waited && !work->waiting_to_detach)
        drives_give_slots(work->drives); /* for the drives that let it go first */
    return r;
}
