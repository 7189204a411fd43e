/* SPDX-License-Identifier: Apache-2.0 */
/* guest_routes.c - see guest_routes.h.
 *
 * The shim's socket is in the sandbox's state directory, also if the VMM has a jail elsewhere. Go's
 * shim identifies a volume by its device, Rust's by its guest path.
 */
#include "reconciler/helper/guest_routes.h"

#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "reconciler/core/context.h"
#include "store/store.h"

/* The record of the device may be older than what the VMM has told its guest. */
static uint64_t largest_possible(const struct store_volume *volume)
{
    uint64_t bytes = volume->device_bytes;

    if (!bytes || volume->is_btrfs)
        return 0;
    if (volume->largest_bytes > bytes)
        bytes = volume->largest_bytes;
    return volume->hypervisor_bytes > bytes ? volume->hypervisor_bytes : bytes;
}

void guest_routes_describe(const struct context *context, struct store_volume *volume,
                           char shim_socket[static GUEST_ADDRESS_BYTES],
                           struct guest_request *ret_request)
{
    const struct config *config = context->config;
    bool is_rust = volume->runtime == RUNTIME_KATA_RS;

    (void)snprintf(shim_socket, GUEST_ADDRESS_BYTES, "%s/%s/" SHIM_SOCKET,
                   is_rust ? config->paths.kata_rs_sandboxes : config->paths.kata_go_sandboxes,
                   volume->sandbox_id);
    *ret_request = (struct guest_request){
        .root = context->root,
        .listener = {.vmm = volume->vmm_pid, .sandbox_id = volume->sandbox_id},
        .agent_address = volume->agent_address,
        .agent_address_size = sizeof(volume->agent_address),
        .guest_path = volume->guest_path,
        .agent_port = config->agent.port,
        .companion_port = config->agent.companion_port,
        .shim_socket = shim_socket,
        .shim_dialect = is_rust ? SHIM_RUST : SHIM_GO,
        .shim_volume = is_rust ? volume->guest_path : volume->device_path,
        .most_bytes = largest_possible(volume),
    };
    memcpy(ret_request->order, config->agent.routes, sizeof(ret_request->order));
}
