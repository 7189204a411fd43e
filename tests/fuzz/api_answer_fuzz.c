/* SPDX-License-Identifier: Apache-2.0 */
/* api_answer_fuzz.c - the API server's answer to an event: the first two bytes are its status, and
 * the rest is its body.
 *
 * Whatever it says is text that a person can read, and only a status decides what is done.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/text.h"
#include "reconciler/kubernetes/kubernetes_events.h"

enum { STATUS = 2 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char beginning[] = "its API server answers ";
    struct api_answer answer = {.end = HTTP_EXCHANGE_ANSWERED};
    cleanup(freep) char *body = calloc(1, size + 1);
    struct error error = {0};
    enum api_verdict verdict;

    if (!body || size < STATUS)
        return 0;
    memcpy(body, data + STATUS, size - STATUS);
    answer.status = data[0] * 4 + data[1] % 4;
    answer.body = body;
    answer.length = size - STATUS;
    verdict = api_answer_judge(&answer, &error);
    must(verdict != API_SENT || answer.status / 100 == 2 || answer.status == 409);
    must(error.code == (int)answer.status);
    must(strncmp(error.text, beginning, strlen(beginning)) == 0);
    must(text_is_utf8(error.text, strlen(error.text)));
    for (const char *at = error.text; *at; at++)
        must((unsigned char)*at >= ' ' && *at != 0x7f);
    return 0;
}
