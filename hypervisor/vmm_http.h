/* SPDX-License-Identifier: Apache-2.0 */
/* vmm_http.h - a call to a VMM whose control socket speaks HTTP. Private to hypervisor/.
 *
 * Cloud Hypervisor and Firecracker are served by the same small library (micro-http): at most ten
 * connections, an eleventh is answered 503; one request at a time; 1024 bytes for a header line. So
 * each request has a connection of its own, closed after the answer.
 *
 * A kind's state is a struct vmm_http, or begins with one. It asks; the answer comes to the
 * function given, if it is a success, and it asks again or finishes. What fails is finished here.
 */
#pragma once

#include "hypervisor/drive_report.h"
#include "hypervisor/hypervisor_ops.h"
#include "lib/http_exchange.h"

struct vmm_http;

typedef void vmm_http_answered(struct vmm_http *vmm, const char *body, size_t length);

struct vmm_http {
    struct hypervisor_call call;
    uint64_t until_ns;              /* clock_boottime() of the deadline; set by the first request */
    struct http_exchange *exchange; /* under way; NULL none */
    vmm_http_answered *answered;
    /* What a refusal's body means; `error` gets a text for people. */
    enum hypervisor_outcome (*refusal)(const char *body, size_t length, struct error *error);
    struct drive_report report;
    char version[HYPERVISOR_VERSION_BYTES]; /* as the VMM said; "" */
    char drive[DRIVE_ID_BYTES];             /* found, or refused; "" */
    char address[DRIVE_ADDRESS_BYTES];      /* of that drive in the guest; "" not known */
    enum hypervisor_list list;
    struct hypervisor_guest guest;
    enum hypervisor_outcome resize; /* what one would come to, as far as it is known */
};

/* Sends a request. 0, or -ENOMEM and nothing has happened; vmm_http_ask() finishes then. */
int vmm_http_start(struct vmm_http *vmm, const char *method, const char *target, const char *body,
                   vmm_http_answered *answered);
void vmm_http_ask(struct vmm_http *vmm, const char *method, const char *target, const char *body,
                  vmm_http_answered *answered);

/* The answer to a resize: nothing but that it is done. */
void vmm_http_resized(struct vmm_http *vmm, const char *body, size_t length);

/* Ends the call: the last thing done with it. `bytes` 0: not learned. */
void vmm_http_finish(struct vmm_http *vmm, enum hypervisor_outcome outcome, uint64_t bytes,
                     const struct error *error);

/* The same, because of a local error: -errno. */
void vmm_http_fail(struct vmm_http *vmm, int code);

/* Finds the drive in the report, as the VMM's process sees it. NULL: the call is over, because it
 * is not to be had or because nothing but finding it was asked for. */
const struct drive *vmm_http_find(struct vmm_http *vmm);

/* hypervisor_ops.stop. */
void vmm_http_stop(struct hypervisor_call *call);
