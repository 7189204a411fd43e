/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_http.h - a call to a VMM whose control socket speaks HTTP. Private to hypervisor/.
 *
 * Cloud Hypervisor and Firecracker use the same small library (micro-http): it serves at most ten
 * connections and answers an eleventh with 503; one request at a time; 1024 bytes for a header
 * line. So each request uses a connection of its own, closed after the answer.
 *
 * A kind's state is a struct vmm_http, or begins with one. The kind sends a request. A successful
 * answer is passed to the function given, which sends the next request or finishes the call.
 * Failures finish the call here.
 */
#pragma once

#include "hypervisor/drive_report.h"
#include "hypervisor/hypervisor_ops.h"
#include "hypervisor/vmm_process.h"
#include "lib/http_exchange.h"

struct vmm_http;

typedef void vmm_http_found(struct vmm_http *vmm, const struct drive *drive);
typedef void vmm_http_answered(struct vmm_http *vmm, const char *body, size_t length);

struct vmm_http {
    struct hypervisor_call call;
    uint64_t until_ns;              /* clock_boottime() of the deadline; set by the first request */
    struct http_exchange *exchange; /* in progress; NULL: none */
    vmm_http_answered *answered;
    /* The outcome for a refusal's body; `error` gets a text for people. */
    enum hypervisor_outcome (*refusal)(const char *body, size_t length, struct error *error);
    struct drive_report report;
    const char *listing; /* static: the target whose answer is the report */
    vmm_http_found *found;
    bool is_long;                           /* the search has taken more than one pass */
    bool is_last;                           /* the next one may not */
    struct vmm_memory memory;               /* of what was examined for the report */
    struct loop_timer again;                /* active: the search for the drive goes on then */
    char version[HYPERVISOR_VERSION_BYTES]; /* as the VMM reported; "" */
    char drive[DRIVE_ID_BYTES];             /* found or refused; "" */
    char address[DRIVE_ADDRESS_BYTES];      /* of that drive in the guest; "": unknown */
    enum hypervisor_list list;
    struct hypervisor_guest guest;
    enum hypervisor_outcome resize; /* the expected outcome of a resize, as far as known */
};

/* Sends a request. 0, or -ENOMEM without any effect; vmm_http_ask() finishes the call in that
 * case. */
int vmm_http_start(struct vmm_http *vmm, const char *method, const char *target, const char *body,
                   vmm_http_answered *answered);
void vmm_http_ask(struct vmm_http *vmm, const char *method, const char *target, const char *body,
                  vmm_http_answered *answered);

/* The answer to a resize, which contains nothing but success. */
void vmm_http_resized(struct vmm_http *vmm, const char *body, size_t length);

/* Finishes the call; must be the last use of it. `bytes` 0: unknown. */
void vmm_http_finish(struct vmm_http *vmm, enum hypervisor_outcome outcome, uint64_t bytes,
                     const struct error *error);

/* The same, because of a local error: -errno. */
void vmm_http_fail(struct vmm_http *vmm, int code);

/* Finds the drive in the report, the answer to GET `listing`, as the VMM's process sees it, in this
 * pass of the loop or a later one, and gives it to `found`. Otherwise the call finishes: the drive
 * cannot be used, or it only had to be found. Must be the last use of the call.
 *
 * What was found in several passes may have changed since it was examined. Before it is resized,
 * the listing is read once more, and passed here again; the drive is then looked for first, and
 * found in one pass or not at all. */
void vmm_http_find(struct vmm_http *vmm, const char *listing, vmm_http_found *found);

/* hypervisor_ops.stop. */
void vmm_http_stop(struct hypervisor_call *call);
