/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_found.c - QEMU's answers, each bounded before anything of it is kept.
 *
 * A drive has one set. An interrupted attach may have left a second one, so there may be several:
 * the one that the drive's node is on comes first, and DETACH removes all.
 */
#include "hypervisor/qemu_hotplug_found.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/qemu_report.h"
#include "lib/cleanup.h"

/* ---- sets ---- */

/* The opaque text of a set that is crustd's: that of its first descriptor. NULL: it is not. */
static const char *id_of_set(const cJSON *set, uint64_t *ret_number, int *ret_fd)
{
    const cJSON *first = cJSON_GetArrayItem(json_member(set, "fds"), 0);
    const char *opaque = json_string(first, "opaque");
    const char *id = opaque ? qemu_hotplug_id_of(opaque) : NULL;
    uint64_t fd;

    if (!id || json_number(set, "fdset-id", ret_number) != JSON_NUMBER ||
        json_number(first, "fd", &fd) != JSON_NUMBER || fd > INT_MAX)
        return NULL;
    *ret_fd = (int)fd;
    return id;
}

static int read_sets(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                     const cJSON *value, struct error *error)
{
    const char *wanted = qemu_hotplug_id_of(names->opaque);
    const cJSON *object;

    *found = (struct qemu_hotplug_found){.set_count = 0};
    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "query-fdsets: the answer is no list");
    cJSON_ArrayForEach(object, value)
    {
        struct qemu_hotplug_set set;
        const char *id = id_of_set(object, &set.number, &set.fd);

        if (id && strcmp(id, wanted) == 0 && found->set_count < QEMU_HOTPLUG_SETS)
            found->sets[found->set_count++] = set;
    }
    found->has[QEMU_PART_SET] = found->set_count > 0;
    return 0;
}

/* ---- nodes ---- */

/* Puts the set that the node is on before the others. */
static void note_file(struct qemu_hotplug_found *found, const struct qemu_node *node,
                      const struct qemu_nodes *nodes)
{
    struct qemu_source source;

    found->read_only = node->read_only;
    if (!qemu_source_read(&source, node, nodes) || !source.is_set)
        return;
    for (size_t i = 0; i < found->set_count; i++) {
        struct qemu_hotplug_set set = found->sets[i];

        if (set.number != source.set)
            continue;
        found->sets[i] = found->sets[0];
        found->sets[0] = set;
        found->is_on_set = true;
        return;
    }
}

static int read_nodes(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                      const cJSON *value, struct error *error)
{
    static const enum qemu_part parts[] = {QEMU_PART_FILE, QEMU_PART_RAW, QEMU_PART_THROTTLE};
    struct qemu_nodes nodes = {.count = 0};
    int r = qemu_report_read_nodes(&nodes, value, error);

    for (unsigned i = 0; r == 0 && i < array_length(parts); i++) {
        const struct qemu_node *node = qemu_nodes_find(&nodes, names->part[parts[i]]);

        found->has[parts[i]] = node;
        if (node && parts[i] == QEMU_PART_FILE)
            note_file(found, node, &nodes);
    }
    qemu_nodes_done(&nodes);
    return r;
}

/* ---- objects and devices ---- */

static bool is_child(const cJSON *object, const char *prefix)
{
    const char *type = json_text(object, "type");

    return strncmp(type, prefix, strlen(prefix)) == 0;
}

static int read_objects(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                        const cJSON *value, struct error *error)
{
    const cJSON *object;

    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "qom-list: the answer is no list");
    cJSON_ArrayForEach(object, value)
    {
        if (strcmp(json_text(object, "name"), names->part[QEMU_PART_GROUP]) == 0)
            found->has[QEMU_PART_GROUP] = true;
    }
    return 0;
}

static void read_device(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                        const cJSON *object)
{
    const char *name = json_text(object, "name");

    if (strcmp(name, names->part[QEMU_PART_DEVICE]) == 0)
        found->has[QEMU_PART_DEVICE] = true;
    if (strcmp(name, QEMU_KATA_CONTROLLER) == 0 && is_child(object, "child<virtio-scsi"))
        found->has_kata_controller = true;
    if (strcmp(name, QEMU_HOTPLUG_CONTROLLER) == 0)
        found->has_own_controller = true;
    if (is_child(object, "child<pci-bridge>") && qemu_name_is_plain(name) &&
        found->bridge_count < QEMU_HOTPLUG_BRIDGES)
        strcpy(found->bridges[found->bridge_count++], name);
}

static int read_devices(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                        const cJSON *value, struct error *error)
{
    const cJSON *object;

    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "qom-list: the answer is no list");
    cJSON_ArrayForEach(object, value) read_device(found, names, object);
    return 0;
}

int qemu_hotplug_read(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                      enum qemu_hotplug_command command, const cJSON *value, struct error *error)
{
    if (command == QEMU_ASK_SETS)
        return read_sets(found, names, value, error);
    if (command == QEMU_ASK_NODES)
        return read_nodes(found, names, value, error);
    if (command == QEMU_ASK_OBJECTS)
        return read_objects(found, names, value, error);
    return read_devices(found, names, value, error);
}

/* ---- what that comes to ---- */

bool qemu_hotplug_is_absent(const struct qemu_hotplug_found *found)
{
    for (enum qemu_part part = QEMU_PART_SET; part < QEMU_PARTS; part++) {
        if (found->has[part])
            return false;
    }
    return true;
}

bool qemu_hotplug_has_gap(const struct qemu_hotplug_found *found)
{
    bool missing = false;

    for (enum qemu_part part = QEMU_PART_SET; part < QEMU_PARTS; part++) {
        if (found->has[part] && missing && part != QEMU_PART_GROUP)
            return true;
        missing |= !found->has[part];
    }
    return found->has[QEMU_PART_FILE] && (!found->has[QEMU_PART_THROTTLE] || !found->is_on_set);
}

enum hypervisor_drive_state qemu_hotplug_state(const struct qemu_hotplug_found *found)
{
    if (qemu_hotplug_is_absent(found))
        return HYPERVISOR_DRIVE_ABSENT;
    return found->has[QEMU_PART_DEVICE] ? HYPERVISOR_DRIVE_PRESENT : HYPERVISOR_DRIVE_PARTIAL;
}

/* ---- all drives ---- */

void qemu_hotplug_list_done(struct qemu_hotplug_list *list)
{
    free(list->entries);
    free(list->fds);
    free(list->devices);
    *list = (struct qemu_hotplug_list){0};
}

static bool list_has(const struct qemu_hotplug_list *list, const char *drive_id)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->entries[i].drive_id, drive_id) == 0)
            return true;
    }
    return false;
}

static void list_add(struct qemu_hotplug_list *list, const char *drive_id, int fd)
{
    struct hypervisor_drive_entry *entry = &list->entries[list->count];
    struct qemu_hotplug_names names;

    *entry = (struct hypervisor_drive_entry){.state = HYPERVISOR_DRIVE_PARTIAL};
    strcpy(entry->drive_id, drive_id); /* bounded by qemu_hotplug_id_of() */
    qemu_hotplug_names_init(&names, drive_id);
    strcpy(list->devices[list->count], names.part[QEMU_PART_DEVICE]);
    list->fds[list->count++] = fd;
}

/* A drive may have more than one set for a while. Each is searched for among the drives. */
static int count_name(unsigned *count, struct error *error)
{
    if (++*count <= 2 * QEMU_HOTPLUG_ENTRIES)
        return 0;
    return error_set(error, -EMSGSIZE, "the VMM reports more than %d drives", QEMU_HOTPLUG_ENTRIES);
}

int qemu_hotplug_list_sets(struct qemu_hotplug_list *list, const cJSON *value, struct error *error)
{
    const cJSON *object;
    unsigned seen = 0;
    uint64_t number;
    int fd;

    qemu_hotplug_list_done(list);
    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "query-fdsets: the answer is no list");
    list->entries = calloc(QEMU_HOTPLUG_ENTRIES, sizeof(*list->entries));
    list->fds = calloc(QEMU_HOTPLUG_ENTRIES, sizeof(*list->fds));
    list->devices = calloc(QEMU_HOTPLUG_ENTRIES, sizeof(*list->devices));
    if (!list->entries || !list->fds || !list->devices)
        return error_set_errno(error, -ENOMEM, "cannot keep the list of drives");
    cJSON_ArrayForEach(object, value)
    {
        const char *id = id_of_set(object, &number, &fd);

        if (!id)
            continue;
        if (count_name(&seen, error) < 0)
            return -EMSGSIZE;
        if (list_has(list, id))
            continue;
        if (list->count == QEMU_HOTPLUG_ENTRIES)
            return error_set(error, -EMSGSIZE, "the VMM reports more than %d drives",
                             QEMU_HOTPLUG_ENTRIES);
        list_add(list, id, fd);
    }
    return 0;
}

int qemu_hotplug_list_devices(struct qemu_hotplug_list *list, const cJSON *value,
                              struct error *error)
{
    const cJSON *object;
    unsigned seen = 0;

    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "qom-list: the answer is no list");
    cJSON_ArrayForEach(object, value)
    {
        const char *name = json_text(object, "name");

        if (strncmp(name, "crust-", 6) != 0)
            continue;
        if (count_name(&seen, error) < 0)
            return -EMSGSIZE;
        for (size_t i = 0; i < list->count; i++) {
            if (strcmp(list->devices[i], name) == 0)
                list->entries[i].state = HYPERVISOR_DRIVE_PRESENT;
        }
    }
    return 0;
}
