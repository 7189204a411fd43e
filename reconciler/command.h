/* command.h - what the faces (serve/) may ask of the reconciler.
 *
 * All of it is called from the loop, outside the reconciler's own turn. Nothing here acts at once:
 * a command marks what to look at again, and the next turn does the rest.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct reconciler;
struct store_reader;

/* The audit views, through the daemon's own connection. */
struct store_reader *reconciler_reader(struct reconciler *reconciler);

/* Looks at everything again; volumes that wait for something to change may try at once. */
void reconciler_resync(struct reconciler *reconciler);

struct reconciler_source {
    const char *name; /* inotify, uevent, mounts, process */
    bool up;
    uint64_t events;
    uint64_t overflows;
};

enum { RECONCILER_SOURCES_MAX = 8 };

struct reconciler_health {
    bool synced;   /* the first scan is done */
    bool degraded; /* something below is not as it should be; `problem` says what */
    char problem[256];
    bool database_fails;
    unsigned acts_in_flight;
    unsigned sources;
    struct reconciler_source source[RECONCILER_SOURCES_MAX];
};

void reconciler_get_health(const struct reconciler *reconciler,
                           struct reconciler_health *ret_health);
