/* SPDX-License-Identifier: Apache-2.0 */
/* agent.c - see agent.h. The frames and messages are taken apart by crustd's own codec. */
#include "tests/bench/agent.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "agent-client/agent_messages.h"
#include "agent-client/ttrpc_codec.h"
#include "lib/cleanup.h"
#include "tests/bench/bench.h"
#include "tests/bench/sources.h"

enum { FRAME_BYTES = 64 * 1024 };

struct listening_agent {
    struct agent agent;
    struct source listener;
};

struct client {
    struct source source;
    struct agent *agent;
    size_t length;
    char bytes[FRAME_BYTES];
};

static int grow(struct agent *agent, const struct buffer *request)
{
    char path[AGENT_PATH_BYTES];

    return agent_parse_request(buffer_text(request), request->length, path, &agent->bytes);
}

static int tell(const struct agent *agent, struct buffer *reply)
{
    struct agent_stats stats = {.has_bytes = true, .total = agent->bytes};

    return agent_append_stats(reply, &stats);
}

static void answer(struct client *client, const struct ttrpc_frame *frame)
{
    static const struct ttrpc_status ok = {.code = STATUS_OK};
    cleanup(buffer_done) struct buffer payload = BUFFER_INIT(FRAME_BYTES);
    cleanup(buffer_done) struct buffer reply = BUFFER_INIT(FRAME_BYTES);
    cleanup(buffer_done) struct buffer frames = BUFFER_INIT(FRAME_BYTES);
    struct ttrpc_request request;
    bool grows;

    if (ttrpc_parse_request(frame, &request, &payload) < 0)
        fail("a request to the agent");
    grows = strcmp(request.method, AGENT_METHOD_RESIZE) == 0;
    if ((grows ? grow(client->agent, &payload) : tell(client->agent, &reply)) < 0 ||
        ttrpc_append_response(&frames, frame->header.stream, &ok, buffer_text(&reply),
                              reply.length) < 0)
        fail("an answer of the agent");
    (void)send(client->source.fd, frames.data, frames.length, MSG_NOSIGNAL);
    *(grows ? &client->agent->grown_ns : &client->agent->stats_ns) = now_ns();
}

static void on_client(struct source *source)
{
    struct client *client = container_of(source, struct client, source);
    ssize_t length =
        recv(source->fd, client->bytes + client->length, sizeof(client->bytes) - client->length, 0);
    struct ttrpc_frame frame;

    if (length <= 0) {
        sources_remove(source);
        free(client);
        return;
    }
    client->length += (size_t)length;
    while (ttrpc_next_frame(client->bytes, client->length, FRAME_BYTES, &frame) == TTRPC_FRAME) {
        answer(client, &frame);
        client->length -= frame.size;
        memmove(client->bytes, client->bytes + frame.size, client->length);
    }
}

static void on_listener(struct source *source)
{
    struct listening_agent *listening = container_of(source, struct listening_agent, listener);
    struct client *client = calloc(1, sizeof(*client));

    if (!client)
        fail("calloc");
    client->agent = &listening->agent;
    client->source = (struct source){accept4(source->fd, NULL, NULL, SOCK_CLOEXEC), on_client};
    if (client->source.fd < 0)
        fail("accept4");
    sources_add(&client->source);
}

struct agent *agent_new(const char *path)
{
    struct listening_agent *listening = calloc(1, sizeof(*listening));

    if (!listening)
        fail("calloc");
    listening->listener = (struct source){socket_listen(path), on_listener};
    sources_add(&listening->listener);
    return &listening->agent;
}

void agent_close(struct agent *agent)
{
    sources_remove(&container_of(agent, struct listening_agent, agent)->listener);
}
