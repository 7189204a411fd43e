/* SPDX-License-Identifier: Apache-2.0 */
/* drive_work.h - a drive in memory: what was last read from its VMM and guest, and the act that
 * runs. Private to reconciler/drive/. */
#pragma once

#include "agent-client/drive_client.h"
#include "hypervisor/hypervisor.h"
#include "lib/loop.h"
#include "reconciler/core/context.h"
#include "reconciler/decide/decide_drive.h"
#include "reconciler/drive/claim.h"
#include "reconciler/drive/drives.h"
#include "reconciler/helper/helper.h"
#include "store/drive_mounts.h"
#include "store/store.h"

struct container_run;
struct helper_run;

/* Acts beside those of the table: LIMIT sets the limits that a client asked for. If the disk of a
 * ready drive has grown, RESIZE has the VMM take the new size, then GROW has the guest grow the
 * file system. ENTER mounts a ready drive into restarted containers. RECLAIM makes a claim that
 * crustd has to keep again. LIST asks a VMM for all drives that it has (drive_wait.c). */
enum {
    DRIVE_LIMIT = DRIVE_ACTS,
    DRIVE_RESIZE,
    DRIVE_GROW,
    DRIVE_ENTER,
    DRIVE_RECLAIM,
    DRIVE_LIST_VMM,
    DRIVE_ALL_ACTS,
};

/* What an act does, in one table (drive_acts.c). */
enum {
    ACT_ON_VMM = 1 << 0,
    ACT_ON_GUEST = 1 << 1,
    ACT_ASKS_GUEST = 1 << 2, /* and the guest may not answer */
    ACT_MOUNTS = 1 << 3,
    ACT_TAKES_OUT = 1 << 4,
    ACT_MAKES_WRITER = 1 << 5, /* the guest may write afterwards, so the disk has to be claimed */
};

struct drive_act_row {
    const char *name;
    unsigned does;
    enum hypervisor_act vmm;
    enum drive_client_act guest;
};

extern const struct drive_act_row drive_acts[DRIVE_ALL_ACTS];

enum drive_step {
    DRIVE_IDLE,
    DRIVE_DECIDED, /* in this pass: starts once that is committed */
    DRIVE_RUNNING,
    DRIVE_FINISHED, /* the next pass records the result */
};

/* ---- guest.c, guest_container.c: the guest's part ---- */

/* A guest mounts and unmounts the disk of a drive, and says whether it is mounted there.
 *
 * There are two routes. crust-guest-agent in the guest (guest.c) is called by
 * crust.guest.v1.Drives. In a guest that has only kata-agent (guest_container.c) the same calls are
 * made by crustd's helper, in containers that kata-agent runs in its own mount namespace.
 *
 * The only state kept between calls is the recorded route. Each call may be repeated, also after
 * crustd was killed during one. */

enum { DRIVE_REMARK_BYTES = 256 };

/* The result of an act. Facts about the VMM and the guest go into struct drive_work at once. */
struct drive_result {
    enum status_code status;
    bool is_brief;      /* the act failed because another client has the monitor for a moment */
    bool wants_disk;    /* the act failed because the VMM needs a descriptor of the disk */
    bool retry_at_once; /* the guest is still at work: ask again at once */
    bool by_container;  /* the guest was asked at the price of a container */
    struct store_drive_mount_disk disk; /* CLAIM; also filled if the claim was refused */
    bool is_taken;                      /* somebody unknown has the disk open exclusively */
    bool is_searched;                   /* for whom, once */
    bool is_by_name;                    /* END: the disk was opened by the kernel's name */
    char guest_device[STORE_NAME_BYTES];
    char serial[DRIVE_SERIAL_CHARS + 1]; /* if the VMM chose it and has the drive, else "" */
    char remark[DRIVE_REMARK_BYTES];
    struct error error;
};

/* Its owner fills in the first members, and keeps what they point to. */
struct drive_guest_call {
    const struct context *context; /* NULL: no call runs */
    const struct store_drive_mount *drive;
    const struct store_helper_run *sandbox;
    /* LIST only reads. MOUNT is OK if the drive is mounted as the row asks for, synced, and in all
     * of the containers; mounted and FAILED_PRECONDITION: not in one of them. UNMOUNT is OK if
     * nobody in the guest has the disk, and all data is written to it. */
    enum drive_client_act act;
    uint64_t bytes;   /* GROW: the disk's present size. MOUNT: the same; 0: the recorded size */
    uint64_t ends_at; /* of the whole call, on clock_boottime() */
    struct drive_result *result; /* the status is one of those in agent-client/drive_call.h */
    void (*done)(struct drive_guest_call *call);

    enum drive_in_guest guest; /* at the end of the call */

    /* For the route by crust-guest-agent. */
    struct drive_client *client;
    size_t containers; /* MOUNT: asked for */

    /* For the route by a container. */
    int share;                  /* the sandbox's shared directory; -1: not open */
    struct helper_guest traits; /* asked whether the guest has the share */
    bool share_comes;           /* the runtime makes the share with the sandbox's first container */
    char directory[HELPER_NAME_BYTES]; /* there, of the drive's container */
    struct helper_run *helper;
    struct container_run *container;
};

/* Exactly one `done` follows, perhaps from within. */
void drive_guest_start(struct drive_guest_call *call);
/* Ends the conversation, if there is one, but not the work in the guest. */
void drive_guest_stop(struct drive_guest_call *call);
/* Whether the call should not be stopped while its VM runs, because it is creating, running or
 * removing a container in the guest. A container whose creation is interrupted may keep the disk
 * mounted for good, and one that runs a helper would stay until crustd starts again. */
bool drive_guest_must_end(const struct drive_guest_call *call);

/* The time that is left to the call; at least 1. */
uint64_t drive_guest_time(const struct drive_guest_call *call);

/* These report to the owner: nothing may follow them. */
void drive_guest_finish(struct drive_guest_call *call);
void drive_guest_fail(struct drive_guest_call *call, enum status_code status, const char *text);
void drive_guest_fail_errno(struct drive_guest_call *call, int r, const char *what);

/* Fills in the result, which is reported later. */
void drive_guest_note_refusal(struct drive_guest_call *call, enum status_code status,
                              const char *text);

/* An act as a text for a helper (drive_client.h), and the helper's answer to the call's own act. 0,
 * -EBADMSG, -EMSGSIZE, -ENOMEM. */
int drive_guest_make_text(struct drive_guest_call *call, enum drive_client_act act,
                          char **ret_text);
void drive_guest_take_text(struct drive_guest_call *call, const char *text, size_t length);

/* guest_container.c: makes the call by kata-agent and helpers. */
void drive_guest_use_container(struct drive_guest_call *call);
void drive_guest_drop_container(struct drive_guest_call *call);
/* Whether the guest has the drive's container, or may have it. */
bool drive_guest_is_held(struct drive_guest_call *call);

/* ---- a drive ---- */

struct drive_work {
    struct drive_work *next;
    struct drives *drives;
    int64_t drive_ref; /* 0: the list of a VM's drives, of whose row only the sandbox is used */
    char sandbox_id[STORE_SANDBOX_ID_BYTES];

    enum drive_in_vmm vmm;
    enum drive_in_guest guest;
    int disk;                              /* the claimed disk of the host; -1: none */
    struct store_drive_mount_disk claimed; /* its identity */
    struct store_drive_mount_disk backing; /* of a loop device */
    bool wants_disk;
    bool lacks_claim;     /* a claim that crustd has to keep could not be made again */
    bool tried_claim;     /* since the last act other than RECLAIM */
    bool failed_to_enter; /* the row's status and message report this */
    bool has_free_disk;   /* the last act found the disk free */
    bool guest_unmounted; /* the guest said so after the last removal was asked of the VMM */
    bool lacks_agent; /* since then no agent was found in the guest, which could scan for disks */
    uint32_t unmount_timeouts; /* unmounts in a row that the guest did not answer */

    bool due, waits_to_grow; /* due: to be decided; waits_to_grow: a growth has failed */
    bool lacks_slot;         /* waits until another act has ended */
    bool waiting_to_detach;  /* and the act that waits is an unmount or a removal */
    uint32_t failures;       /* in a row */
    uint64_t next_ns;        /* CLOCK_BOOTTIME of the next attempt; 0: none waits */
    uint64_t enter_ns;       /* when DRIVE_ENTER is due again; 0: at once */

    enum drive_step step;
    unsigned act; /* enum drive_act, or one of the above */
    uint64_t deadline_ns;
    struct store_drive_mount row; /* as of the last decision; its options are owned */
    struct store_helper_run sandbox;
    uint64_t new_bytes; /* the disk has grown to this */
    uint64_t vmm_bytes; /* the VMM has taken this size; 0: not known */
    bool is_held; /* the guest refused to unmount it and is asked whether it is still mounted */
    struct error held; /* the error that says what holds it */
    bool has_new_limits;
    struct drive_limits new_limits; /* a client waits for these */
    struct hypervisor_call *vmm_call;
    struct drive_guest_call guest_call; /* CLAIM: only its traits */
    struct drive_in_use_call search;
    struct drive_claim_call claim;
    struct drive_result result;

    /* LIST: whether the VM has answered or failed to, and its unrecorded drives; owned. */
    bool is_listed;
    struct hypervisor_drive_entry *entries;
    size_t entry_count;
};

struct drives {
    const struct context *context;
    bool loaded; /* the rows that have not ended are in the list */
    bool dirty;  /* something was committed that is not synced */
    struct drive_work *works;
    struct drive_wait *waits;
    bool has_news;           /* a pass has handled drives since clients were last answered */
    bool has_new_waits;      /* their answer may be known already */
    struct loop_timer timer; /* the next attempt of any */
};

/* ---- drives.c: the list of drives ---- */

struct drive_work *drive_work_find(const struct drives *drives, int64_t drive_ref);
/* Due at once. NULL: no memory. The second finds the work of a drive that has one. */
struct drive_work *drive_work_new(struct drives *drives, int64_t drive_ref, const char *sandbox_id);
struct drive_work *drive_work_add(struct drives *drives, int64_t drive_ref, const char *sandbox_id);
/* To be decided in the next pass, whatever waits. */
void drive_work_hurry(struct drive_work *work);
void drive_work_drop_disk(struct drive_work *work);
/* To be called when the state of a drive on this disk has changed: volumes on the disk may share it
 * with the drive now, or no longer, so they are decided again; those on a regular file at the next
 * sweep. 0, or a failure of the store. */
int drives_note_volumes(const struct drives *drives, const struct store_drive_mount_disk *disk);
/* Whether the work's act may start now: there are bounds on all acts and on its sandbox's, and acts
 * of other drives that exclude it. */
bool drives_have_slot(const struct drives *drives, const struct drive_work *work);
/* An act has ended, so drives that wait for a slot may have one. */
void drives_give_slots(struct drives *drives);

/* ---- drive_record.c: records the result of an act ---- */

/* Within the pass. 0, or a failure of the store. */
int drive_work_record(struct drive_work *work);
int drive_work_read(struct drive_work *work); /* its row */
int drive_work_set_state(struct drive_work *work, enum drive_state state, enum status_code status,
                         const char *message);
/* Records the failure in work->result, and answers clients with the status. */
int drive_work_retry_later(struct drive_work *work, enum status_code status);
void drive_work_log_failure(const struct drive_work *work);

/* The attach failed for a reason that does not heal, and the drive is being removed. */
bool drive_has_failed(const struct store_drive_mount *row);
bool drive_status_heals(enum status_code status);

/* ---- drive_pass.c: decides the next act ---- */

/* Within the pass. 0, or a failure of the store. */
int drive_work_decide(struct drive_work *work);
/* The decision of the table in decide/decide_drive.h. */
struct drive_decision drive_work_ask_table(const struct drive_work *work);

/* ---- drive_acts.c: carries out one act ---- */

/* Starts the act that was decided and committed. */
void drive_act_start(struct drive_work *work);
/* Whether the drive's VMM gives it a serial of its own. */
bool drive_act_makes_serial(const struct drive_work *work);
/* A VMM that opens the disk itself makes no claim, so crustd keeps the claim for as long as the VMM
 * has the drive, and makes it again after a restart. */
bool drive_act_needs_claim(const struct drive_work *work);
/* Cancels the act. */
void drive_act_stop(struct drive_work *work);
/* The disk was claimed or checked. */
void drive_act_disk_done(struct drive_work *work, enum status_code status,
                         const struct error *error);

/* ---- drive_disk.c: claims the host's disk, and checks that it is free in the end ---- */

/* The new size of a ready drive's disk; 0: it has not grown. */
uint64_t drive_disk_growth(const struct drive_work *work);
/* Opens and checks the host's disk; drive_act_disk_done() follows, as it does below. STATUS_OK:
 * work->disk and work->result.disk. If somebody unknown has it open exclusively:
 * work->result.is_taken, and the disk. */
void drive_disk_claim(struct drive_work *work);
struct hypervisor_disk drive_disk_identity(const struct store_drive_mount_disk *disk);
/* The drive that crustd has this block device open for; NULL. */
const struct drive_work *drive_disk_find_claim(const struct drives *drives,
                                               const struct store_drive_mount_disk *disk);
/* STATUS_OK if nobody has the disk open, else STATUS_UNAVAILABLE with a text. */
void drive_disk_check_free(struct drive_work *work);

/* ---- drive wait ----------------------------------------------------------------------------- */

/* The clients that wait for drives. */

enum drive_wait_kind { WAIT_ATTACH, WAIT_DETACH, WAIT_LIMIT };

struct drive_wait {
    struct drive_wait *next;
    struct drives *drives;
    enum drive_wait_kind kind;
    struct drive_work *work; /* outlives the wait; NULL: there is no such drive */
    char drive_id[DRIVE_ID_CHARS + 1];
    bool asks_vms;  /* the id has no row, but a VM may have it: the VMs are asked first */
    bool has_asked; /* in a pass */
    bool is_told;   /* an act has ended so; what the row says of the drive comes before it */
    enum status_code status;
    struct error error;
    reconciler_drive_done *done;
    void *userdata;
};

/* row: the one that the client waits for; its drive_ref is 0: the detach of an id without one. */
enum status_code drive_wait_begin(struct drives *drives, enum drive_wait_kind kind,
                                  const char *drive_id, const struct store_drive_mount *row,
                                  reconciler_drive_done *done, void *userdata,
                                  struct drive_wait **ret_wait, struct error *error);
struct reconciler_drive drive_describe(const struct store_drive_mount *row);

/* Within the pass: handles detaches of ids without a row. 0, or a failure of the store. */
int drive_waits_record(struct drives *drives);
/* Within the pass: an act of the drive has ended so. */
void drive_waits_note(struct drive_work *work, enum status_code status);
/* After the commit: whether any client can be answered; and, once that is synced, answers them. */
bool drive_waits_are_over(const struct drives *drives);
void drive_waits_tell(struct drives *drives);
void drive_waits_fail(struct drives *drives, enum status_code code, const char *why);
void drive_waits_done(struct drives *drives);

/* ---- drives that a VM has and the database does not ---- */

/* Within the pass: a VM has answered or failed to. */
void drive_unrecorded_record_list(struct drive_work *list);
bool drive_unrecorded_have(const struct drives *drives, const char *drive_id);
/* To be called when a row has been made for the drive. */
void drive_unrecorded_forget(struct drives *drives, const char *sandbox_id, const char *drive_id);
/* Whether the row was made for such a drive, so that its place in the guest is unknown. */
bool drive_is_unrecorded(const struct store_drive_mount *row);
