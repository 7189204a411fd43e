/* SPDX-License-Identifier: Apache-2.0 */
/* drive_flush.c - a timer that rests while no writable drive is mounted. */
#include "guest-agent/drive_flush.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "guest-agent/drive_list.h"
#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/log.h"

static struct {
    struct loop *loop;
    uint64_t interval_ns;
    struct loop_timer timer;
    struct child *child;
    bool is_woken;                              /* since it began */
    char known[DRIVE_LIST][DRIVE_SERIAL_BYTES]; /* serials of VMMs' own, of drives */
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

/* The oldest one makes room: more drives than that are never listed together. */
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

enum { NONE_WRITABLE = UINT8_MAX, UNKNOWN = UINT8_MAX - 1 };

/* In the child, because a disk may not even say which serial it has. Returns the number of those
 * that could not be synced, or one of the above. */
static int sync_all(const void *argument)
{
    struct drive_guest_list list = {0};
    int failed = 0, writable = 0;

    (void)argument;
    if (drive_list_read(&list) < 0)
        return UNKNOWN;
    for (size_t i = 0; i < list.count; i++) {
        if (!is_writable(&list.entries[i]))
            continue;
        writable++;
        failed += !sync_mount(list.entries[i].vm_path);
    }
    drive_guest_list_done(&list);
    return !writable ? NONE_WRITABLE : failed < UNKNOWN ? failed : UNKNOWN - 1;
}

static void sleep_again(void)
{
    loop_timer_start(flush.loop, &flush.timer, flush.interval_ns, on_time);
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    (void)output;
    (void)userdata;
    if (end != CHILD_EXITED)
        log_warning(NULL, "the process that syncs the drives has died");
    else if (status && status < UNKNOWN)
        log_warning(NULL, "%d of the drives cannot be synced", status);
    flush.child = child_free(child);
    if (end != CHILD_EXITED || status != NONE_WRITABLE || flush.is_woken)
        sleep_again();
}

static void on_time(struct loop_timer *timer)
{
    const struct child_request request = {.function = sync_all, .input = -1, .root = -1};

    (void)timer;
    flush.is_woken = false;
    if (child_new(flush.loop, &request, on_end, NULL, &flush.child) < 0)
        sleep_again();
}

static void wake(void)
{
    flush.is_woken = true;
    if (flush.interval_ns && !flush.child && !loop_timer_is_active(&flush.timer))
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
    flush.child = child_free(flush.child);
    loop_timer_stop(&flush.timer);
    flush.interval_ns = 0;
    flush.known_count = 0;
}
