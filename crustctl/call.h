/* SPDX-License-Identifier: Apache-2.0 */
/* call.h - one request to the daemon, with progress while it takes long. */
#pragma once

#include "crustctl/source.h"

/* Called every half second until the answer is there. */
typedef void call_progress(void *userdata);

struct call_request {
    const char *method;
    const char *target;
    const char *body; /* JSON, or "" for an empty one; NULL none */
    unsigned deadline_seconds;
    call_progress *progress; /* NULL: nothing */
    void *userdata;
};

/* 0 with the answer. SOURCE_REFUSED: ret_status is HTTP's, the error has the daemon's message and
 * ret_body its JSON. SOURCE_UNREACHABLE, -errno. */
int call_daemon(struct source *source, const struct call_request *request, unsigned *ret_status,
                struct buffer *ret_body, struct error *error);
