/* SPDX-License-Identifier: Apache-2.0 */
/* drive_flush.c - a timer that is stopped while no writable drive is mounted. */
#include "guest-agent/drive_flush.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "guest-agent/drive_listing.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/log.h"

static struct {
    struct loop *loop;
    uint64_t interval_ns;
    struct loop_timer timer;
    struct drive_listing *listing;
    struct child *child;
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

/* The oldest serial makes room: a list never has more drives than that. */
static void note(const char *serial)
{
    if (!drive_serial_is_of_vmm(serial) || is_known(serial))
        return;
    if (flush.known_count == DRIVE_LIST) {
        memmove(flush.known, flush.known + 1, sizeof(flush.known) - sizeof(*flush.known));
        flush.known_count--;
    }
    (void)snprintf(flush.known[flush.known_count++], DRIVE_SERIAL_BYTES, "%s", serial);
}

static bool is_writable(const struct drive_guest_entry *entry)
{
    return entry->state == DRIVE_GUEST_MOUNTED && !entry->read_only &&
           (!drive_serial_is_of_vmm(entry->serial) || is_known(entry->serial));
}

static bool sync_mount(const char *path)
{
    cleanup(fd_closep) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    return fd >= 0 && syncfs(fd) == 0;
}

/* In the child. Returns the number of drives that could not be synced. */
static int sync_all(const void *argument)
{
    const struct drive_guest_list *list = argument;
    int failed = 0;

    for (size_t i = 0; i < list->count; i++)
        failed += !sync_mount(list->entries[i].vm_path);
    return failed < UINT8_MAX ? failed : UINT8_MAX;
}

static void sleep_again(void)
{
    loop_timer_start(flush.loop, &flush.timer, flush.interval_ns, on_time);
}

static void on_synced(struct child *child, enum child_end end, int status,
                      const struct buffer *output, void *userdata)
{
    (void)output;
    (void)userdata;
    if (end != CHILD_EXITED)
        log_warning(NULL, "the process that syncs the drives has died");
    else if (status)
        log_warning(NULL, "%d of the drives cannot be synced", status);
    flush.child = child_free(child);
    sleep_again();
}

static void sync_last(void)
{
    const struct child_request request = {
        .function = sync_all, .argument = &flush.last, .input = -1, .root = -1};

    if (!flush.last.count || child_new(flush.loop, &request, on_synced, NULL, &flush.child) < 0)
        sleep_again();
}

/* A disk that does not answer must not keep the others from being synced. */
static void sync_blindly(const char *why)
{
    if (!flush.is_blind)
        log_warning(NULL, "the drives that were last listed are synced, and no others: %s", why);
    flush.is_blind = true;
    sync_last();
}

/* 0 or -ENOMEM. */
static int remember(const struct drive_guest_list *list)
{
    struct drive_guest_list writable = {0};

    for (size_t i = 0; i < list->count; i++)
        writable.count += is_writable(&list->entries[i]);
    writable.entries = calloc(writable.count + 1, sizeof(*writable.entries));
    if (!writable.entries)
        return -ENOMEM;
    writable.count = 0;
    for (size_t i = 0; i < list->count; i++)
        if (is_writable(&list->entries[i]))
            writable.entries[writable.count++] = list->entries[i];
    drive_guest_list_done(&flush.last);
    flush.last = writable;
    return 0;
}

static void on_listed(struct drive_listing *listing, int r, struct drive_guest_list *list,
                      const struct error *error, void *userdata)
{
    (void)userdata;
    flush.listing = drive_listing_free(listing);
    if (r < 0) {
        sync_blindly(error->text);
    } else if (remember(list) < 0) {
        sync_blindly("out of memory");
    } else {
        flush.is_blind = false;
        if (flush.last.count || flush.is_woken)
            sync_last();
    }
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
    if (flush.interval_ns && !flush.listing && !flush.child && !loop_timer_is_active(&flush.timer))
        sleep_again();
}

void drive_flush_wake(const char *serial)
{
    note(serial);
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
    flush.child = child_free(flush.child);
    loop_timer_stop(&flush.timer);
    drive_guest_list_done(&flush.last);
    flush.is_blind = false;
    flush.interval_ns = 0;
    flush.known_count = 0;
}
