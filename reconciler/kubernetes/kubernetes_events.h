/* SPDX-License-Identifier: Apache-2.0 */
/* kubernetes_events.h - kubernetes.events: rows of the journal as Events in Kubernetes' API.
 *
 * Rows are read after each reconcile pass, once they are committed. Nothing waits for the API
 * server: there is one request at a time, and what cannot be sent for too long is dropped and
 * counted. The journal has everything.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/result.h"
#include "reconciler/kubernetes/event.h"

struct context;
struct kubernetes_events;

/* NULL: out of memory. node: borrowed. */
struct kubernetes_events *kubernetes_events_new(const struct context *context, const char *node);
struct kubernetes_events *kubernetes_events_free(struct kubernetes_events *events); /* NULL */

/* As kubernetes.events says now. At the start: from the row on with which the store was opened. */
void kubernetes_events_start(struct kubernetes_events *events);
void kubernetes_events_configure(struct kubernetes_events *events);

/* Outside a transaction: reads some of what was committed since. */
void kubernetes_events_follow(struct kubernetes_events *events);

/* Since crustd's start. Each event ends as one of these. */
struct kubernetes_events_counts {
    uint64_t sent;
    uint64_t merged;  /* into an equal one, which has their count */
    uint64_t refused; /* by the API server: no right, no such namespace */
    uint64_t dropped; /* not delivered in time, or too many */
};

void kubernetes_events_count(const struct kubernetes_events *events,
                             struct kubernetes_events_counts *ret_counts);

/* ---- service account ------------------------------------------------------------------------ */

/* How a pod reaches the API server, and as whom.
 *
 * KUBERNETES_SERVICE_HOST and _PORT come from the kubelet, token and ca.crt lie in a directory that
 * it keeps up to date: it replaces the token before it expires, so each request reads it anew.
 */

enum { SERVICE_ACCOUNT_ADDRESS_BYTES = 46, SERVICE_ACCOUNT_TOKEN_BYTES = 16 * 1024 };

struct service_account {
    char address[SERVICE_ACCOUNT_ADDRESS_BYTES]; /* IPv4 or IPv6 */
    uint16_t port;
    char ca_file[PATH_MAX];
    const char *directory; /* borrowed */
};

enum service_account_outcome {
    SERVICE_ACCOUNT_FOUND,
    SERVICE_ACCOUNT_NONE, /* crustd is in no pod, or in one without an address that can be used */
};

/* An enum service_account_outcome; the error says what is missing. */
int service_account_find(const char *directory, struct service_account *ret_account,
                         struct error *error);

/* The token as it is now, without the white space around it. 0, or SERVICE_ACCOUNT_NONE: there is
 * no usable one; or -errno. */
int service_account_read_token(const struct service_account *account, struct buffer *ret_token,
                               struct error *error);

/* ---- API server ------------------------------------------------------------------------------ */

struct api_post;

typedef void api_post_done(struct api_post *post, const struct api_answer *answer, void *userdata);

/* Runs in a worker (lib/workers.h), and copies its texts. Exactly one `done` from the loop, never
 * from within; the owner frees the post then or earlier. 0 or -errno. */
int api_post_new(const struct service_account *account, const char *token, const char *target,
                 const char *body, api_post_done *done, void *userdata, struct api_post **ret_post);
struct api_post *api_post_free(struct api_post *post); /* returns NULL */
