/* SPDX-License-Identifier: Apache-2.0 */
/* event.h - a row of the journal as Kubernetes Events. Pure.
 *
 * An Event is about one object: the pod, and the claim where its name is known, or else the PV.
 * Reasons are published in docs/reference/kubernetes-events.md and never renamed; the first four
 * are the kubelet's and external-health-monitor's own words for the same facts.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/buffer.h"
#include "lib/http_exchange.h"
#include "lib/result.h"

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
