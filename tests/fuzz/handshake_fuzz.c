/* SPDX-License-Identifier: Apache-2.0 */
/* handshake_fuzz.c - the hypervisor's answer to CONNECT, and an agent's address.
 *
 * The verdict on a longer answer never contradicts the one on its beginning, and nothing beyond the
 * newline belongs to the answer. An address that is accepted has a companion that is accepted.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent-client/agent_address.h"
#include "agent-client/agent_client.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static void answer(const char *bytes, size_t size)
{
    int verdict = HYBRID_VSOCK_MORE;
    size_t line = 0;

    for (size_t length = 0; length <= size && length <= 2 * HYBRID_VSOCK_LINE_BYTES; length++) {
        size_t used = 0;
        int now = hybrid_vsock_answer(bytes, length, &used);

        must(verdict == HYBRID_VSOCK_MORE || now == verdict);
        if (now == HYBRID_VSOCK_CONNECTED) {
            must(used <= length && bytes[used - 1] == '\n' && (!line || line == used));
            line = used;
        }
        verdict = now;
    }
}

static void address(const char *bytes, size_t size)
{
    char *text = strndup(bytes, size);
    char companion[AGENT_ADDRESS_PATH_BYTES + 64];
    struct agent_address parsed;

    if (!text)
        return;
    if (agent_address_parse(text, &parsed, NULL) == 0 &&
        agent_companion_address(text, 1030, companion, sizeof(companion))) {
        must(agent_address_parse(companion, &parsed, NULL) == 0);
        must(parsed.port == 1030);
    }
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bytes = (const char *)data;

    answer(bytes, size);
    if (size)
        address(bytes, size);
    return 0;
}
