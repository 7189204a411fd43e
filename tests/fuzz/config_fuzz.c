/* SPDX-License-Identifier: Apache-2.0 */
/* config_fuzz.c - any bytes as crustd.conf: taken whole or refused whole, and what is taken prints
 * as something that is taken again. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_text(const void *text, size_t size, struct config *ret_config)
{
    cleanup(freep) char *copy = malloc(size + 1);
    struct error error = {0};
    FILE *stream;
    int r;

    if (!copy || size == 0)
        return -1;
    memcpy(copy, text, size);
    stream = fmemopen(copy, size, "r");
    if (!stream)
        return -1;
    config_defaults(ret_config);
    r = config_read(stream, "fuzz", ret_config, &error);
    if (r < 0 && !error.text[0])
        abort();
    (void)fclose(stream);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct config config, again;
    cleanup(freep) char *text = NULL;
    size_t length = 0;
    FILE *stream;

    if (read_text(data, size, &config) < 0)
        return 0;
    stream = open_memstream(&text, &length);
    if (!stream)
        return 0;
    if (config_print(&config, stream) < 0 || fclose(stream) != 0)
        abort();
    if (read_text(text, length, &again) < 0)
        abort();
    return 0;
}
