/* SPDX-License-Identifier: Apache-2.0 */
/* finding.h - what an examination of the node found, as JSON. Private to doctor/. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "lib/buffer.h"

enum finding_level {
    FINDING_OK,
    FINDING_NOTE,    /* good to know; nothing has to be done */
    FINDING_WARNING, /* something is slower, coarser or less safe than it could be */
    FINDING_ERROR,   /* some volume cannot grow, no drive be attached, or crustd not start */
};

/* `[{"id","level","what","where","remedy"}, …]`, being written. */
struct findings {
    struct buffer *json; /* borrowed */
    unsigned count;

    /* What runs: evidence that outweighs what a configuration leads to. Borrowed. */
    const cJSON *running; /* as store_read_abilities() reads them; NULL: not known */
    const char *boot_id;  /* those of another boot have ended */

    /* What works, found by the way. */
    unsigned configurations, sandboxes; /* of Kata's, that give a guest its volumes; that run */
    bool tells_hypervisor, resizes_guests;
    bool ignores_group;    /* some runtime is not Kata's in Go, the only one that applies fsGroup */
    unsigned label_guests; /* of the configurations, those whose guests enforce SELinux */
    bool lacks_direct_volumes; /* Kata is too old */
};

void findings_begin(struct findings *findings, struct buffer *json);

/* where, remedy: NULL none. Texts are whole sentences without a full stop at their end. */
void findings_add(struct findings *findings, enum finding_level level, const char *id,
                  const char *where, const char *remedy, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* 0 or -errno. */
int findings_end(struct findings *findings);
