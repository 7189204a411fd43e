/* SPDX-License-Identifier: Apache-2.0 */
/* kubernetes_events.c - see kubernetes_events.h.
 *
 * Three bounds keep a node from burdening the API server: equal events are one (event.c),
 * after a burst there is one every few seconds, and an attempt that failed is repeated after twice
 * as long each time. An answer of the server that will stay the same ends the event; everything
 * else is tried again (kubernetes_events.h).
 */
#include "reconciler/kubernetes/kubernetes_events.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/loop.h"
#include "lib/path.h"
#include "reconciler/core/context.h"
#include "store/journal.h"

enum {
    ROWS_AT_ONCE = 256,  /* of the journal, few of which are events; the loop is served between */
    BEHIND_MOST = 10000, /* rows; older ones are passed over */
    BURST = 20,          /* events at once */
    BACKOFFS = 9,        /* doublings of the first pause: four minutes */
};
static const uint64_t PAUSE_NS = 3 * NSEC_PER_SEC; /* between events after a burst */
static const uint64_t BACKOFF_NS = 1 * NSEC_PER_SEC;
static const uint64_t AGE_NS = 3600 * NSEC_PER_SEC;

struct kubernetes_events {
    const struct context *context;
    const char *node;
    bool is_on;
    struct service_account account;
    int64_t seq, newest; /* rows of the journal: the last one read, the last one there */
    struct loop_timer more;

    struct event_queue queue;
    struct event current; /* count 0: none */
    uint64_t current_ns;  /* when it was taken */
    struct api_post *post;
    struct loop_timer timer; /* the next attempt, or the next event */
    uint64_t paid_ns;        /* what was sent so far is paid for up to here */
    unsigned failures;       /* attempts in a row */
    int trouble;             /* the last answer, as it was logged: 0: all is well */
    uint64_t sent, refused, dropped;
};

static void pump(struct kubernetes_events *events);

/* ---- what is said of it in the log --------------------------------------------------------- */

/* Once for each change, not for each attempt. */
static void say_trouble(struct kubernetes_events *events, int trouble, const char *text)
{
    if (trouble == events->trouble)
        return;
    events->trouble = trouble;
    if (trouble)
        log_warning(NULL, "Kubernetes gets no events from crustd: %s", text);
    else
        log_info(NULL, "Kubernetes gets events from crustd again");
}

/* ---- pace ---------------------------------------------------------------------------------- */

static void on_timer(struct loop_timer *timer)
{
    pump(container_of(timer, struct kubernetes_events, timer));
}

static void wake_at(struct kubernetes_events *events, uint64_t when)
{
    const uint64_t now = clock_boottime();

    if (when == UINT64_MAX)
        loop_timer_stop(&events->timer);
    else
        loop_timer_start(events->context->loop, &events->timer, when > now ? when - now : 0,
                         on_timer);
}

/* ---- one request --------------------------------------------------------------------------- */

/* Nodes that failed together do not come back together. */
static void try_again(struct kubernetes_events *events)
{
    const uint64_t now = clock_boottime();
    const unsigned doublings = events->failures < BACKOFFS ? events->failures : BACKOFFS - 1;
    const uint64_t half = (BACKOFF_NS << doublings) / 2;

    if (now - events->current_ns > AGE_NS) {
        events->dropped++;
        events->current.count = 0;
    }
    events->failures++;
    wake_at(events, now + half + now % half);
}

static void on_answer(struct api_post *post, const struct api_answer *answer, void *userdata)
{
    struct kubernetes_events *events = userdata;
    struct error error = {0};
    const enum api_verdict verdict = api_answer_judge(answer, &error);
    const bool is_answered = answer->end == HTTP_EXCHANGE_ANSWERED;

    say_trouble(events,
                verdict == API_SENT ? 0
                : is_answered       ? (int)answer->status
                                    : -1 - (int)answer->end,
                error.text);
    events->post = api_post_free(post);
    if (verdict == API_AGAIN) {
        try_again(events);
        return;
    }
    events->failures = 0;
    events->sent += verdict == API_SENT;
    events->refused += verdict == API_REFUSED;
    events->current.count = 0;
    pump(events);
}

static void send_current(struct kubernetes_events *events)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(EVENT_BODY_BYTES);
    cleanup(buffer_done) struct buffer token = BUFFER_INIT(SERVICE_ACCOUNT_TOKEN_BYTES);
    char target[EVENT_NAMESPACE_BYTES + 40];
    struct error error = {0};
    int r = service_account_read_token(&events->account, &token, &error);

    if (r != 0) {
        say_trouble(events, 1, error.text);
        try_again(events);
        return;
    }
    r = event_write(&events->current, events->node, &body);
    (void)snprintf(target, sizeof(target), "/api/v1/namespaces/%s/events",
                   event_namespace(&events->current));
    if (r == 0)
        r = api_post_new(&events->account, buffer_text(&token), target, buffer_text(&body),
                         on_answer, events, &events->post);
    if (r < 0)
        try_again(events);
}

/* ---- what is next -------------------------------------------------------------------------- */

/* Each event costs PAUSE_NS, and BURST of them can be saved up. */
static void pump(struct kubernetes_events *events)
{
    const uint64_t now = clock_boottime(), most = BURST * PAUSE_NS;

    if (events->post)
        return;
    if (!events->current.count) {
        if (events->paid_ns > now) {
            wake_at(events, events->paid_ns);
            return;
        }
        if (!event_queue_take(&events->queue, now, &events->current)) {
            wake_at(events, event_queue_when(&events->queue));
            return;
        }
        events->current_ns = now;
        if (now > most && events->paid_ns < now - most)
            events->paid_ns = now - most;
        events->paid_ns += PAUSE_NS;
    }
    send_current(events);
}

static void on_row(void *userdata, const struct store_event_row *row)
{
    struct kubernetes_events *events = userdata;
    struct event found[EVENTS_OF_ROW];
    const unsigned count = event_from_row(row, found);

    for (unsigned i = 0; i < count; i++)
        event_queue_add(&events->queue, &found[i], clock_boottime());
}

static void on_more(struct loop_timer *timer)
{
    kubernetes_events_follow(container_of(timer, struct kubernetes_events, more));
}

static bool find_newest(struct kubernetes_events *events)
{
    return store_newest_journal_row(events->context->store, &events->newest) == 0;
}

void kubernetes_events_follow(struct kubernetes_events *events)
{
    if (!events->is_on || !find_newest(events) || events->newest <= events->seq)
        return;
    if (events->newest - events->seq > BEHIND_MOST)
        events->seq = events->newest - BEHIND_MOST;
    /* A failure concerns the pass as well, which says so. */
    if (store_each_event_row(events->context->store, &events->seq, events->newest, ROWS_AT_ONCE,
                             on_row, events) == 0 &&
        events->newest > events->seq)
        loop_timer_start(events->context->loop, &events->more, 0, on_more);
    /* After a failure everything waits for the next attempt. */
    if (!events->failures || !loop_timer_is_active(&events->timer))
        pump(events);
}

/* ---- on and off ---------------------------------------------------------------------------- */

static void stop(struct kubernetes_events *events)
{
    loop_timer_stop(&events->more);
    loop_timer_stop(&events->timer);
    events->post = api_post_free(events->post);
    events->current.count = 0;
    events->is_on = false;
    events->trouble = 0;
    events->failures = 0;
}

static bool is_wanted(struct kubernetes_events *events)
{
    struct error error;

    if (!events->context->config->kubernetes.events)
        return false;
    if (service_account_find(events->context->config->kubernetes.service_account, &events->account,
                             &error) == SERVICE_ACCOUNT_FOUND)
        return true;
    log_warning(NULL, "kubernetes.events = on has no effect: %s", error.text);
    return false;
}

void kubernetes_events_start(struct kubernetes_events *events)
{
    events->is_on = is_wanted(events);
    if (events->is_on && store_opening_journal_row(events->context->store, &events->seq) == 0 &&
        events->seq > 0)
        events->seq--;
}

void kubernetes_events_configure(struct kubernetes_events *events)
{
    const bool was_on = events->is_on, is_on = is_wanted(events);

    if (was_on && !is_on) {
        stop(events);
        event_queue_clear(&events->queue);
    } else if (!was_on && is_on) {
        events->is_on = find_newest(events);
        events->seq = events->newest;
    }
}

void kubernetes_events_count(const struct kubernetes_events *events,
                             struct kubernetes_events_counts *ret_counts)
{
    *ret_counts =
        (struct kubernetes_events_counts){.sent = events->sent,
                                          .merged = events->queue.merged,
                                          .refused = events->refused,
                                          .dropped = events->dropped + events->queue.dropped};
}

struct kubernetes_events *kubernetes_events_new(const struct context *context, const char *node)
{
    struct kubernetes_events *events = calloc(1, sizeof(*events));

    if (events) {
        events->context = context;
        events->node = node ? node : "";
    }
    return events;
}

struct kubernetes_events *kubernetes_events_free(struct kubernetes_events *events)
{
    if (!events)
        return NULL;
    stop(events);
    event_queue_clear(&events->queue);
    free(events);
    return NULL;
}

/* ---- service account ------------------------------------------------------------------------ */

/* The files belong to crustd's own container, so they are not below --root. The address has to be
 * one: a name would have to be resolved, which waits or takes a thread, and the kubelet gives none.
 */

int service_account_find(const char *directory, struct service_account *ret_account,
                         struct error *error)
{
    const char *host = getenv("KUBERNETES_SERVICE_HOST"), *port = getenv("KUBERNETES_SERVICE_PORT");
    struct service_account *account = ret_account;
    unsigned char bytes[sizeof(struct in6_addr)];
    unsigned long number = 0;
    char *end = NULL;

    if (!host || !*host || !port)
        return error_set(error, SERVICE_ACCOUNT_NONE,
                         "KUBERNETES_SERVICE_HOST and _PORT are not set: crustd does not run in a "
                         "pod");
    if (isdigit((unsigned char)port[0]))
        number = strtoul(port, &end, 10); /* ULONG_MAX where it does not fit */
    if (strlen(host) >= SERVICE_ACCOUNT_ADDRESS_BYTES ||
        (inet_pton(AF_INET, host, bytes) != 1 && inet_pton(AF_INET6, host, bytes) != 1) || !end ||
        *end || number < 1 || number > UINT16_MAX)
        return error_set(error, SERVICE_ACCOUNT_NONE,
                         "KUBERNETES_SERVICE_HOST and _PORT are no address and port");
    account->port = (uint16_t)number;
    (void)snprintf(account->address, sizeof(account->address), "%s", host);
    (void)snprintf(account->ca_file, sizeof(account->ca_file), "%s/ca.crt", directory);
    account->directory = directory;
    return SERVICE_ACCOUNT_FOUND;
}

int service_account_read_token(const struct service_account *account, struct buffer *ret_token,
                               struct error *error)
{
    cleanup(fd_closep) int root = -1;
    struct buffer *token = ret_token;
    char path[PATH_MAX];
    size_t before = 0, after;
    int r = path_open_root("/", &root);

    if (r < 0)
        return error_set_errno(error, r, "cannot open /");
    (void)snprintf(path, sizeof(path), "%s/token", account->directory);
    buffer_clear(token);
    r = path_read_in_root(root, path, token, error);
    if (r != PATH_OK)
        return r < 0 ? r : SERVICE_ACCOUNT_NONE;
    for (after = token->length; after > 0 && isspace((unsigned char)token->data[after - 1]);)
        after--;
    buffer_rewind(token, (struct buffer_mark){.length = after});
    while (before < after && isspace((unsigned char)token->data[before]))
        before++;
    buffer_consume(token, before);
    /* What may stand in a header: a token is of a JWT's characters, or an opaque word. */
    for (after = 0; after < token->length && isgraph((unsigned char)token->data[after]);)
        after++;
    if (after == 0 || after < token->length)
        return error_set(error, SERVICE_ACCOUNT_NONE, "%s holds no token", path);
    return 0;
}
