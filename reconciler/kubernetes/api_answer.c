/* SPDX-License-Identifier: Apache-2.0 */
/* api_answer.c - see kubernetes_events.h. */
#include "reconciler/kubernetes/kubernetes_events.h"

#include <string.h>

#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/text.h"

/* 409: an attempt whose answer was lost had created it. 401: the token is replaced, sooner or
 * later. */
enum api_verdict api_answer_judge(const struct api_answer *answer)
{
    if (answer->end != HTTP_EXCHANGE_ANSWERED)
        return API_AGAIN;
    if ((answer->status >= 200 && answer->status < 300) || answer->status == 409)
        return API_SENT;
    if (answer->status >= 500 || answer->status == 401 || answer->status == 408 ||
        answer->status == 429)
        return API_AGAIN;
    return API_REFUSED;
}

void api_answer_explain(const struct api_answer *answer, struct error *ret_error)
{
    cleanup(json_deletep) cJSON *status = NULL;
    char shown[ERROR_TEXT_BYTES / 2];
    const char *message = NULL;

    if (answer->end != HTTP_EXCHANGE_ANSWERED) {
        *ret_error = answer->error;
        return;
    }
    if (json_parse(answer->body, answer->length, JSON_LIMITS_HTTP, &status, NULL) == 0)
        message = json_string(status, "message");
    message = message ? message : "";
    text_clean(message, strlen(message), shown, sizeof(shown));
    (void)error_set(ret_error, (int)answer->status, "its API server answers %u%s%s", answer->status,
                    *shown ? ": " : "", shown);
}
