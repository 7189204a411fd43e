/* SPDX-License-Identifier: Apache-2.0 */
/* event.c - see event.h.
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
#include "reconciler/kubernetes/event.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/sha256.h"
#include "lib/text.h"
#include "model/reason.h"
#include "model/stale_reason.h"
#include "model/state.h"
#include "store/journal.h"

static const struct {
    const char *reason;
    bool warning;
} kinds[EVENT_KINDS] = {
    [EVENT_NONE] = {"", false},
    [EVENT_RESIZED] = {"FileSystemResizeSuccessful", false},
    [EVENT_STALLED] = {"FileSystemResizeFailed", true},
    [EVENT_ABNORMAL] = {"VolumeConditionAbnormal", true},
    [EVENT_NORMAL] = {"VolumeConditionNormal", false},
    [EVENT_REMOVED] = {"StaleVolumeMetadataRemoved", false},
};

const char *event_reason(enum event_kind kind)
{
    return kinds[kind].reason;
}

bool event_is_warning(enum event_kind kind)
{
    return kinds[kind].warning;
}

/* ---- what happened ------------------------------------------------------------------------- */

/* A resize is finished in two rows: the state's, which says how, and its own. */
static enum event_kind kind_of_state(const struct store_event_row *row)
{
    return row->is_current && row->is_stalled && !row->is_repeated ? EVENT_STALLED : EVENT_NONE;
}

/* The end of a resize has the state alone; one that ended with its volume was no success. */
static enum event_kind kind_of_end(const struct store_event_row *row)
{
    return strcmp(row->to, state_name(STATE_IN_SYNC)) == 0 ? EVENT_RESIZED : EVENT_NONE;
}

static enum event_kind kind_of_condition(const struct store_event_row *row)
{
    if (strcmp(row->to, "abnormal") == 0)
        return EVENT_ABNORMAL;
    return strcmp(row->to, "normal") == 0 ? EVENT_NORMAL : EVENT_NONE;
}

static enum event_kind kind_of(const struct store_event_row *row)
{
    if (strcmp(row->kind, "state_changed") == 0)
        return kind_of_state(row);
    if (strcmp(row->kind, "resize_finished") == 0)
        return kind_of_end(row);
    if (strcmp(row->kind, "guest_condition_changed") == 0)
        return kind_of_condition(row);
    return strcmp(row->kind, "cleanup_removed") == 0 ? EVENT_REMOVED : EVENT_NONE;
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

static const char *volume_name(const struct store_event_row *row)
{
    return *row->pv ? row->pv : row->target_path;
}

static void say_resized(struct buffer *text, const struct store_event_row *row)
{
    char from[SIZE_BYTES], to[SIZE_BYTES];

    buffer_append_format(text, "Volume %s was resized", volume_name(row));
    if (row->from_bytes)
        buffer_append_format(text, " from %s", format_size(row->from_bytes, from));
    buffer_append_format(text,
                         " to %s: the VM has the new size, and the guest's file system "
                         "follows it.",
                         format_size(row->to_bytes, to));
}

/* What it is, and the first remedy: crustctl explain has the others. */
static void say_stalled(struct buffer *text, const struct store_event_row *row)
{
    const char *slash = strchr(row->to, '/');
    const enum volume_reason reason = reason_from_name(slash ? slash + 1 : "");
    char state[32];
    const struct explanation *why;

    (void)snprintf(state, sizeof(state), "%.*s", slash ? (int)(slash - row->to) : 0, row->to);
    why = reason_explain(reason, state_from_name(state));
    buffer_append_format(text, "The resize of volume %s is stalled (%s).", volume_name(row),
                         row->to);
    if (why)
        buffer_append_format(text, " %s", why->meaning);
    if (why && why->remedy[0])
        buffer_append_format(text, " What helps: %s", why->remedy[0]);
}

static void say_condition(struct buffer *text, const struct store_event_row *row, const char *what)
{
    buffer_append_format(text, "The guest reports that volume %s is %s", volume_name(row), what);
    if (*row->message)
        buffer_append_format(text, ": %s", row->message);
    else
        buffer_append_text(text, ".");
}

static void say_removed(struct buffer *text, const struct store_event_row *row)
{
    const char *why = stale_reason_meaning(stale_reason_from_name(row->cause));

    buffer_append_format(text,
                         "The runtime's metadata of volume %s was stale and was moved to crustd's "
                         "trash.",
                         volume_name(row));
    if (why)
        buffer_append_format(text, " %s", why);
}

static void write_message(enum event_kind kind, const struct store_event_row *row,
                          char ret_message[static EVENT_MESSAGE_BYTES])
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(64 * 1024);

    switch (kind) {
    case EVENT_RESIZED:
        say_resized(&text, row);
        break;
    case EVENT_STALLED:
        say_stalled(&text, row);
        break;
    case EVENT_ABNORMAL:
        say_condition(&text, row, "abnormal");
        break;
    case EVENT_NORMAL:
        say_condition(&text, row, "normal again");
        break;
    case EVENT_REMOVED:
        say_removed(&text, row);
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

static void take_uid(const char *uid, struct event_object *object)
{
    if (!take_name(uid, "-", object->uid, sizeof(object->uid)))
        object->uid[0] = '\0';
}

static bool find_pod(const struct store_event_row *row, struct event_object *ret_object)
{
    struct event_object *pod = ret_object;

    *pod = (struct event_object){.kind = "Pod"};
    take_uid(row->pod_uid, pod);
    return take_name(row->pod_namespace, "-", pod->namespace, sizeof(pod->namespace)) &&
           take_name(row->pod_name, "-.", pod->name, sizeof(pod->name));
}

static bool find_claim(const struct store_event_row *row, struct event_object *ret_object)
{
    struct event_object *claim = ret_object;
    enum { UUID_LENGTH = 36 };

    *claim = (struct event_object){.kind = "PersistentVolumeClaim"};
    if (strncmp(row->pv, "pvc-", 4) == 0 && strlen(row->pv) == 4 + UUID_LENGTH)
        take_uid(row->pv + 4, claim);
    return take_name(row->claim_namespace, "-", claim->namespace, sizeof(claim->namespace)) &&
           take_name(row->claim_name, "-.", claim->name, sizeof(claim->name));
}

static bool find_pv(const struct store_event_row *row, struct event_object *ret_object)
{
    *ret_object = (struct event_object){.kind = "PersistentVolume"};
    return take_name(row->pv, "-.", ret_object->name, sizeof(ret_object->name));
}

unsigned event_from_row(const struct store_event_row *row,
                        struct event ret_events[static EVENTS_OF_ROW])
{
    struct event event = {
        .kind = kind_of(row), .first_ms = row->at, .last_ms = row->at, .count = 1};
    unsigned count = 0;

    if (event.kind == EVENT_NONE)
        return 0;
    write_message(event.kind, row, event.message);
    if (find_pod(row, &event.object))
        ret_events[count++] = event;
    if (find_claim(row, &event.object) || find_pv(row, &event.object))
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

static void write_time(struct buffer *body, const char *name, int64_t ms)
{
    char text[CLOCK_TEXT_BYTES];

    clock_text(ms, text);
    json_append_member(body, name, text);
}

/* A name that is cut does not end with a dash or a dot. */
static int shown_length(const char *name, size_t most)
{
    size_t length = strnlen(name, most);

    while (length > 1 && !isalnum((unsigned char)name[length - 1]))
        length--;
    return (int)length;
}

/* "pod.0123456789abcdef": as client-go forms them, a hash in the place of the time. */
static void write_name(struct buffer *body, const struct event *event, const char *node)
{
    enum { NAME_SHOWN = 200, DIGITS = 16 };
    cleanup(buffer_done) struct buffer all = BUFFER_INIT(EVENT_BODY_BYTES);
    char hash[SHA256_HEX_BYTES], name[NAME_SHOWN + DIGITS + 2];

    buffer_append_format(&all, "%s\n%s\n%s\n%s\n%s\n%s\n%" PRId64 "\n%" PRId64, node,
                         event_reason(event->kind), event->object.kind, event->object.namespace,
                         event->object.name, event->message, event->first_ms, event->last_ms);
    sha256_hex(buffer_text(&all), all.length, hash);
    (void)snprintf(name, sizeof(name), "%.*s.%.*s", shown_length(event->object.name, NAME_SHOWN),
                   event->object.name, DIGITS, hash);
    json_append_member(body, "name", name);
}

static void write_object(struct buffer *body, const struct event_object *object)
{
    json_append_name(body, "involvedObject");
    buffer_append_text(body, "{\"apiVersion\":\"v1\"");
    json_append_member(body, "kind", object->kind);
    json_append_member(body, "name", object->name);
    if (object->namespace[0])
        json_append_member(body, "namespace", object->namespace);
    if (object->uid[0])
        json_append_member(body, "uid", object->uid);
    buffer_append_text(body, "}");
}

int event_write(const struct event *event, const char *node, struct buffer *ret_body)
{
    struct buffer *body = ret_body;

    buffer_append_text(body, "{\"apiVersion\":\"v1\",\"kind\":\"Event\",\"metadata\":{");
    write_name(body, event, node);
    json_append_member(body, "namespace", event_namespace(event));
    buffer_append_text(body, "}");
    write_object(body, &event->object);
    json_append_member(body, "type", event_is_warning(event->kind) ? "Warning" : "Normal");
    json_append_member(body, "reason", event_reason(event->kind));
    json_append_member(body, "message", event->message);
    buffer_append_text(body, ",\"source\":{\"component\":\"crustd\"");
    json_append_member(body, "host", node);
    buffer_append_text(body, "}");
    json_append_member(body, "reportingComponent", "crustd");
    json_append_member(body, "reportingInstance", node);
    write_time(body, "firstTimestamp", event->first_ms);
    write_time(body, "lastTimestamp", event->last_ms);
    buffer_append_format(body, ",\"count\":%u}", event->count);
    return buffer_error(body);
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
        bool is_over = item->ready_ns <= now_ns;

        if (!is_due(item) ? is_over : is_over && now_ns - item->since_ns > AGE_NS) {
            queue->dropped += item->event.count > 0;
            remove_at(queue, i);
        }
    }
}

static struct queued_event *find(const struct event_queue *queue, const struct event *event)
{
    for (unsigned i = 0; i < queue->count; i++)
        if (event_equals(&queue->item[i]->event, event))
            return queue->item[i];
    return NULL;
}

static void merge(struct event_queue *queue, struct queued_event *item, const struct event *event,
                  uint64_t now_ns)
{
    if (!is_due(item)) {
        item->event.first_ms = event->first_ms;
        item->since_ns = now_ns;
    } else {
        queue->merged++;
    }
    item->event.last_ms = event->last_ms;
    item->event.count += event->count;
}

/* The one that is missed least: taken already, else the oldest. */
static void make_room(struct event_queue *queue)
{
    unsigned victim = 0;

    if (queue->count < EVENT_QUEUE_LENGTH)
        return;
    for (unsigned i = queue->count; i-- > 0;)
        if (!is_due(queue->item[i]))
            victim = i;
    queue->dropped += is_due(queue->item[victim]);
    remove_at(queue, victim);
}

void event_queue_add(struct event_queue *queue, const struct event *event, uint64_t now_ns)
{
    struct queued_event *item;

    forget_old(queue, now_ns);
    item = find(queue, event);
    if (item) {
        merge(queue, item, event, now_ns);
        return;
    }
    item = calloc(1, sizeof(*item));
    if (!item) {
        queue->dropped++;
        return;
    }
    make_room(queue);
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
