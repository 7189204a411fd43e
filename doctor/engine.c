/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - runtimes of containerd and CRI-O, found by the table `runtimes` at any depth: the
 * plugin's name above it differs with the version of containerd's configuration.
 */
#include "doctor/checks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "doctor/toml.h"

struct reading {
    struct engine_runtimes *runtimes;
    struct error *error;
    int result;
};

static void fail(struct reading *reading, const struct toml_item *item, const char *what)
{
    if (reading->result == 0)
        reading->result = error_set(reading->error, -EBADMSG, "line %u: %s", item->line, what);
}

static struct engine_runtime *find_runtime(struct reading *reading, const struct toml_item *item,
                                           const char *name)
{
    struct engine_runtimes *runtimes = reading->runtimes;
    struct engine_runtime *runtime;

    for (unsigned i = 0; i < runtimes->count; i++)
        if (strcmp(runtimes->runtime[i].name, name) == 0)
            return &runtimes->runtime[i];
    if (runtimes->count == ENGINE_RUNTIMES || strlen(name) >= ENGINE_NAME_BYTES) {
        fail(reading, item, "more runtimes, or longer names, than are read");
        return NULL;
    }
    runtime = &runtimes->runtime[runtimes->count++];
    (void)snprintf(runtime->name, sizeof(runtime->name), "%s", name);
    return runtime;
}

static void take_key(struct reading *reading, struct engine_runtime *runtime,
                     const struct toml_item *item, const char *key)
{
    const bool names_config =
        strcmp(key, "ConfigPath") == 0 || strcmp(key, "runtime_config_path") == 0;

    if (item->kind != TOML_STRING) {
        if (names_config)
            fail(reading, item, "the path of a configuration is no string");
        return;
    }
    if (names_config && snprintf(runtime->config_path, sizeof(runtime->config_path), "%s",
                                 item->text) >= ENGINE_PATH_BYTES)
        fail(reading, item, "the path of a configuration is too long");
    if (names_config || strcmp(key, "runtime_type") == 0 || strcmp(key, "runtime_path") == 0)
        runtime->is_kata |= strstr(item->text, "kata") != NULL;
    if (strcmp(key, "runtime_path") == 0)
        runtime->is_rust = strstr(item->text, "runtime-rs") != NULL;
}

static void on_item(void *userdata, const struct toml_item *item)
{
    struct reading *reading = userdata;
    unsigned at = 0;

    while (at < item->parts && strcmp(item->part[at], "runtimes") != 0)
        at++;
    if (at + 3 == item->parts ||
        (at + 4 == item->parts && strcmp(item->part[at + 2], "options") == 0)) {
        struct engine_runtime *runtime = find_runtime(reading, item, item->part[at + 1]);

        if (runtime)
            take_key(reading, runtime, item, item->part[item->parts - 1]);
    }
}

int engine_runtimes_read(struct engine_runtimes *runtimes, const char *file, const char *text,
                         size_t length, struct error *error)
{
    struct error syntax = {0};
    struct reading reading = {runtimes, error, 0};
    int r = toml_read(text, length, on_item, &reading, &syntax);

    return toml_conclude(file, reading.result, r, &syntax, error);
}
