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

const char *event_reason(enum event_kind kind); /* "" for EVENT_NONE */
bool event_is_warning(enum event_kind kind);

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
