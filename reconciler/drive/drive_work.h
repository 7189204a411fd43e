/* SPDX-License-Identifier: Apache-2.0 */
/* drive_work.h - one drive at work: what was last read of it, and the act that runs. Private to
 * reconciler/drive/. */
#pragma once

#include "hypervisor/drive.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/decide/drive.h"
#include "reconciler/drive/drives.h"
#include "store/store.h"

struct drive_claim_call;
struct drive_in_use_call;
struct drive_work;
struct helper_guest;

/* Beside the acts of the table: a client wants other limits; the disk of a ready drive has grown,
 * and first the VMM takes its size, then the guest grows the file system; containers that were
 * restarted get a ready drive again; a claim that is crustd's to keep is made again. */
enum { DRIVE_LIMIT = DRIVE_ACTS, DRIVE_RESIZE, DRIVE_GROW, DRIVE_ENTER, DRIVE_RECLAIM };

/* error: NULL if STATUS_OK. */
typedef void drive_disk_done(struct drive_work *work, enum status_code status,
                             const struct error *error);

enum { DRIVE_REMARK_BYTES = 256 };

enum drive_step {
    DRIVE_IDLE,
    DRIVE_DECIDED, /* in this pass: starts once that is committed */
    DRIVE_RUNNING,
    DRIVE_FINISHED, /* the next pass records the result */
};

/* What an act came to. Facts are noted at once in the drive itself. */
struct drive_result {
    enum status_code status;
    bool is_brief;       /* of a failure: another client has the monitor for a moment */
    bool wants_disk;     /* the VMM needs the descriptor of the disk first */
    bool takes_its_time; /* the guest goes on with it: to be asked again at once */
    struct store_drive_mount_disk disk; /* CLAIM; also what was refused */
    bool is_taken;                      /* somebody who is not known has that */
    char guest_device[STORE_NAME_BYTES];
    char serial[DRIVE_SERIAL_CHARS + 1]; /* of a VMM that makes it, and has the drive; "" */
    char remark[DRIVE_REMARK_BYTES];
    struct error error;
};

/* What clients of a drive are told after the commit, unless its row says that they are done. */
struct drive_news {
    bool is_any;
    unsigned act; /* that they are about */
    enum status_code status;
    struct error error;
};

struct drive_work {
    struct drive_work *next;
    struct drives *drives;
    int64_t drive_ref;
    char sandbox_id[STORE_SANDBOX_ID_BYTES];

    enum drive_in_vmm vmm;
    enum drive_in_guest guest;
    char address[HYPERVISOR_DRIVE_ADDRESS_BYTES]; /* where the guest has it; "" unknown */
    int disk;                                     /* the host's disk, claimed for it; -1 */
    struct store_drive_mount_disk claimed;        /* the same */
    bool wants_disk;
    bool lacks_claim;     /* that crustd is to keep, and could not make again */
    bool tried_claim;     /* since the drive was last due to anything else */
    bool failed_to_enter; /* the row's status and message are of that */
    bool has_free_disk;   /* that was the act before this decision */
    bool is_out_of_guest; /* as it has said since the VMM was last asked to remove the drive */
    bool lacks_agent;     /* the guest, as far as is known since then: nothing scans for disks */
    uint32_t silences;    /* of the guest in a row, when it was told to unmount the drive */

    bool due, waits_to_grow; /* to be decided; growth is what has failed */
    bool lacks_slot;         /* until another act has ended */
    bool waits_to_leave;     /* it lacks one to be taken out */
    uint32_t failures;       /* in a row */
    uint64_t next_ns;        /* CLOCK_BOOTTIME of the next attempt; 0: none waits */
    uint64_t enter_ns;       /* when the guest is asked for its containers again; 0: at once */

    enum drive_step step;
    unsigned act; /* enum drive_act, or one of the above */
    uint64_t deadline_ns;
    struct store_drive_mount row; /* when it was last decided; its options are owned */
    struct store_helper_run sandbox;
    uint64_t new_bytes; /* the disk has grown to this */
    uint64_t vmm_bytes; /* the VMM has taken this size; 0: not known */
    bool is_held; /* the guest has refused to unmount it, and is asked whether it still has it */
    struct error held; /* by whom */
    bool has_new_limits;
    struct drive_limits new_limits; /* that a client waits for */
    struct hypervisor_drive_call *vmm_call;
    struct drive_guest_call *guest_call;
    struct helper_guest *traits;
    struct drive_in_use_call *search;
    struct drive_claim_call *claim;
    drive_disk_done *disk_done;
    struct drive_result result;
    struct drive_news news;
};

struct drives {
    const struct context *context;
    const struct drive_guest_ops *guest;
    bool loaded; /* the rows that have not ended are in the list */
    bool dirty;  /* something was committed that is not synced */
    struct drive_work *works;
    struct drive_wait *waits;
    bool has_news;                  /* since clients were told, a pass has had to do with drives */
    bool has_new_waits;             /* they may be over already */
    struct drive_listing *listings; /* what VMs have that is not on record */
    bool has_new_lists;             /* clients may wait for them */
    struct loop_timer timer;        /* the next attempt of any */
};

/* ---- drives.c: the list of drives ---- */

struct drive_work *drive_work_find(const struct drives *drives, int64_t drive_ref);
/* Due at once. NULL: no memory. */
struct drive_work *drive_work_add(struct drives *drives, int64_t drive_ref, const char *sandbox_id);
/* To be decided in the next pass, whatever waits. */
void drive_work_hurry(struct drive_work *work);
/* Ends its act where it is, and forgets what was read. */
void drive_work_forget(struct drive_work *work);
void drive_work_drop_disk(struct drive_work *work);
/* The state of a drive on this disk is another one: volumes on the disk may share it with the drive
 * now, or not any more, so they are decided again; those on a regular file with the next sweep. 0,
 * or a failure of the store. */
int drives_note_volumes(const struct drives *drives, const struct store_drive_mount_disk *disk);
/* Whether an act that talks to the VMM, or one that does not, may start. */
bool drives_have_slot(const struct drives *drives, const struct drive_work *work);
/* An act talks to this sandbox's VMM. */
bool drives_use_vmm(const struct drives *drives, const char *sandbox_id);
/* An act has ended, so drives that wait for a slot may have one. */
void drives_give_slots(struct drives *drives);
void drives_arm(struct drives *drives);

/* ---- drive_pass.c: its result recorded, its next act decided ---- */

/* Within the pass. 0, or a failure of the store. */
int drive_work_record(struct drive_work *work);
int drive_work_decide(struct drive_work *work);

/* It could not be attached, for a reason that does not heal, and is being taken out again. */
bool drive_has_failed(const struct store_drive_mount *row);

/* ---- drive_facts.c: what the table is told of it ---- */

/* An act has ended. */
void drive_work_count_silence(struct drive_work *work);
/* What the table says that it needs next. */
struct drive_decision drive_work_ask_table(const struct drive_work *work);

/* ---- drive_acts.c: one act, carried out ---- */

/* What was decided and committed. */
void drive_act_start(struct drive_work *work);
bool drive_act_is_on_vmm(unsigned act);
bool drive_act_takes_out(unsigned act);
/* Whether the drive's VMM gives it a serial of its own. */
bool drive_act_makes_serial(const struct drive_work *work);
/* A VMM that opens the disk by itself makes no claim, so that is crustd's for as long as the VMM
 * has the drive. After a restart it is made again. */
bool drive_act_needs_claim(const struct drive_work *work);
/* Ends what the act has started. */
void drive_act_stop(struct drive_work *work);

/* ---- drive_disk.c: the host's disk: claimed, and found free again ---- */

/* What the disk of a ready drive has grown to; 0: it has not. */
uint64_t drive_disk_growth(const struct drive_work *work);
/* Opens and judges the host's disk, for one act at a time; `done` comes from within only for a
 * failure. STATUS_OK: work->disk and work->result.disk. If somebody has it open exclusively who is
 * not known: work->result.is_taken, and the disk. */
void drive_disk_claim(struct drive_work *work, drive_disk_done *done);
/* The drive that crustd has this block device open for; NULL. */
const struct drive_work *drive_disk_find_claim(const struct drives *drives,
                                               const struct store_drive_mount_disk *disk);
/* Whether it is to be found free in the end; and whether nobody has it: STATUS_OK, or
 * STATUS_UNAVAILABLE with a text. */
bool drive_disk_must_be_free(const struct drive_work *work);
void drive_disk_check_free(struct drive_work *work, drive_disk_done *done);
/* Nobody waits for the disk any more. */
void drive_disk_stop(struct drive_work *work);

/* ---- drive_end.c: whether a drive may end ---- */

/* Whether the VMM of a sandbox that has ended is gone, if it may have had the drive's disk.
 * ret_code: STATUS_OK, or STATUS_UNAVAILABLE with a text. 0, or a failure of the store. */
int drive_check_process(const struct drive_work *work, enum status_code *ret_code,
                        struct error *error);
