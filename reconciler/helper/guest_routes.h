/* SPDX-License-Identifier: Apache-2.0 */
/* guest_routes.h - what the record and the configuration say about the routes to a volume's
 * guest. */
#pragma once

#include "agent-client/guest_call.h"

struct context;
struct store_volume;

/* Fills in everything but the call itself, its route and its deadline. Borrows the volume, whose
 * address it may fill in, and the socket's path. */
void guest_routes_describe(const struct context *context, struct store_volume *volume,
                           char shim_socket[static GUEST_ADDRESS_BYTES],
                           struct guest_request *ret_request);
