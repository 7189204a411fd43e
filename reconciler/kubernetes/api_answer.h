/* SPDX-License-Identifier: Apache-2.0 */
/* api_answer.h - what the API server's answer to an event means. Pure. */
#pragma once

#include "lib/result.h"

struct http_exchange_answer;

enum api_verdict {
    API_SENT,
    API_REFUSED, /* it will stay the same */
    API_AGAIN,   /* nobody there, not believed, too busy, a token that has expired */
};

enum api_verdict api_answer_judge(const struct http_exchange_answer *answer);

/* Why it was not sent, with the reason that the server gives. */
void api_answer_explain(const struct http_exchange_answer *answer, struct error *ret_error);
