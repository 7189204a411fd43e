/* act_shim.c - asking a sandbox's shim where the agent listens.
 *
 * Records tell it as a rule; where they do not, the shim does: GET /agent-url on its management
 * socket, which both of Kata's runtimes have (src/runtime/pkg/containerd-shim-v2/
 * shim_management.go, src/runtime-rs/crates/runtimes/src/shim_mgmt/handlers.rs). It is asked once:
 * the answer is kept with the sandbox.
 *
 * The answer is a URL of agent_address.h. A vsock or hvsock one may come without its port.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent-client/agent_address.h"
#include "lib/http_exchange.h"
#include "lib/text.h"
#include "reconciler/act.h"

#define SOCKET "shim-monitor.sock"

enum { ASK_PART = 4 }; /* of the act's time: a silent shim must leave the agent some */

static bool socket_of(const struct act *act, char *ret_path, size_t size)
{
    const struct store_volume *volume = &act->volume;
    const struct config *config = &act->reconciler->config;
    bool is_rust = strcmp(volume->runtime, "kata-rs") == 0;
    int length =
        snprintf(ret_path, size, "%s/%s/" SOCKET,
                 is_rust ? config->paths.kata_rs_sandboxes : config->paths.kata_go_sandboxes,
                 volume->sandbox_id);

    return length > 0 && (size_t)length < size;
}

/* Into the act's copy of the volume. */
static bool take_address(struct act *act, const char *text, size_t length)
{
    char *address = act->volume.agent_address;
    size_t size = sizeof(act->volume.agent_address);
    struct agent_address parsed;

    while (length && strchr(" \t\r\n", text[length - 1]))
        length--;
    if (length && length < size && !memchr(text, '\0', length)) {
        (void)snprintf(address, size, "%.*s", (int)length, text);
        if (agent_address_parse(address, &parsed, &act->error) == 0)
            return true;
        (void)snprintf(address + length, size - length, ":%u", act->reconciler->config.agent.port);
        if (strstr(address, "vsock://") && agent_address_parse(address, &parsed, &act->error) == 0)
            return true;
    }
    address[0] = '\0';
    return false;
}

static void on_answer(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                      void *userdata)
{
    struct act *act = userdata;
    char shown[64];

    if (answer->end != HTTP_EXCHANGE_ANSWERED) {
        error_set(&act->error, 0, "no agent address is known, and the shim is of no help: %s",
                  answer->error.text);
    } else if (answer->status != 200 || !take_address(act, answer->body, answer->length)) {
        text_clean(answer->body, answer->length, shown, sizeof(shown));
        error_set(&act->error, 0, "no agent address is known, and the shim answers %u: %s",
                  answer->status, shown);
    } else {
        act->error = (struct error){0};
        act->address_learned = true;
    }
    act->shim = http_exchange_free(exchange);
    act_guest_go_on(act);
}

int act_shim_ask(struct act *act)
{
    char path[CONFIG_PATH_BYTES + STORE_SANDBOX_ID_BYTES + sizeof("//" SOCKET)];
    struct http_exchange_request request = {
        .directory = act->reconciler->root,
        .socket_path = path,
        .method = "GET",
        .target = "/agent-url",
        .body_limit = STORE_ADDRESS_BYTES,
        .deadline_ns = act_time_left(act) / ASK_PART + 1,
    };

    if (!socket_of(act, path, sizeof(path)))
        return -ENAMETOOLONG;
    return http_exchange_new(act->reconciler->loop, &request, on_answer, act, &act->shim);
}
