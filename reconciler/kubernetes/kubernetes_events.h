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
#include "lib/http_exchange.h"
#include "lib/result.h"

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

/* ---- events --------------------------------------------------------------------------------- */

/* A row of the journal as Kubernetes Events. Pure.
 *
 * An Event is about one object: the pod, and the claim where its name is known, or else the PV.
 * Reasons are published in docs/reference/kubernetes-events.md and never renamed; the first four
 * are the kubelet's and external-health-monitor's own words for the same facts.
 */

struct store_event_row;

enum {
    EVENT_NAME_BYTES = 254,     /* RFC 1123 subdomain */
    EVENT_NAMESPACE_BYTES = 64, /* RFC 1123 label */
    EVENT_UID_BYTES = 64,
    EVENT_MESSAGE_BYTES = 1025, /* the most that events.k8s.io/v1 takes */
    EVENT_BODY_BYTES = 8 * 1024,
};

enum event_kind {
    EVENT_NONE,
    EVENT_RESIZED,
    EVENT_STALLED,
    EVENT_ABNORMAL,
    EVENT_NORMAL,
    EVENT_REMOVED,
    EVENT_KINDS,
};

extern const struct event_word {
    const char *reason; /* "" for EVENT_NONE */
    bool warning;
} event_words[EVENT_KINDS];

struct event_object {
    const char *kind;                      /* Pod, PersistentVolumeClaim or PersistentVolume */
    char namespace[EVENT_NAMESPACE_BYTES]; /* "": a PV has none */
    char name[EVENT_NAME_BYTES];
    char uid[EVENT_UID_BYTES]; /* "": not known */
};

struct event {
    enum event_kind kind;
    struct event_object object;
    char message[EVENT_MESSAGE_BYTES];
    int64_t first_ms, last_ms; /* since 1970 */
    unsigned count;
};

enum { EVENTS_OF_ROW = 2 };

/* What the row is as events: how many, 0 if Kubernetes is not to hear of it or no object is known.
 */
unsigned event_from_row(const struct store_event_row *row,
                        struct event ret_events[static EVENTS_OF_ROW]);

/* The same object has the same to say. */
bool event_equals(const struct event *a, const struct event *b);

/* The namespace that it is created in. */
const char *event_namespace(const struct event *event);

/* A core/v1 Event as JSON. Its name is derived from all that tells it from others, so sending one
 * twice makes one. -errno of the buffer. */
int event_write(const struct event *event, const char *node, struct buffer *ret_body);

/* ---- the API server's answer ---------------------------------------------------------------- */

struct api_answer {
    enum http_exchange_end end;
    unsigned status;  /* ANSWERED */
    const char *body; /* of `length` bytes; borrowed */
    size_t length;
    struct error error; /* unless ANSWERED */
};

enum api_verdict {
    API_SENT,
    API_REFUSED, /* it will stay the same */
    API_AGAIN,   /* no server, a wrong certificate, a busy server, an expired token */
};

/* The error says why it was not sent, with the reason that the server gives. */
enum api_verdict api_answer_judge(const struct api_answer *answer, struct error *ret_error);

/* ---- event queue ---------------------------------------------------------------------------- */

/* Events that wait to be sent, and equal ones made one.
 *
 * The first of its kind is sent at once. Equal ones within the next ten minutes are counted, and
 * sent as one event with their count when these are over. Times are clock_boottime()'s, given by
 * the caller.
 */

enum { EVENT_QUEUE_LENGTH = 256 };

struct queued_event {
    struct event event; /* count 0: it was taken, and only counts its equals */
    uint64_t since_ns;  /* when the first of those that it counts was added */
    uint64_t ready_ns;  /* when it may be taken; with count 0: forgotten */
};

struct event_queue {
    struct queued_event *item[EVENT_QUEUE_LENGTH];
    unsigned count;
    uint64_t merged;  /* events that others were counted into */
    uint64_t dropped; /* to make room, of age, or for want of memory */
};

void event_queue_clear(struct event_queue *queue);

void event_queue_add(struct event_queue *queue, const struct event *event, uint64_t now_ns);

/* Copies the event to be sent now. False: there is none. Drops those that are too old. */
bool event_queue_take(struct event_queue *queue, uint64_t now_ns, struct event *ret_event);

/* When there will be one; UINT64_MAX: not before another is added. */
uint64_t event_queue_when(const struct event_queue *queue);

/* ---- API server ------------------------------------------------------------------------------ */

struct api_post;

typedef void api_post_done(struct api_post *post, const struct api_answer *answer, void *userdata);

/* Runs in a worker (lib/workers.h), and copies its texts. Exactly one `done` from the loop, never
 * from within; the owner frees the post then or earlier. 0 or -errno. */
int api_post_new(const struct service_account *account, const char *token, const char *target,
                 const char *body, api_post_done *done, void *userdata, struct api_post **ret_post);
struct api_post *api_post_free(struct api_post *post); /* returns NULL */
