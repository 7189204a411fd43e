/* SPDX-License-Identifier: Apache-2.0 */
/* runtime_cli_fuzz.c - what a program says that a volume's runtime named.
 *
 * Beyond memory safety: what is not understood has a text for people, stats that are have a usage
 * of something, and none that passes the check is larger than the device.
 */
#include <stdint.h>
#include <stdlib.h>

#include "agent-client/agent_messages.h"
#include "reconciler/command/runtime_cli.h"

enum { DEVICE_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition)
{
    if (!condition)
        abort();
}

static void take(const struct agent_stats *stats)
{
    struct error error = {0};

    must(stats->has_bytes || stats->has_inodes);
    if (runtime_cli_check_stats(stats, DEVICE_BYTES, &error) < 0)
        must(error.text[0] != '\0');
    else if (stats->has_bytes)
        must(stats->total <= DEVICE_BYTES && stats->used <= stats->total);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer output = BUFFER_INIT(64 * 1024);
    struct agent_stats stats;
    struct error error = {0};
    uint64_t bytes;

    if (buffer_append(&output, data, size) == 0) {
        if (runtime_cli_read_stats(CHILD_EXITED, 0, &output, &stats, &error) == 0)
            take(&stats);
        else
            must(error.text[0] != '\0');
        if (runtime_cli_read_capacity(CHILD_EXITED, 0, &output, &bytes, &error) < 0)
            must(error.text[0] != '\0');
    }
    buffer_done(&output);
    return 0;
}
