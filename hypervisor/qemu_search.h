/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_search.h - which drive a call is about, and what to ask QEMU next. Private to hypervisor/.
 *
 * qemu.c holds the conversation: it reads QEMU's answers into `report` and calls the function that
 * belongs to the step. Each function returns what comes next. Nothing here talks to QEMU.
 *
 *     find ─┬─▶ FOUND                                  a query
 *           └─▶ RESIZE ─▶ (resized) ─▶ check ─▶ FOUND  a resize
 *
 * Each of them may also return END, with the reason; find also AGAIN: it is to be called again in a
 * later pass of the loop. What was found in several passes may have changed since it was examined,
 * so nothing is resized by it: ANEW instead of RESIZE.
 */
#pragma once

#include "hypervisor/hypervisor.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/vmm_process.h"

struct qemu_search {
    const struct loop *loop;                  /* in whose passes it runs; borrowed */
    const struct hypervisor_request *request; /* borrowed */
    struct qemu_report report;                /* of QEMU's answers */
    char drive[QEMU_NAME_BYTES];              /* found or refused; "" */
    uint64_t drive_bytes;                     /* 0: unknown */
    enum hypervisor_list list;
    enum hypervisor_outcome resize; /* of a query: the expected outcome of a resize */
    struct vmm_memory memory;       /* of what it has examined */
    bool is_long;                   /* it has taken more than one pass */
    bool is_last;                   /* it may take no further one */
    char expected[QEMU_NAME_BYTES]; /* the drive of ANEW; "" */
};

enum qemu_search_next {
    QEMU_SEARCH_END,    /* the call ends with this outcome */
    QEMU_SEARCH_FOUND,  /* the call succeeded: the drive is identified and has the required size */
    QEMU_SEARCH_RESIZE, /* make QEMU re-read the drive's size, then read report.roots again */
    QEMU_SEARCH_AGAIN,  /* nothing is known yet, and this pass has no more time for it */
    /* The drive is identified, but that took a while: read the whole report anew. It is looked for
     * first then, and found in one pass or not at all. */
    QEMU_SEARCH_ANEW,
};

struct qemu_search_result {
    enum qemu_search_next next;
    enum hypervisor_outcome outcome; /* END */
    struct error error;              /* END: as readable text */
    uint64_t pause_ns;               /* AGAIN: until then */
};

void qemu_search_init(struct qemu_search *search, const struct loop *loop,
                      const struct hypervisor_request *request);
void qemu_search_done(struct qemu_search *search);

/* The report is complete; or goes on after AGAIN. */
struct qemu_search_result qemu_search_find(struct qemu_search *search);

/* report.roots was read again. */
struct qemu_search_result qemu_search_check(struct qemu_search *search);
