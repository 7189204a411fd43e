/* SPDX-License-Identifier: Apache-2.0 */
/* event_fuzz.c - a row of the journal as Events: the first two bytes are its flags, and the texts
 * follow, each up to a newline. They come from guests, drivers, users and paths.
 *
 * What is sent is JSON that crustd itself would accept, and every name and message has its bounds.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"
#include "reconciler/kubernetes/kubernetes_events.h"
#include "store/journal.h"

enum { FLAGS = 2, TEXTS = 10 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

/* Cuts off the next text. */
static char *next_text(char **at)
{
    char *text = *at, *end = strchr(text, '\n');

    *at = end ? end + 1 : text + strlen(text);
    if (end)
        *end = '\0';
    return text;
}

static void check(const struct event *event)
{
    cleanup(buffer_done) struct buffer body = BUFFER_INIT(EVENT_BODY_BYTES);
    cleanup(json_deletep) cJSON *object = NULL;
    const cJSON *involved;
    struct error error;

    must(event->kind != EVENT_NONE && event->object.name[0]);
    must(text_is_utf8(event->message, strlen(event->message)));
    must(event_equals(event, event));
    if (event_write(event, "node", &body) < 0)
        return;
    must(json_parse(buffer_text(&body), body.length, JSON_LIMITS_HTTP, &object, &error) == 0);
    involved = json_member(object, "involvedObject");
    must(strcmp(json_text(involved, "name"), event->object.name) == 0);
    must(strcmp(json_text(object, "reason"), event_words[event->kind].reason) == 0);
    must(strcmp(json_text(object, "message"), event->message) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(freep) char *texts = calloc(1, size + 1);
    struct event events[EVENTS_OF_ROW];
    struct store_event_row row;
    char *text[TEXTS], *at = texts;
    unsigned count;

    if (!texts || size < FLAGS)
        return 0;
    memcpy(texts, data + FLAGS, size - FLAGS);
    for (unsigned i = 0; i < TEXTS; i++)
        text[i] = next_text(&at);
    row = (struct store_event_row){.seq = 1,
                                   .at = 1767323045678,
                                   .kind = text[0],
                                   .to = text[1],
                                   .message = text[2],
                                   .cause = text[3],
                                   .pv = text[4],
                                   .claim_namespace = text[5],
                                   .claim_name = text[6],
                                   .pod_namespace = text[7],
                                   .pod_name = text[8],
                                   .pod_uid = text[9],
                                   .target_path = at,
                                   .is_current = data[0] & 1,
                                   .is_stalled = data[0] & 2,
                                   .is_repeated = data[0] & 4,
                                   .from_bytes = (int64_t)data[1] << (data[0] >> 3),
                                   .to_bytes = (int64_t)data[1] << 40};
    count = event_from_row(&row, events);
    must(count <= EVENTS_OF_ROW);
    for (unsigned i = 0; i < count; i++)
        check(&events[i]);
    return 0;
}
