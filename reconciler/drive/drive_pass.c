/* SPDX-License-Identifier: Apache-2.0 */
/* drive_pass.c - decides the next act of a drive in a reconcile pass, by the table in
 * decide/drive.h and by what the table does not know: claims, growth, limits and containers.
 */
#include "lib/clock.h"
#include "lib/process.h"
#include "reconciler/drive/drive_work.h"

static const char *why_lost(const struct store_drive_mount *row)
{
    if (row->sandbox_is_alive)
        return "another client removed the disk from the VM; data that was not synced is missing "
               "on it";
    return drive_state_is_flushed(row->state)
               ? "the VM ended; the guest had confirmed that it had unmounted the disk"
               : "the VM ended before the guest confirmed that it had unmounted the disk; data "
                 "that "
                 "was not synced is missing on it";
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
        work->waits_to_leave = drive_act_takes_out(act);
        return 0;
    }
    r = store_get_helper_sandbox(work->drives->context->store, work->row.sandbox_ref,
                                 &work->sandbox);
    work->step = DRIVE_DECIDED;
    return r < 0 ? r : advance(work, state);
}

static int keep_for_process(struct drive_work *work, enum status_code code,
                            const struct error *error)
{
    work->result = (struct drive_result){.status = code, .error = *error};
    if (work->act != DRIVE_END)
        work->failures = 0; /* earlier failures do not predict how soon a process ends */
    work->act = DRIVE_END;
    drive_work_log_failure(work);
    return drive_work_retry_later(work, code);
}

static int end_drive(struct drive_work *work, enum drive_state state, bool has_free_disk)
{
    const struct store_drive_mount *row = &work->row;
    struct error error = {0};
    enum status_code code;
    int r = drive_check_process(work, &code, &error);

    if (r < 0)
        return r;
    if (code != STATUS_OK)
        return keep_for_process(work, code, &error);
    if (row->sandbox_is_alive && state != DRIVE_LOST && drive_disk_must_be_free(work) &&
        !has_free_disk)
        return begin_act(work, DRIVE_END, row->state);
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

static bool must_end(const struct drive_work *work)
{
    return work->guest_call && work->drives->guest->call_must_end(work->guest_call);
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
            !must_end(work));
}

/* The pause applies to a VM that runs; once it has ended, only DRIVE_END waits. */
static bool waits_for_next_attempt(const struct drive_work *work)
{
    return (work->row.sandbox_is_alive || work->act == DRIVE_END) &&
           work->next_ns > clock_boottime();
}

/* Without a claim, somebody may have opened the disk meanwhile. */
static bool must_claim_again(const struct drive_work *work, const struct drive_decision *decision)
{
    return (work->vmm == DRIVE_IN_VMM_HAS || work->vmm == DRIVE_IN_VMM_PARTLY) &&
           decision->act != DRIVE_REMOVE &&
           (!work->tried_claim || drive_act_makes_writer(decision->act)) &&
           drive_act_needs_claim(work);
}

/* The VM has parts of a device of this name, which were left under a row that was lost: this
 * drive's disk is not known yet. */
static bool must_claim_first(const struct drive_work *work, const struct drive_decision *decision)
{
    return decision->act == DRIVE_ATTACH && !work->row.has_disk;
}

/* The disk has grown since it was claimed. The VMM takes the new size before the mount, because the
 * guest compares the size of the disk with the one in the request. The file system is grown after
 * the mount. */
static bool must_resize_first(struct drive_work *work, const struct drive_decision *decision)
{
    return decision->act == DRIVE_MOUNT && (work->new_bytes = drive_disk_growth(work)) > 0 &&
           work->vmm_bytes < work->new_bytes;
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
    if (waits_for_next_attempt(work))
        return may_enter_meanwhile(work) ? begin_act(work, DRIVE_ENTER, work->row.state) : 0;
    work->has_new_limits = work->has_new_limits && work->row.wanted;
    decision = drive_work_ask_table(work);
    if (decision.act == DRIVE_END)
        return end_drive(work, decision.state, has_free_disk);
    if (must_claim_first(work, &decision))
        return begin_act(work, DRIVE_CLAIM, work->row.state);
    if (must_claim_again(work, &decision))
        return begin_act(work, DRIVE_RECLAIM, work->row.state);
    if (must_resize_first(work, &decision))
        return begin_act(work, DRIVE_RESIZE, work->row.state);
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
    bool waited = work->waits_to_leave;
    int r;

    work->waits_to_leave = false;
    r = decide(work);
    if (waited && !work->waits_to_leave)
        drives_give_slots(work->drives); /* for the drives that let it go first */
    return r;
}

/* ---- drive facts ---------------------------------------------------------------------------- */

/* A drive's facts for the table in decide/drive.h. */

/* How often in a row a guest is asked to unmount a drive that it does not have mounted. */
enum { SILENCES = 5 };

/* The disk was never claimed, so the VMM got nothing and need not be asked. A VMM without a monitor
 * would never answer. */
static bool was_given_nothing(const struct drive_work *work)
{
    return work->vmm == DRIVE_IN_VMM_UNKNOWN && !work->row.has_disk &&
           work->row.state == DRIVE_REQUESTED && drive_has_failed(&work->row);
}

/* Mounted, but perhaps not in all containers: another mount call tells. */
static bool may_lack_containers(const struct drive_work *work)
{
    return work->row.state == DRIVE_SEEN && work->guest == DRIVE_IN_GUEST_MOUNTED &&
           store_drive_mount_has_containers(&work->row);
}

/* The guest was asked before the VM had the disk. What it has under this drive's serial is then of
 * an earlier one. */
static bool is_of_earlier_drive(const struct drive_work *work)
{
    return work->vmm == DRIVE_IN_VMM_ABSENT && work->guest == DRIVE_IN_GUEST_MOUNTED &&
           (work->row.state == DRIVE_REQUESTED || work->row.state == DRIVE_CLAIMED);
}

static enum drive_in_guest in_guest(const struct drive_work *work)
{
    return may_lack_containers(work) || is_of_earlier_drive(work) ? DRIVE_IN_GUEST_ABSENT
                                                                  : work->guest;
}

void drive_work_count_silence(struct drive_work *work)
{
    enum status_code status = work->result.status;

    if (work->act != DRIVE_UNMOUNT)
        return;
    if (status == STATUS_UNAVAILABLE || status == STATUS_DEADLINE_EXCEEDED)
        work->silences++;
    else
        work->silences = 0;
}

/* The guest probably hangs, and it has nothing to write to the disk. */
static bool is_left_to_the_vmm(const struct drive_work *work)
{
    return work->silences >= SILENCES && drive_state_is_flushed(work->row.state) &&
           work->guest != DRIVE_IN_GUEST_MOUNTED;
}

/* Such a guest scans its bus at the mount of any drive. */
static bool may_return(const struct drive_work *work)
{
    return work->vmm > DRIVE_IN_VMM_ABSENT && !work->is_out_of_guest && !work->lacks_agent &&
           !is_left_to_the_vmm(work) && drive_act_makes_serial(work);
}

struct drive_decision drive_work_ask_table(const struct drive_work *work)
{
    const struct drive_facts facts = {
        .state = work->row.state,
        .vm_is_alive = work->row.sandbox_is_alive,
        .is_wanted = work->row.wanted,
        .is_open = work->disk >= 0,
        .may_return = may_return(work),
        .vmm = was_given_nothing(work) ? DRIVE_IN_VMM_ABSENT : work->vmm,
        .guest = in_guest(work),
    };

    return drive_decide(&facts);
}

/* ---- drive end ------------------------------------------------------------------------------ */

/* Whether a drive may end. Whoever attaches its disk elsewhere next relies on this
 * answer. While the VM runs, the VMM must report that it does not have the disk, its process must
 * not have it open, and an exclusive open of the disk must succeed. A sandbox ends
 * with its VMM, or when another VMM runs under its id. A VMM that was killed may still live then,
 * because a thread waits for storage. So its process is looked for. The disk is not examined then:
 * it is free once that process is gone, and may have a new, rightful user already.
 */

/* Whether a VMM got the disk, or may have got it. */
static bool was_given(const struct store_drive_mount *row)
{
    return row->has_disk || drive_phase(row->state) != DRIVE_PLANNED;
}

/* What it says about the drive is its own word: a VMM that was taken over may keep what it was told
 * to give back. */
static void check_living(const struct drive_work *work, const struct store_helper_run *sandbox,
                         enum status_code *ret_code, struct error *error)
{
    const struct store_drive_mount *row = &work->row;
    const struct hypervisor_disk disk = drive_disk_identity(&row->disk);

    if (!row->has_disk || drive_phase(row->state) == DRIVE_PLANNED ||
        !hypervisor_drive_may_be_held(sandbox->vmm_pid, &disk))
        return;
    *ret_code = (enum status_code)error_set(
        error, STATUS_UNAVAILABLE,
        "process %d, the VMM of sandbox %s, says that it does not have the drive, and it may have "
        "the disk open",
        (int)sandbox->vmm_pid, sandbox->sandbox_id);
}

static void check_ended(const struct store_helper_run *sandbox, enum status_code *ret_code,
                        struct error *error)
{
    int r = process_has_ended(sandbox->vmm_pid, sandbox->vmm_start_ns);

    *ret_code = r > 0 ? STATUS_OK : STATUS_UNAVAILABLE;
    if (r < 0)
        (void)error_set_errno(error, r,
                              "cannot tell whether process %d, the VMM of sandbox %s, has ended",
                              (int)sandbox->vmm_pid, sandbox->sandbox_id);
    else if (r == 0)
        (void)error_set(error, STATUS_UNAVAILABLE,
                        "process %d, the VMM of sandbox %s, has not ended, although the sandbox "
                        "has: it may have the disk open",
                        (int)sandbox->vmm_pid, sandbox->sandbox_id);
}

int drive_check_process(const struct drive_work *work, enum status_code *ret_code,
                        struct error *error)
{
    struct store_helper_run sandbox;
    int r;

    *ret_code = STATUS_OK;
    if (!was_given(&work->row))
        return 0;
    r = store_get_helper_sandbox(work->drives->context->store, work->row.sandbox_ref, &sandbox);
    if (r < 0)
        return r;
    if (work->row.sandbox_is_alive)
        check_living(work, &sandbox, ret_code, error);
    else
        check_ended(&sandbox, ret_code, error);
    return 0;
}
