/* SPDX-License-Identifier: Apache-2.0 */
/* act_shim.c - what a sandbox's shim is asked: where the agent listens, and to have it grow a
 * volume.
 *
 * The records tell the address as a rule; where they do not, the shim does: GET /agent-url on its
 * management socket, which both of Kata's runtimes have. It is asked once: the answer is kept with
 * the sandbox.
 *
 * The socket stands in the sandbox's state directory, also where the VMM has a jail elsewhere. Go's
 * shim knows a volume by its device, Rust's by the guest's path of it.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/path.h"
#include "lib/text.h"
#include "reconciler/act/act.h"

enum {
    ASK_PART = 4, /* of the act's time: a silent shim must leave the agent some */
    SOCKET_BYTES = CONFIG_PATH_BYTES + STORE_SANDBOX_ID_BYTES + sizeof("//" SHIM_SOCKET),
};

static enum shim_dialect dialect_of(const struct act *act)
{
    return act->volume.runtime == RUNTIME_KATA_RS ? SHIM_RUST : SHIM_GO;
}

static const char *volume_of(const struct act *act)
{
    return dialect_of(act) == SHIM_RUST ? act->volume.guest_path : act->volume.device_path;
}

static void socket_of(const struct act *act, char ret_path[static SOCKET_BYTES])
{
    const struct config *config = &act->reconciler->config;

    (void)snprintf(ret_path, SOCKET_BYTES, "%s/%s/" SHIM_SOCKET,
                   dialect_of(act) == SHIM_RUST ? config->paths.kata_rs_sandboxes
                                                : config->paths.kata_go_sandboxes,
                   act->volume.sandbox_id);
}

/* ---- where the agent listens ------------------------------------------------------------- */

static void on_url(struct http_exchange *exchange, const struct http_exchange_answer *answer,
                   void *userdata)
{
    struct act *act = userdata;
    uint32_t port = act->reconciler->config.agent.port;
    char shown[64];

    if (answer->end != HTTP_EXCHANGE_ANSWERED) {
        error_set(&act->error, 0, "no agent address is known, and the shim is of no help: %s",
                  answer->error.text);
    } else if (answer->status != 200 ||
               shim_parse_agent_url(answer->body, answer->length, port, act->volume.agent_address,
                                    sizeof(act->volume.agent_address)) < 0) {
        text_clean(answer->body, answer->length, shown, sizeof(shown));
        error_set(&act->error, 0, "no agent address is known, and the shim answers %u: %s",
                  answer->status, shown);
    } else {
        act->address_learned = true;
    }
    if (!act->address_learned)
        act->reason = REASON_AGENT_UNREACHABLE;
    act->asking = http_exchange_free(exchange);
    act_guest_go_on(act);
}

int act_shim_ask(struct act *act)
{
    char path[SOCKET_BYTES];
    struct http_exchange_request request = {
        .directory = act->reconciler->root,
        .socket_path = path,
        .method = "GET",
        .target = "/agent-url",
        .body_limit = STORE_ADDRESS_BYTES,
        .deadline_ns = act_time_left(act) / ASK_PART + 1,
    };

    socket_of(act, path);
    return http_exchange_new(act->reconciler->loop, &request, on_url, act, &act->asking);
}

/* ---- the growth -------------------------------------------------------------------------- */

bool act_shim_is_there(const struct act *act)
{
    char path[SOCKET_BYTES];
    struct stat st;

    socket_of(act, path);
    return volume_of(act)[0] == '/' && path_stat_in_root(act->reconciler->root, path, &st) == 0 &&
           S_ISSOCK(st.st_mode);
}

int act_shim_call(struct act *act, enum agent_act what, uint64_t deadline_ns, shim_done *done)
{
    char path[SOCKET_BYTES];
    struct shim_request request = {
        .act = what,
        .root = act->reconciler->root,
        .socket_path = path,
        .dialect = dialect_of(act),
        .volume = volume_of(act),
        .bytes = act->volume.device_bytes,
        .deadline_ns = deadline_ns,
    };

    socket_of(act, path);
    return shim_call_new(act->reconciler->loop, &request, done, act, &act->shim);
}
