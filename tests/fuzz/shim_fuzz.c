/* SPDX-License-Identifier: Apache-2.0 */
/* shim_fuzz.c - a body through all readers of a shim's answers, and as a path that it is asked for.
 *
 * What is put before people is text. A path that is asked for is the same when it has been decoded
 * as often as the shim does.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_address.h"
#include "agent-client/shim_client.h"
#include "lib/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void expect_text(const char *text)
{
    must(text_is_utf8(text, strlen(text)) && !strpbrk(text, "\n\r\x1b"));
}

static void decode(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++, to++) {
        unsigned byte = (unsigned char)*from;

        if (byte == '%') {
            must(sscanf(from, "%%%2X", &byte) == 1);
            from += 2;
        }
        *to = (char)byte;
    }
    *to = '\0';
}

static void ask(const char *path)
{
    for (unsigned dialect = SHIM_GO; dialect <= SHIM_RUST; dialect++) {
        struct buffer target = BUFFER_INIT(SHIM_QUERY_BYTES), body = BUFFER_INIT(SHIM_QUERY_BYTES);
        const char *method;

        if (shim_encode(dialect, path, false, 1, &method, &target, &body) == 0) {
            char *value;

            buffer_clear(&target);
            must(shim_encode(dialect, path, true, 1, &method, &target, &body) == 0);
            value = strstr(target.data, "path=") + 5;
            must(!strpbrk(value, " \r\n\t"));
            decode(value);
            if (dialect == SHIM_GO)
                decode(value);
            must(strcmp(value, path) == 0);
        }
        buffer_done(&target);
        buffer_done(&body);
    }
}

static void read_address(const char *body, size_t size)
{
    struct agent_address parsed;
    char address[128];

    if (shim_parse_agent_url(body, size, 1024, address, sizeof(address)) == 0)
        must(agent_address_parse(address, &parsed, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *body = calloc(1, size + 1);
    struct agent_stats stats;
    struct error error;

    if (!body)
        return 0;
    if (size)
        memcpy(body, data, size);
    must(shim_outcome(500, body, size, &error) != AGENT_DONE);
    expect_text(error.text);
    for (unsigned dialect = SHIM_GO; dialect <= SHIM_RUST; dialect++)
        if (shim_parse_stats(dialect, body, size, &stats) == 0)
            expect_text(stats.condition);
    read_address(body, size);
    ask(body);
    free(body);
    return 0;
}
