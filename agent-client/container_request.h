/* SPDX-License-Identifier: Apache-2.0 */
/* container_request.h - a request that owns its texts, and its check. Private to agent-client/. */
#pragma once

#include "agent-client/container_run.h"

struct container_order {
    struct container_request request; /* points to what follows */
    char *address, *container_id, *directory, *program;
    char **arguments, **volume_paths; /* never NULL */
    struct container_storage storage; /* if the request has one */
    char *storage_address, *storage_type, *mount_point;
    char **storage_options;
};

/* 0, -ENOMEM; then container_order_done() is still due. */
int container_order_init(struct container_order *order, const struct container_request *request);
void container_order_done(struct container_order *order); /* fine on a zeroed one */

/* What is wrong with the request, for a person; NULL if nothing is. */
const char *container_order_fault(const struct container_order *order);
