/* SPDX-License-Identifier: Apache-2.0 */
/* kata_settings.c - from TOML items to the settings that matter.
 *
 * A key of the wrong type is an error, not skipped: Kata would refuse the file, and the finding
 * should say so rather than speak of a default.
 */
#include "doctor/checks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "doctor/toml.h"

struct reading {
    struct kata_settings *settings;
    const char *file;
    struct error *error;
    int result;
};

static void fail(struct reading *reading, const struct toml_item *item, const char *what)
{
    if (reading->result == 0)
        reading->result = error_set(reading->error, -EBADMSG, "line %u: %s %s", item->line,
                                    item->part[item->parts - 1], what);
}

static bool is_at(const struct toml_item *item, unsigned depth, const char *name)
{
    return depth < item->parts && strcmp(item->part[depth], name) == 0;
}

static void take_boolean(struct reading *reading, const struct toml_item *item, bool *ret_value)
{
    if (item->kind != TOML_BOOLEAN)
        fail(reading, item, "is neither true nor false");
    else
        *ret_value = item->truth;
}

static void take_text(struct reading *reading, const struct toml_item *item, char *ret_text,
                      size_t size)
{
    if (item->kind != TOML_STRING)
        fail(reading, item, "is no string");
    else if ((size_t)snprintf(ret_text, size, "%s", item->text) >= size)
        fail(reading, item, "is too long");
}

/* An array of a later file takes the place of an earlier one's. */
static void take_valid_path(struct reading *reading, const struct toml_item *item,
                            struct kata_table *table)
{
    if (item->kind == TOML_OTHER)
        table->valid_paths = 0;
    else if (item->kind != TOML_ELEMENT)
        fail(reading, item, "is no array");
    else if (table->valid_paths < KATA_PATHS && strlen(item->text) < KATA_FILE_BYTES)
        (void)snprintf(table->valid_path[table->valid_paths++], KATA_FILE_BYTES, "%s", item->text);
}

static struct kata_table *find_table(struct reading *reading, const struct toml_item *item)
{
    struct kata_settings *settings = reading->settings;
    struct kata_table *table;

    for (unsigned i = 0; i < settings->tables; i++)
        if (strcmp(settings->table[i].name, item->part[1]) == 0)
            return &settings->table[i];
    if (settings->tables == KATA_TABLES || strlen(item->part[1]) >= KATA_WORD_BYTES) {
        fail(reading, item, "stands in a hypervisor's table too many");
        return NULL;
    }
    table = &settings->table[settings->tables++];
    (void)snprintf(table->name, sizeof(table->name), "%s", item->part[1]);
    return table;
}

static void take_hypervisor(struct reading *reading, const struct toml_item *item)
{
    struct kata_table *table = find_table(reading, item);

    if (!table)
        return;
    if (is_at(item, 2, "enable_debug")) {
        take_boolean(reading, item, &table->enable_debug);
        (void)snprintf(table->debug_file, sizeof(table->debug_file), "%s", reading->file);
    } else if (is_at(item, 2, "extra_monitor_socket") || is_at(item, 2, "dbg_monitor_socket")) {
        take_text(reading, item, table->monitor, sizeof(table->monitor));
        (void)snprintf(table->monitor_file, sizeof(table->monitor_file), "%s", reading->file);
    } else if (is_at(item, 2, "disable_block_device_use")) {
        take_boolean(reading, item, &table->no_block_devices);
    } else if (is_at(item, 2, "confidential_guest")) {
        take_boolean(reading, item, &table->confidential);
    } else if (is_at(item, 2, "disable_guest_selinux")) {
        take_boolean(reading, item, &table->enforces_labels);
        table->enforces_labels = !table->enforces_labels;
    } else if (is_at(item, 2, "path")) {
        take_text(reading, item, table->path, sizeof(table->path));
        (void)snprintf(table->path_file, sizeof(table->path_file), "%s", reading->file);
    } else if (is_at(item, 2, "valid_hypervisor_paths")) {
        take_valid_path(reading, item, table);
    }
}

static void take_runtime(struct reading *reading, const struct toml_item *item)
{
    struct kata_settings *settings = reading->settings;

    settings->is_rust |= is_at(item, 1, "name") || is_at(item, 1, "hypervisor_name");
    if (is_at(item, 1, "hypervisor_name"))
        take_text(reading, item, settings->hypervisor, sizeof(settings->hypervisor));
}

static void on_item(void *userdata, const struct toml_item *item)
{
    struct reading *reading = userdata;

    if (item->parts == 3 && is_at(item, 0, "hypervisor"))
        take_hypervisor(reading, item);
    else if (item->parts == 2 && is_at(item, 0, "runtime"))
        take_runtime(reading, item);
}

int kata_settings_read(struct kata_settings *settings, const char *file, const char *text,
                       size_t length, struct error *error)
{
    struct error syntax = {0};
    struct reading reading = {settings, file, error, 0};
    int r = toml_read(text, length, on_item, &reading, &syntax);

    return toml_conclude(file, reading.result, r, &syntax, error);
}

const struct kata_table *kata_settings_table(const struct kata_settings *settings)
{
    const bool only_one = settings->tables == 1 && !settings->hypervisor[0];

    for (unsigned i = 0; i < settings->tables; i++)
        if (only_one || strcmp(settings->table[i].name, settings->hypervisor) == 0)
            return &settings->table[i];
    return NULL;
}
