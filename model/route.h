/* SPDX-License-Identifier: Apache-2.0 */
/* route.h - the routes to a guest, as agent.routes names them. */
#pragma once

enum guest_route {
    ROUTE_NONE,
    ROUTE_COMPANION,
    ROUTE_AGENT,
    ROUTE_SHIM,
    ROUTE_HELPER,
    GUEST_ROUTES,
};

/* What a route is found able to in a sandbox: this, or the name of the reason why not; "" is not
 * known yet. */
#define ROUTE_ABLE "able"
