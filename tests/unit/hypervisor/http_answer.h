/* SPDX-License-Identifier: Apache-2.0 */
/* http_answer.h - the body of an answer that a VMM has given over HTTP, to be read. */
#pragma once

#include "hypervisor/vmm_http.h"

struct http_answer {
    struct hypervisor_request request;
    struct hypervisor_reply reply;
    struct vmm_http http;
};

static inline void http_answer_init(struct http_answer *answer, const struct vmm_http_kind *kind,
                                    const void *body, size_t length)
{
    *answer = (struct http_answer){
        .http = {.kind = kind, .answer = BUFFER_INIT(2 * JSON_LIMITS_VMM_HTTP.bytes)}};
    answer->http.request = &answer->request;
    answer->http.reply = &answer->reply;
    (void)buffer_append(&answer->http.answer, body, length);
}

static inline void http_answer_done(struct http_answer *answer)
{
    buffer_done(&answer->http.answer);
    drive_report_done(&answer->http.drives);
    drive_report_done(&answer->http.leaving);
}
