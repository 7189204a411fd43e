/* SPDX-License-Identifier: Apache-2.0 */
/* drives.c - the list of drives, and their part of a reconcile pass.
 *
 * The list has one entry for each drive that has not ended. It is read from the store once the
 * first scan is complete, because only then is it known which VMs run. An entry leaves the list
 * when its row has ended and its clients were answered.
 */
#include "reconciler/drive/drives.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "reconciler/core/work_queue.h"
#include "reconciler/drive/drive_work.h"

/* ACTS is how many acts run at once. Of those that talk to a VMM one runs per sandbox, because a
 * monitor serves one client at a time. ACTS_OUT of them are reserved for drives that are being
 * removed: a mount may walk over a file system for minutes, and no detach waits for the mounts of
 * other drives, except in a Firecracker VM (see is_excluded()). One sandbox gets at most
 * 1/SANDBOX_PART of them, so a guest that does not answer cannot delay other sandboxes. LISTS is
 * how many VMs are asked for their drives, beside those acts. */
enum { ACTS = 16, ACTS_OUT = 4, SANDBOX_PART = 2, LISTS = 4 };

/* How many drives one pass decides, so that the loop is served in between. */
enum { DECISIONS = 64 };

/* ---- one entry ---- */

struct drive_work *drive_work_find(const struct drives *drives, int64_t drive_ref)
{
    struct drive_work *work = drives->works;

    while (work && work->drive_ref != drive_ref)
        work = work->next;
    return work;
}

struct drive_work *drive_work_new(struct drives *drives, int64_t drive_ref, const char *sandbox_id)
{
    struct drive_work *work = calloc(1, sizeof(*work));

    if (!work)
        return NULL;
    work->drives = drives;
    work->drive_ref = drive_ref;
    work->disk = -1;
    work->due = true;
    (void)snprintf(work->sandbox_id, sizeof(work->sandbox_id), "%s", sandbox_id);
    LL_APPEND(drives->works, work);
    return work;
}

struct drive_work *drive_work_add(struct drives *drives, int64_t drive_ref, const char *sandbox_id)
{
    struct drive_work *work = drive_work_find(drives, drive_ref);

    return work ? work : drive_work_new(drives, drive_ref, sandbox_id);
}

void drive_work_drop_disk(struct drive_work *work)
{
    fd_close(work->disk);
    work->disk = -1;
}

int drives_note_volumes(const struct drives *drives, const struct store_drive_mount_disk *disk)
{
    const struct context *context = drives->context;

    if (disk->kind != DEVICE_KIND_BLOCK)
        return store_each_volume(
            context->store,
            STORE_SEARCH(OF_FILE, .file_device = disk->file_device, .inode = disk->inode),
            work_queue_add_volume, context->queue);
    return store_each_volume(context->store,
                             STORE_SEARCH(OF_DEVICE, .major = disk->major, .minor = disk->minor),
                             work_queue_add_volume, context->queue);
}

static void look_again(struct drive_work *work)
{
    work->due = true;
    work->tried_claim = false;
}

void drive_work_hurry(struct drive_work *work)
{
    look_again(work);
    work->lacks_slot = false;
    work->next_ns = 0;
}

static void release(struct drive_work *work)
{
    drive_act_stop(work);
    drive_work_drop_disk(work);
    store_drive_mount_done(&work->row);
    free(work->entries);
}

/* Cancels its act. Everything is read again. */
static void forget(struct drive_work *work)
{
    struct drive_work anew = {.next = work->next,
                              .drives = work->drives,
                              .drive_ref = work->drive_ref,
                              .disk = -1,
                              .due = true};

    memcpy(anew.sandbox_id, work->sandbox_id, sizeof(anew.sandbox_id));
    release(work);
    *work = anew;
}

static void free_work(struct drive_work *work)
{
    release(work);
    free(work);
}

static void drop_ended(struct drives *drives)
{
    struct drive_work **link = &drives->works;

    while (*link) {
        struct drive_work *work = *link;

        if (work->step == DRIVE_IDLE && work->row.drive_ref == work->drive_ref &&
            drive_state_is_end(work->row.state)) {
            *link = work->next;
            free_work(work);
        } else {
            link = &work->next;
        }
    }
}

/* ---- life ---- */

struct drives *drives_new(const struct context *context)
{
    struct drives *drives = calloc(1, sizeof(*drives));

    if (!drives)
        return NULL;
    drives->context = context;
    return drives;
}

struct drives *drives_free(struct drives *drives)
{
    if (!drives)
        return NULL;
    drive_waits_done(drives);
    while (drives->works) {
        struct drive_work *work = drives->works;

        drives->works = work->next;
        free_work(work);
    }
    loop_timer_stop(&drives->timer);
    free(drives);
    return NULL;
}

void drives_stop(struct drives *drives)
{
    for (struct drive_work *work = drives->works; work; work = work->next)
        forget(work);
    loop_timer_stop(&drives->timer);
    drive_waits_fail(drives, STATUS_UNAVAILABLE,
                     "crustd is being stopped; it continues when it starts again");
}

/* ---- slots ---- */

static bool is_at_work(const struct drive_work *work)
{
    return work->step == DRIVE_DECIDED || work->step == DRIVE_RUNNING;
}

static bool is_vmm_used(const struct drives *drives, const char *sandbox_id)
{
    for (const struct drive_work *work = drives->works; work; work = work->next)
        if (is_at_work(work) && (drive_acts[work->act].does & ACT_ON_VMM) &&
            strcmp(work->sandbox_id, sandbox_id) == 0)
            return true;
    return false;
}

/* Counts the acts of the sandbox, or of all, that are lists if this work is one. */
static unsigned count_acts(const struct drive_work *work, bool in_sandbox)
{
    unsigned count = 0;

    for (const struct drive_work *one = work->drives->works; one; one = one->next)
        count += is_at_work(one) && !one->drive_ref == !work->drive_ref &&
                 (!in_sandbox || strcmp(one->sandbox_id, work->sandbox_id) == 0);
    return count;
}

/* Whether another drive of the same VM keeps the act from beginning. A guest is asked about one
 * drive at a time, because it may not answer. A guest that removes devices itself scans its bus
 * when it mounts a drive, and so would bring back a device that it removed and that is still in the
 * VMM. A removal that waits for a mount is next, or other mounts could delay it for ever. */
static bool is_excluded(const struct drives *drives, const struct drive_work *work)
{
    const unsigned does = drive_acts[work->act].does;

    for (const struct drive_work *other = drives->works; other; other = other->next) {
        const unsigned others = is_at_work(other) ? drive_acts[other->act].does : 0;
        const bool leaves =
            other->guest_unmounted || other->waiting_to_detach || others & ACT_TAKES_OUT;

        if (other == work || strcmp(other->sandbox_id, work->sandbox_id) != 0)
            continue;
        if (does & others & ACT_ASKS_GUEST)
            return true;
        if (((does & ACT_MOUNTS && leaves) || (does & ACT_TAKES_OUT && others & ACT_MOUNTS)) &&
            drive_act_makes_serial(work))
            return true;
    }
    return false;
}

bool drives_have_slot(const struct drives *drives, const struct drive_work *work)
{
    unsigned most = !work->drive_ref ? LISTS : work->row.wanted ? ACTS - ACTS_OUT : ACTS;

    return count_acts(work, false) < most && count_acts(work, true) < most / SANDBOX_PART &&
           !is_excluded(drives, work) &&
           !((drive_acts[work->act].does & ACT_ON_VMM) && is_vmm_used(drives, work->sandbox_id));
}

void drives_give_slots(struct drives *drives)
{
    for (struct drive_work *work = drives->works; work; work = work->next)
        work->lacks_slot = false;
}

/* ---- when ---- */

static bool is_ready(const struct drive_work *work)
{
    return work->step == DRIVE_FINISHED ||
           (work->step != DRIVE_DECIDED && work->due && !work->lacks_slot);
}

bool drives_are_due(const struct drives *drives)
{
    if (!drives->context->synced || drives->context->stopping)
        return false;
    if (!drives->loaded || drives->has_new_waits)
        return true;
    for (const struct drive_work *work = drives->works; work; work = work->next)
        if (is_ready(work))
            return true;
    return false;
}

bool drives_are_idle(const struct drives *drives)
{
    for (const struct drive_work *work = drives->works; work; work = work->next)
        if (work->step != DRIVE_IDLE)
            return false;
    return true;
}

static void enter_soon(struct drive_work *work)
{
    work->enter_ns = 0;
    work->due = true;
}

static void on_timer(struct loop_timer *timer);

static void arm(struct drives *drives)
{
    uint64_t next = UINT64_MAX, now = clock_boottime();

    for (const struct drive_work *work = drives->works; work; work = work->next) {
        if (work->next_ns && work->next_ns < next)
            next = work->next_ns;
        if (work->enter_ns && work->enter_ns < next)
            next = work->enter_ns;
    }
    if (next == UINT64_MAX)
        loop_timer_stop(&drives->timer);
    else
        loop_timer_start(drives->context->loop, &drives->timer,
                         next > now ? next - now + NSEC_PER_MSEC : NSEC_PER_MSEC, on_timer);
}

static void on_timer(struct loop_timer *timer)
{
    struct drives *drives = container_of(timer, struct drives, timer);
    uint64_t now = clock_boottime();

    for (struct drive_work *work = drives->works; work; work = work->next) {
        if (work->next_ns && work->next_ns <= now)
            drive_work_hurry(work);
        if (work->enter_ns && work->enter_ns <= now)
            enter_soon(work);
    }
    arm(drives);
}

void drives_note_sandbox(struct drives *drives, const char *sandbox_id)
{
    for (struct drive_work *work = drives->works; work; work = work->next)
        if (strcmp(work->sandbox_id, sandbox_id) == 0)
            enter_soon(work); /* it may have other containers now */
}

void drives_note_device(struct drives *drives, uint32_t major, uint32_t minor)
{
    for (struct drive_work *work = drives->works; work; work = work->next)
        if (work->row.has_disk && work->row.disk.major == major && work->row.disk.minor == minor)
            look_again(work);
}

void drives_sweep(struct drives *drives)
{
    for (struct drive_work *work = drives->works; work; work = work->next)
        look_again(work);
}

void drives_retry(struct drives *drives)
{
    for (struct drive_work *work = drives->works; work; work = work->next)
        drive_work_hurry(work);
}

/* ---- a pass ---- */

static int load_one(void *userdata, const struct store_drive_mount *drive)
{
    return drive_work_add(userdata, drive->drive_ref, drive->request.sandbox_id) ? 0
                                                                                 : STORE_NO_MEMORY;
}

static int record_finished(struct drives *drives)
{
    struct drive_work *next;
    int r = 0;

    for (struct drive_work *work = drives->works; r == 0 && work; work = next) {
        next = work->next;
        if (work->step != DRIVE_FINISHED)
            continue;
        drives_give_slots(drives);
        r = drive_work_record(work);
        LL_DELETE(drives->works, work); /* other drives come first for the next slot */
        LL_APPEND(drives->works, work);
    }
    return r;
}

int drives_record(struct drives *drives)
{
    unsigned decided = 0;
    int r = 0;

    if (!drives_are_due(drives))
        return 0;
    drives->has_news = true;
    if (!drives->loaded) {
        r = store_each_drive_mount(drives->context->store, load_one, drives);
        drives->loaded = r == 0;
        drives->dirty = true; /* an earlier daemon may have committed without a sync */
    }
    if (r == 0)
        r = record_finished(drives);
    if (r == 0)
        r = drive_waits_record(drives);
    for (struct drive_work *work = drives->works; r == 0 && work && decided < DECISIONS;
         work = work->next)
        if (is_ready(work)) {
            r = drive_work_decide(work);
            decided++;
        }
    return r;
}

int drives_go_on(struct drives *drives)
{
    int r;

    if (drives->dirty && drive_waits_are_over(drives)) {
        r = store_sync(drives->context->store);
        if (r < 0)
            return r;
        drives->dirty = false;
    }
    drive_waits_tell(drives);
    for (struct drive_work *work = drives->works; work; work = work->next)
        if (work->step == DRIVE_DECIDED)
            drive_act_start(work);
    drop_ended(drives);
    arm(drives);
    return 0;
}

/* Running acts stay: an earlier pass decided and committed them. Of the others everything is
 * forgotten but a claim that crustd has to keep: that of a disk that the VMM opened itself, which
 * nobody else holds. */
void drives_roll_back(struct drives *drives, const char *why)
{
    char text[ERROR_TEXT_BYTES];

    (void)snprintf(text, sizeof(text), "the database cannot be written: %s", why);
    for (struct drive_work *work = drives->works; work; work = work->next) {
        bool is_kept = work->vmm == DRIVE_IN_VMM_HAS || work->vmm == DRIVE_IN_VMM_LEAVING;
        struct store_drive_mount_disk claimed = work->claimed, backing = work->backing;
        int disk;

        if (work->step == DRIVE_RUNNING)
            continue;
        disk = is_kept ? take_fd(&work->disk) : -1;
        forget(work);
        work->disk = disk;
        work->claimed = claimed;
        work->backing = backing;
        if (!work->drive_ref)
            work->row.state = DRIVE_LOST; /* it is made anew for clients to come */
    }
    drive_waits_fail(drives, STATUS_UNAVAILABLE, text);
}
