/* SPDX-License-Identifier: Apache-2.0 */
/* clients.c - see clients.h. */
#include <stdlib.h>

#include "reconciler/command/clients_state.h"

struct clients *clients_new(const struct clients_options *options)
{
    struct clients *clients = calloc(1, sizeof(*clients));

    if (!clients)
        return NULL;
    clients->options = *options;
    clients->context = options->context;
    return clients;
}

struct clients *clients_free(struct clients *clients)
{
    if (!clients)
        return NULL;
    expansions_done(clients);
    stagings_done(clients);
    stats_done(clients);
    free(clients);
    return NULL;
}
