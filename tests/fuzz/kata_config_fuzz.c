/* SPDX-License-Identifier: Apache-2.0 */
/* kata_config_fuzz.c - any bytes as a configuration of Kata or of a container engine. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "doctor/checks.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever could not be taken is said, with its line. */
static void check(int r, const struct error *error)
{
    if (r != 0 && (r != -EBADMSG || strncmp(error->text, "fuzz: ", 6) != 0))
        abort();
}

static bool is_bounded(const struct kata_table *table)
{
    bool bounded = strlen(table->monitor) < KATA_WORD_BYTES &&
                   strlen(table->path) < KATA_FILE_BYTES && table->valid_paths <= KATA_PATHS;

    for (unsigned i = 0; bounded && i < table->valid_paths; i++)
        bounded = strlen(table->valid_path[i]) < KATA_FILE_BYTES;
    return bounded;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct engine_runtimes runtimes;
    struct kata_settings settings = {0};
    struct error error = {0};
    const struct kata_table *table;
    /* Its own bytes, so that reading past their end is seen. */
    char *text = malloc(size ? size : 1);

    if (!text)
        return 0;
    memcpy(text, data, size);
    check(kata_settings_read(&settings, "fuzz", text, size, &error), &error);
    table = kata_settings_table(&settings);
    if (settings.tables > KATA_TABLES || (table && !is_bounded(table)))
        abort();
    runtimes = (struct engine_runtimes){0};
    check(engine_runtimes_read(&runtimes, "fuzz", text, size, &error), &error);
    if (runtimes.count > ENGINE_RUNTIMES)
        abort();
    free(text);
    return 0;
}
