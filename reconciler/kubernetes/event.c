/* SPDX-License-Identifier: Apache-2.0 */
/* event.c - see kubernetes_events.h.
 *
 * core/v1 is what the kubelet and external-resizer create, and what their readers expect: it has
 * count, firstTimestamp and lastTimestamp, so that events that were counted before they were sent
 * are one object, and creating it is all that is needed. (events.k8s.io/v1 counts by patching.) An
 * event without eventTime need not name an action. Its namespace is its object's, and "default" for
 * an object without one (pkg/apis/core/validation/events.go of Kubernetes).
 *
 * kubectl describe looks for the object's uid. A pod's is part of the volume path; a claim's is
 * part of its PV's name where external-provisioner made that ("pvc-" and the uid).
 */
#include "reconciler/kubernetes/kubernetes_events.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/text.h"
#include "model/reason.h"
#include "model/stale_reason.h"
#include "model/volume.h"
#include "store/journal.h"

const struct event_word event_words[EVENT_KINDS] = {
    [EVENT_NONE] = {"", false},
    [EVENT_RESIZED] = {"FileSystemResizeSuccessful", false},
    [EVENT_STALLED] = {"FileSystemResizeFailed", true},
    [EVENT_ABNORMAL] = {"VolumeConditionAbnormal", true},
    [EVENT_NORMAL] = {"VolumeConditionNormal", false},
    [EVENT_REMOVED] = {"StaleVolumeMetadataRemoved", false},
};

/* ---- what happened ------------------------------------------------------------------------- */

static enum event_kind kind_of(const struct store_event_row *row)
{
    /* A resize is finished in two rows: the state's, which says how, and its own. */
    if (strcmp(row->kind, "state_changed") == 0)
        return row->is_current && row->is_stalled && !row->is_repeated ? EVENT_STALLED : EVENT_NONE;
    /* The end of a resize has the state alone; one that ended with its volume was no success. */
    if (strcmp(row->kind, "resize_finished") == 0)
        return strcmp(row->to, state_name(STATE_IN_SYNC)) == 0 ? EVENT_RESIZED : EVENT_NONE;
    if (strcmp(row->kind, "cleanup_removed") == 0)
        return EVENT_REMOVED;
    if (strcmp(row->kind, "guest_condition_changed") != 0)
        return EVENT_NONE;
    if (strcmp(row->to, "abnormal") == 0)
        return EVENT_ABNORMAL;
    return strcmp(row->to, "normal") == 0 ? EVENT_NORMAL : EVENT_NONE;
}

/* ---- the words ----------------------------------------------------------------------------- */

enum { SIZE_BYTES = 32 };

/* As Kubernetes writes it, in the largest unit that is exact. */
static const char *format_size(int64_t bytes, char ret_text[static SIZE_BYTES])
{
    static const char *const units[] = {"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"};
    size_t unit = 0;

    while (bytes && bytes % 1024 == 0 && unit + 1 < array_length(units)) {
        bytes /= 1024;
        unit++;
    }
    (void)snprintf(ret_text, SIZE_BYTES, "%" PRId64 "%s", bytes, units[unit]);
    return ret_text;
}

/* What it is, and the first remedy: crustctl explain has the others. */
static void say_stalled(struct buffer *text, const char *volume, const struct store_event_row *row)
{
    const char *slash = strchr(row->to, '/');
    const enum volume_reason reason = reason_from_name(slash ? slash + 1 : "");
    char state[32];
    const struct explanation *why;

    (void)snprintf(state, sizeof(state), "%.*s", slash ? (int)(slash - row->to) : 0, row->to);
    why = reason_explain(reason, state_from_name(state));
    buffer_append_format(text, "The resize of volume %s is stalled (%s).", volume, row->to);
    if (why)
        buffer_append_format(text, " %s", why->meaning);
    if (why && why->remedy[0])
        buffer_append_format(text, " What helps: %s", why->remedy[0]);
}

static void write_message(enum event_kind kind, const struct store_event_row *row,
                          char ret_message[static EVENT_MESSAGE_BYTES])
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(64 * 1024);
    const char *volume = *row->pv ? row->pv : row->target_path, *why;
    char size[SIZE_BYTES];

    switch (kind) {
    case EVENT_RESIZED:
        buffer_append_format(&text, "Volume %s was resized", volume);
        if (row->from_bytes)
            buffer_append_format(&text, " from %s", format_size(row->from_bytes, size));
        buffer_append_format(&text, " to %s: the VM has the new size%s.",
                             format_size(row->to_bytes, size),
                             row->is_raw ? "" : ", and the guest's file system follows it");
        break;
    case EVENT_STALLED:
        say_stalled(&text, volume, row);
        break;
    case EVENT_ABNORMAL:
    case EVENT_NORMAL:
        buffer_append_format(&text, "The guest reports that volume %s is %s", volume,
                             kind == EVENT_ABNORMAL ? "abnormal" : "normal again");
        buffer_append_format(&text, "%s%s", *row->message ? ": " : ".", row->message);
        break;
    case EVENT_REMOVED:
        buffer_append_format(&text,
                             "The runtime's metadata of volume %s was stale and was moved to "
                             "crustd's trash.",
                             volume);
        why = stale_reason_meaning(stale_reason_from_name(row->cause));
        if (why)
            buffer_append_format(&text, " %s", why);
        break;
    case EVENT_NONE:
    case EVENT_KINDS:
        break;
    }
    text_clean(buffer_text(&text), text.length, ret_message, EVENT_MESSAGE_BYTES);
}

/* ---- the objects --------------------------------------------------------------------------- */

/* Letters, digits and these, and not too many: what may stand in an URL and a name. */
static bool take_name(const char *name, const char *others, char *ret_name, size_t size)
{
    const size_t length = strlen(name);

    if (!length || length >= size)
        return false;
    for (const char *at = name; *at; at++)
        if (!(islower((unsigned char)*at) || isdigit((unsigned char)*at) || strchr(others, *at)))
            return false;
    memcpy(ret_name, name, length + 1);
    return true;
}

/* Fills an object of a kind. false: its name is not known. */
static bool fill_object(struct event_object *object, const char *kind, const char *namespace,
                        const char *name, const char *uid)
{
    *object = (struct event_object){.kind = kind};
    if (uid && !take_name(uid, "-", object->uid, sizeof(object->uid)))
        object->uid[0] = '\0';
    return (!namespace ||
            take_name(namespace, "-", object->namespace, sizeof(object->namespace))) &&
           take_name(name, "-.", object->name, sizeof(object->name));
}

unsigned event_from_row(const struct store_event_row *row,
                        struct event ret_events[static EVENTS_OF_ROW])
{
    struct event event = {
        .kind = kind_of(row), .first_ms = row->at, .last_ms = row->at, .count = 1};
    enum { UUID_LENGTH = 36 };
    const bool names_claim = strncmp(row->pv, "pvc-", 4) == 0 && strlen(row->pv) == 4 + UUID_LENGTH;
    unsigned count = 0;

    if (event.kind == EVENT_NONE)
        return 0;
    write_message(event.kind, row, event.message);
    if (fill_object(&event.object, "Pod", row->pod_namespace, row->pod_name, row->pod_uid))
        ret_events[count++] = event;
    if (fill_object(&event.object, "PersistentVolumeClaim", row->claim_namespace, row->claim_name,
                    names_claim ? row->pv + 4 : NULL) ||
        fill_object(&event.object, "PersistentVolume", NULL, row->pv, NULL))
        ret_events[count++] = event;
    return count;
}

bool event_equals(const struct event *a, const struct event *b)
{
    return a->kind == b->kind && strcmp(a->object.kind, b->object.kind) == 0 &&
           strcmp(a->object.namespace, b->object.namespace) == 0 &&
           strcmp(a->object.name, b->object.name) == 0 &&
           strcmp(a->object.uid, b->object.uid) == 0 && strcmp(a->message, b->message) == 0;
}

/* ---- as JSON ------------------------------------------------------------------------------- */

const char *event_namespace(const struct event *event)
{
    return event->object.namespace[0] ? event->object.namespace : "default";
}

/* "pod.0123456789abcdef": as client-go forms them, a hash in the place of the time. */
static void write_name(struct buffer *body, const struct event *event, const char *node)
{
    enum { NAME_SHOWN = 200, DIGITS = 16 };
    cleanup(buffer_done) struct buffer all = BUFFER_INIT(EVENT_BODY_BYTES);
    size_t shown = strnlen(event->object.name, NAME_SHOWN);
    char hash[SHA256_HEX_BYTES], name[NAME_SHOWN + DIGITS + 2];

    buffer_append_format(&all, "%s\n%s\n%s\n%s\n%s\n%s\n%" PRId64 "\n%" PRId64, node,
                         event_words[event->kind].reason, event->object.kind,
                         event->object.namespace, event->object.name, event->message,
                         event->first_ms, event->last_ms);
    sha256_hex(buffer_text(&all), all.length, hash);
    while (shown > 1 && !isalnum((unsigned char)event->object.name[shown - 1]))
        shown--; /* a name that is cut does not end with a dash or a dot */
    (void)snprintf(name, sizeof(name), "%.*s.%.*s", (int)shown, event->object.name, DIGITS, hash);
    json_append_member(body, "name", name);
}

int event_write(const struct event *event, const char *node, struct buffer *ret_body)
{
    const struct event_object *object = &event->object;
    char first[CLOCK_TEXT_BYTES], last[CLOCK_TEXT_BYTES];
    struct buffer *body = ret_body;

    clock_text(event->first_ms, first);
    clock_text(event->last_ms, last);
    buffer_append_text(body, "{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"metadata\":{");
    write_name(body, event, node);
    json_append_member(body, "namespace", event_namespace(event));
    buffer_append_text(body, "}");
    json_append_name(body, "involvedObject");
    buffer_append_text(body, "{\"apiVersion\":\"v1\"");
    json_append_member(body, "kind", object->kind);
    json_append_member(body, "name", object->name);
    if (object->namespace[0])
        json_append_member(body, "namespace", object->namespace);
    if (object->uid[0])
        json_append_member(body, "uid", object->uid);
    buffer_append_text(body, "}");
    json_append_member(body, "type", event_words[event->kind].warning ? "Warning" : "Normal");
    json_append_member(body, "reason", event_words[event->kind].reason);
    json_append_member(body, "message", event->message);
    buffer_append_text(body, ",\"source\":{\"component\":\"crustd\"");
    json_append_member(body, "host", node);
    buffer_append_text(body, "}");
    json_append_member(body, "reportingComponent", "crustd");
    json_append_member(body, "reportingInstance", node);
    json_append_member(body, "firstTimestamp", first);
    json_append_member(body, "lastTimestamp", last);
    buffer_append_format(body, ",\"count\":%u}", event->count);
    return buffer_error(body);
}

/* ---- the API server's answer ---------------------------------------------------------------- */

enum api_verdict api_answer_judge(const struct api_answer *answer, struct error *ret_error)
{
    cleanup(json_deletep) cJSON *status = NULL;
    char shown[ERROR_TEXT_BYTES / 2];
    const char *message = "";

    if (answer->end != HTTP_EXCHANGE_ANSWERED) {
        *ret_error = answer->error;
        return API_AGAIN;
    }
    if (json_parse(answer->body, answer->length, JSON_LIMITS_HTTP, &status, NULL) == 0)
        message = json_text(status, "message");
    text_clean(message, strlen(message), shown, sizeof(shown));
    (void)error_set(ret_error, (int)answer->status, "its API server answers %u%s%s", answer->status,
                    *shown ? ": " : "", shown);
    /* 409: an attempt whose answer was lost had created it. 401: the token is replaced, sooner or
     * later. */
    if (answer->status / 100 == 2 || answer->status == 409)
        return API_SENT;
    return answer->status >= 500 || answer->status == 401 || answer->status == 408 ||
                   answer->status == 429
               ? API_AGAIN
               : API_REFUSED;
}

/* ---- event queue ---------------------------------------------------------------------------- */

/* An event that was taken stays for the length of a window and counts its equals; it becomes an
 * event again if there were any, and is forgotten if not. So counting needs no right to change
 * what is on the server.
 */

static const uint64_t WINDOW_NS = 600 * NSEC_PER_SEC;
/* An API server forgets events after an hour. */
static const uint64_t AGE_NS = 3600 * NSEC_PER_SEC;

static void remove_at(struct event_queue *queue, unsigned i)
{
    free(queue->item[i]);
    queue->count--;
    for (; i < queue->count; i++)
        queue->item[i] = queue->item[i + 1];
}

void event_queue_clear(struct event_queue *queue)
{
    while (queue->count)
        remove_at(queue, queue->count - 1);
}

/* It has to be sent, now or when its window is over. */
static bool is_due(const struct queued_event *item)
{
    return item->event.count > 0;
}

static void forget_old(struct event_queue *queue, uint64_t now_ns)
{
    for (unsigned i = queue->count; i-- > 0;) {
        struct queued_event *item = queue->item[i];

        if (item->ready_ns <= now_ns && (!is_due(item) || now_ns - item->since_ns > AGE_NS)) {
            queue->dropped += is_due(item);
            remove_at(queue, i);
        }
    }
}

void event_queue_add(struct event_queue *queue, const struct event *event, uint64_t now_ns)
{
    struct queued_event *item;
    unsigned victim = 0;

    forget_old(queue, now_ns);
    for (unsigned i = 0; i < queue->count; i++) {
        item = queue->item[i];
        if (!event_equals(&item->event, event))
            continue;
        queue->merged += is_due(item);
        if (!is_due(item)) {
            item->event.first_ms = event->first_ms;
            item->since_ns = now_ns;
        }
        item->event.last_ms = event->last_ms;
        item->event.count += event->count;
        return;
    }
    item = calloc(1, sizeof(*item));
    if (!item) {
        queue->dropped++;
        return;
    }
    if (queue->count == EVENT_QUEUE_LENGTH) { /* the one that is missed least goes: taken already,
                                                 else the oldest */
        while (victim < queue->count && is_due(queue->item[victim]))
            victim++;
        queue->dropped += victim == queue->count;
        remove_at(queue, victim % queue->count);
    }
    *item = (struct queued_event){.event = *event, .since_ns = now_ns, .ready_ns = now_ns};
    queue->item[queue->count++] = item;
}

/* The index of the event that is ready first; queue->count: there is none. */
static unsigned find_first(const struct event_queue *queue)
{
    unsigned first = queue->count;

    for (unsigned i = 0; i < queue->count; i++)
        if (is_due(queue->item[i]) &&
            (first == queue->count || queue->item[i]->ready_ns < queue->item[first]->ready_ns))
            first = i;
    return first;
}

uint64_t event_queue_when(const struct event_queue *queue)
{
    unsigned first = find_first(queue);

    return first < queue->count ? queue->item[first]->ready_ns : UINT64_MAX;
}

bool event_queue_take(struct event_queue *queue, uint64_t now_ns, struct event *ret_event)
{
    struct queued_event *item;
    unsigned first;

    forget_old(queue, now_ns);
    first = find_first(queue);
    if (first == queue->count || queue->item[first]->ready_ns > now_ns)
        return false;
    item = queue->item[first];
    *ret_event = item->event;
    item->event.count = 0;
    item->ready_ns = now_ns + WINDOW_NS;
    return true;
}
