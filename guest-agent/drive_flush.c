/* SPDX-License-Identifier: Apache-2.0 */
/* drive_flush.c - a timer that is stopped while no writable drive is mounted. */
#include "guest-agent/guest_disk.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest-agent/drive_list.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/collections.h"
#include "lib/log.h"

/* A process that syncs one drive. */
struct drive_sync {
    struct drive_sync *next;
    struct child *child;
    bool is_late; /* it is logged */
    char vm_path[DRIVE_PATH_BYTES];
};

static struct {
    struct loop *loop;
    uint64_t interval_ns;
    struct loop_timer timer;
    struct drive_listing *listing;
    struct drive_sync *syncs;
    bool is_woken;                              /* since the round began */
    struct drive_guest_list last;               /* the writable drives of the last complete list */
    bool is_blind;                              /* the drives could not be listed since then */
    char known[DRIVE_LIST][DRIVE_SERIAL_BYTES]; /* drives' serials that were chosen by the VMM */
    size_t known_count;
} flush;

static void on_time(struct loop_timer *timer);

static bool is_known(const char *serial)
{
    for (size_t i = 0; i < flush.known_count; i++)
        if (strcmp(flush.known[i], serial) == 0)
            return true;
    return false;
}

static bool is_writable(const struct drive_guest_entry *entry)
{
    return entry->state == DRIVE_GUEST_MOUNTED && !entry->read_only &&
           (!drive_serial_is_of_vmm(entry->serial) || is_known(entry->serial));
}

/* In the child. */
static int sync_mount(const void *argument)
{
    const char *vm_path = argument;
    cleanup(fd_closep) int fd = open(vm_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd >= 0 && syncfs(fd) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void free_sync(struct drive_sync *sync)
{
    LL_DELETE(flush.syncs, sync);
    (void)child_free(sync->child);
    free(sync);
}

static void on_synced(struct child *child, enum child_end end, int status,
                      const struct buffer *output, void *userdata)
{
    struct drive_sync *sync = userdata;

    (void)child;
    (void)output;
    if (end != CHILD_EXITED)
        log_warning(NULL, "the process that syncs the drive at %s has died", sync->vm_path);
    else if (status != EXIT_SUCCESS)
        log_warning(NULL, "the drive at %s cannot be synced", sync->vm_path);
    free_sync(sync);
}

static struct drive_sync *find_sync(const char *vm_path)
{
    for (struct drive_sync *sync = flush.syncs; sync; sync = sync->next)
        if (strcmp(sync->vm_path, vm_path) == 0)
            return sync;
    return NULL;
}

/* 0, or as child_new(). */
static int start_sync(const struct drive_guest_entry *entry)
{
    const struct child_request request = {.function = sync_mount,
                                          .argument = entry->vm_path,
                                          .input = -1,
                                          .root = -1,
                                          .subject = child_subject(entry->vm_path)};
    struct drive_sync *sync = calloc(1, sizeof(*sync));
    int r;

    if (!sync)
        return -ENOMEM;
    strcpy(sync->vm_path, entry->vm_path);
    r = child_new(flush.loop, &request, on_synced, sync, &sync->child);
    if (r < 0) {
        free(sync);
        return r;
    }
    LL_PREPEND(flush.syncs, sync);
    return 0;
}

static void sync_drive(const struct drive_guest_entry *entry)
{
    struct drive_sync *sync = find_sync(entry->vm_path);
    int r = sync ? 0 : start_sync(entry);

    if (r < 0)
        log_warning(NULL, "the drive at %s cannot be synced: %s", entry->vm_path, child_explain(r));
    else if (sync && !sync->is_late) {
        log_warning(NULL, "the drive at %s does not finish its sync: its disk is slow or hangs",
                    entry->vm_path);
        sync->is_late = true;
    }
}

static void sync_last(void)
{
    for (size_t i = 0; i < flush.last.count; i++)
        sync_drive(&flush.last.entries[i]);
    loop_timer_start(flush.loop, &flush.timer, flush.interval_ns, on_time);
}

/* A disk that does not answer must not keep the others from being synced. */
static void sync_blindly(const char *why)
{
    if (!flush.is_blind)
        log_warning(NULL, "the drives that were last listed are synced, and no others: %s", why);
    flush.is_blind = true;
    sync_last();
}

static void on_listed(struct drive_listing *listing, int r, struct drive_guest_list *list,
                      const struct error *error, void *userdata)
{
    (void)userdata;
    flush.listing = drive_listing_free(listing);
    if (r < 0) {
        sync_blindly(error->text);
        return;
    }
    drive_guest_list_done(&flush.last);
    flush.last.entries = take_pointer(&list->entries);
    for (size_t i = 0; i < list->count; i++)
        if (is_writable(&flush.last.entries[i]))
            flush.last.entries[flush.last.count++] = flush.last.entries[i];
    flush.is_blind = false;
    if (flush.last.count || flush.is_woken)
        sync_last();
}

static void on_time(struct loop_timer *timer)
{
    int r;

    (void)timer;
    flush.is_woken = false;
    r = drive_listing_new(flush.loop, 2 * flush.interval_ns, on_listed, NULL, &flush.listing);
    if (r < 0)
        sync_blindly(child_explain(r));
}

static void wake(void)
{
    flush.is_woken = true;
    if (flush.interval_ns && !flush.listing && !loop_timer_is_active(&flush.timer))
        loop_timer_start(flush.loop, &flush.timer, flush.interval_ns, on_time);
}

/* The oldest serial makes room: a list never has more drives than that. */
void drive_flush_wake(const char *serial)
{
    if (drive_serial_is_of_vmm(serial) && !is_known(serial)) {
        if (flush.known_count == DRIVE_LIST) {
            memmove(flush.known, flush.known + 1, sizeof(flush.known) - sizeof(*flush.known));
            flush.known_count--;
        }
        (void)snprintf(flush.known[flush.known_count++], DRIVE_SERIAL_BYTES, "%s", serial);
    }
    wake();
}

void drive_flush_start(struct loop *loop, uint64_t interval_ns)
{
    flush.loop = loop;
    flush.interval_ns = interval_ns;
    wake();
}

void drive_flush_end(void)
{
    flush.listing = drive_listing_free(flush.listing);
    while (flush.syncs)
        free_sync(flush.syncs);
    loop_timer_stop(&flush.timer);
    drive_guest_list_done(&flush.last);
    flush.is_blind = false;
    flush.interval_ns = 0;
    flush.known_count = 0;
}
