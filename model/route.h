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

/* The ability of a route in a sandbox: this word, or the name of the reason why it does not work;
 * "" is not known yet. */
#define ROUTE_ABLE "able"
