/* SPDX-License-Identifier: Apache-2.0 */
/* kata_settings.c - from TOML items to the settings that matter.
 *
 * A key of the wrong type is an error, not skipped: Kata would refuse the file, and the finding
 * should say so rather than speak of a default.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "doctor/checks.h"
#include "lib/cleanup.h"

static int fail(const struct toml_item *item, const char *what, struct error *error)
{
    return error_set(error, -EBADMSG, "%s: line %u: %s %s", item->file, item->line,
                     item->part[item->parts - 1], what);
}

static int take_boolean(const struct toml_item *item, bool *ret_value, struct error *error)
{
    if (item->kind != TOML_BOOLEAN)
        return fail(item, "is neither true nor false", error);
    *ret_value = item->truth;
    return 0;
}

static int take_text(const struct toml_item *item, char *ret_text, size_t size, struct error *error)
{
    if (item->kind != TOML_STRING)
        return fail(item, "is no string", error);
    if ((size_t)snprintf(ret_text, size, "%s", item->text) >= size)
        return fail(item, "is too long", error);
    return 0;
}

/* An array of a later file takes the place of an earlier one's. */
static int take_valid_path(const struct toml_item *item, struct kata_table *table,
                           struct error *error)
{
    if (item->kind == TOML_OTHER)
        table->valid_paths = 0;
    else if (item->kind != TOML_ELEMENT)
        return fail(item, "is no array", error);
    else if (table->valid_paths < KATA_PATHS && strlen(item->text) < KATA_FILE_BYTES)
        (void)snprintf(table->valid_path[table->valid_paths++], KATA_FILE_BYTES, "%s", item->text);
    return 0;
}

/* [hypervisor.NAME] KEY; where the value goes, and the name of the file that set it last. */
static const struct {
    const char *key;
    size_t member, size; /* size: of a text; 0: a boolean */
    size_t file;         /* 0: none is kept */
} keys[] = {
#define MEMBER(member) offsetof(struct kata_table, member)
    {"enable_debug", MEMBER(enable_debug), 0, MEMBER(debug_file)},
    {"extra_monitor_socket", MEMBER(monitor), KATA_WORD_BYTES, MEMBER(monitor_file)},
    {"dbg_monitor_socket", MEMBER(monitor), KATA_WORD_BYTES, MEMBER(monitor_file)},
    {"path", MEMBER(path), KATA_FILE_BYTES, MEMBER(path_file)},
    {"disable_block_device_use", MEMBER(no_block_devices), 0, 0},
    {"confidential_guest", MEMBER(confidential), 0, 0},
};

static int take_hypervisor(struct kata_settings *settings, const struct toml_item *item,
                           struct error *error)
{
    struct kata_table *table = settings->table;
    const char *key = item->part[2];
    bool is_off = true;
    int r;

    while (table < settings->table + settings->tables && strcmp(table->name, item->part[1]) != 0)
        table++;
    if (table == settings->table + settings->tables) {
        if (settings->tables == KATA_TABLES || strlen(item->part[1]) >= KATA_WORD_BYTES)
            return fail(item, "stands in a hypervisor's table too many", error);
        settings->tables++;
        (void)snprintf(table->name, sizeof(table->name), "%s", item->part[1]);
    }
    for (size_t i = 0; i < array_length(keys); i++) {
        char *member = (char *)table + keys[i].member;

        if (strcmp(keys[i].key, key) != 0)
            continue;
        if (keys[i].file)
            (void)snprintf((char *)table + keys[i].file, KATA_FILE_BYTES, "%s", item->file);
        return keys[i].size ? take_text(item, member, keys[i].size, error)
                            : take_boolean(item, (bool *)(void *)member, error);
    }
    if (strcmp(key, "valid_hypervisor_paths") == 0)
        return take_valid_path(item, table, error);
    if (strcmp(key, "disable_guest_selinux") != 0)
        return 0;
    r = take_boolean(item, &is_off, error);
    table->enforces_labels = !is_off;
    return r;
}

static int on_item(void *userdata, const struct toml_item *item, struct error *error)
{
    struct kata_settings *settings = userdata;
    bool is_hypervisor;

    if (item->parts == 3 && strcmp(item->part[0], "hypervisor") == 0)
        return take_hypervisor(settings, item, error);
    if (item->parts != 2 || strcmp(item->part[0], "runtime") != 0)
        return 0;
    is_hypervisor = strcmp(item->part[1], "hypervisor_name") == 0;
    settings->is_rust |= is_hypervisor || strcmp(item->part[1], "name") == 0;
    return is_hypervisor
               ? take_text(item, settings->hypervisor, sizeof(settings->hypervisor), error)
               : 0;
}

int kata_settings_read(struct kata_settings *settings, const char *file, const char *text,
                       size_t length, struct error *error)
{
    return toml_read(file, text, length, on_item, settings, error);
}

const struct kata_table *kata_settings_table(const struct kata_settings *settings)
{
    const bool only_one = settings->tables == 1 && !settings->hypervisor[0];

    for (unsigned i = 0; i < settings->tables; i++)
        if (only_one || strcmp(settings->table[i].name, settings->hypervisor) == 0)
            return &settings->table[i];
    return NULL;
}

/* ---- runtimes of the engine ---------------------------------------------------------------- */

/* Found by the table `runtimes` at any depth: the plugin's name above it differs with the version
 * of containerd's configuration. */
static int on_runtime_item(void *userdata, const struct toml_item *item, struct error *error)
{
    struct engine_runtimes *runtimes = userdata;
    struct engine_runtime *runtime = runtimes->runtime;
    const char *key = item->part[item->parts - 1], *name;
    bool is_config, is_path;
    unsigned at = 0;

    while (at < item->parts && strcmp(item->part[at], "runtimes") != 0)
        at++;
    if (at + 3 != item->parts &&
        (at + 4 != item->parts || strcmp(item->part[at + 2], "options") != 0))
        return 0;
    name = item->part[at + 1];
    while (runtime < runtimes->runtime + runtimes->count && strcmp(runtime->name, name) != 0)
        runtime++;
    if (runtime == runtimes->runtime + runtimes->count) {
        if (runtimes->count == ENGINE_RUNTIMES || strlen(name) >= ENGINE_NAME_BYTES)
            return error_set(error, -EBADMSG,
                             "%s: line %u: more runtimes, or longer names, than are read",
                             item->file, item->line);
        runtimes->count++;
        (void)snprintf(runtime->name, sizeof(runtime->name), "%s", name);
    }
    is_config = strcmp(key, "ConfigPath") == 0 || strcmp(key, "runtime_config_path") == 0;
    is_path = strcmp(key, "runtime_path") == 0;
    if (is_config && (item->kind != TOML_STRING || strlen(item->text) >= ENGINE_PATH_BYTES))
        return error_set(error, -EBADMSG, "%s: line %u: the path of a configuration is %s",
                         item->file, item->line,
                         item->kind == TOML_STRING ? "too long" : "no string");
    if (is_config)
        (void)snprintf(runtime->config_path, sizeof(runtime->config_path), "%s", item->text);
    if (is_config || is_path || strcmp(key, "runtime_type") == 0)
        runtime->is_kata |= strstr(item->text, "kata") != NULL;
    if (is_path)
        runtime->is_rust = strstr(item->text, "runtime-rs") != NULL;
    if (strcmp(key, "sandboxer") == 0)
        runtime->is_sandboxer = strcmp(item->text, "shim") == 0;
    return 0;
}

int engine_runtimes_read(struct engine_runtimes *runtimes, const char *file, const char *text,
                         size_t length, struct error *error)
{
    return toml_read(file, text, length, on_runtime_item, runtimes, error);
}
