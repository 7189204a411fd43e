/* SPDX-License-Identifier: Apache-2.0 */
/* growth.c - an ioctl in a child, which says by one struct what came of it. */
#include "guest-agent/growth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "lib/child.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

/* Another's resize is waited for this long. */
#define BUSY_PATIENCE_NS (5 * NSEC_PER_SEC)
#define BUSY_PAUSE_NS    (50 * NSEC_PER_MSEC)

struct growth {
    struct child *child;
    growth_done *done; /* NULL: nobody wants to know */
    void *userdata;
    bool reported;
};

struct report {
    int outcome;
    struct error error;
};

static unsigned running;

static int grow_once(const struct volume *volume, struct error *error)
{
    cleanup(fd_closep) int directory = -1;
    struct filesystem filesystem;
    int r;

    if (volume->kind == FILESYSTEM_OTHER)
        return error_set(error, FILESYSTEM_UNSUPPORTED,
                         "%s is a file system that cannot be grown here", volume->file_system);
    r = volume_open(volume, &filesystem, &directory);
    if (r < 0)
        return error_set_errno(error, r, "cannot open %s", volume->mount_point);
    return filesystem_grow(directory, &filesystem, error);
}

int growth_run(const struct volume *volume, struct error *error)
{
    const struct timespec pause = {.tv_nsec = (long)BUSY_PAUSE_NS};
    uint64_t patience_ends = clock_boottime() + BUSY_PATIENCE_NS;
    int outcome = grow_once(volume, error);

    while (outcome == FILESYSTEM_BUSY && clock_boottime() < patience_ends) {
        (void)nanosleep(&pause, NULL);
        outcome = grow_once(volume, error);
    }
    return outcome;
}

/* In the child. */
static int grow(const void *argument)
{
    struct report report = {0};

    report.outcome = growth_run(argument, &report.error);
    return write(STDOUT_FILENO, &report, sizeof(report)) == sizeof(report) ? EXIT_SUCCESS
                                                                           : EXIT_FAILURE;
}

static void growth_release(struct growth *growth)
{
    (void)child_free(growth->child);
    free(growth);
}

static void on_end(struct child *child, enum child_end end, int status, const struct buffer *output,
                   void *userdata)
{
    struct growth *growth = userdata;
    struct report report;

    (void)child;
    running--;
    growth->reported = true;
    if (end == CHILD_EXITED && status == EXIT_SUCCESS && output->length == sizeof(report)) {
        memcpy(&report, output->data, sizeof(report));
    } else {
        report.outcome = -ECHILD;
        (void)error_set(&report.error, -ECHILD, "the process that grows it has died");
    }
    if (growth->done)
        growth->done(growth, report.outcome, &report.error, growth->userdata);
    else
        growth_release(growth);
}

int growth_new(struct loop *loop, const struct volume *volume, growth_done *done, void *userdata,
               struct growth **ret_growth)
{
    const struct child_request request = {
        .output_limit = sizeof(struct report), .function = grow, .argument = volume, .input = -1};
    struct growth *growth;
    int r;

    if (running >= GROWTH_LIMIT)
        return GROWTH_TOO_MANY;
    growth = calloc(1, sizeof(*growth));
    if (!growth)
        return -ENOMEM;
    *growth = (struct growth){.done = done, .userdata = userdata};
    r = child_new(loop, &request, on_end, growth, &growth->child);
    if (r < 0) {
        free(growth);
        return r;
    }
    running++;
    *ret_growth = growth;
    return 0;
}

struct growth *growth_free(struct growth *growth)
{
    if (growth && growth->reported)
        growth_release(growth);
    else if (growth)
        growth->done = NULL;
    return NULL;
}

struct growth *growth_abandon(struct growth *growth)
{
    if (!growth)
        return NULL;
    if (!growth->reported)
        running--;
    growth_release(growth);
    return NULL;
}
