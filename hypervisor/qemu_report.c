/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_report.c - QMP's replies into a report.
 *
 * Every string is bounded before it is copied and every list before it grows. Roots may repeat a
 * name (two frontends can share a node); then the first entry represents both. Named nodes may not.
 */
#include "hypervisor/qemu_report.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

void qemu_nodes_done(struct qemu_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        free(nodes->entries[i].file);
    free(nodes->entries);
    qemu_protocols_done(&nodes->protocols);
    *nodes = (struct qemu_nodes){0};
}

void qemu_report_done(struct qemu_report *report)
{
    qemu_nodes_done(&report->roots);
    qemu_nodes_done(&report->nodes);
    free(report->descriptors);
    *report = (struct qemu_report){0};
}

const struct qemu_node *qemu_nodes_find(const struct qemu_nodes *nodes, const char *name)
{
    for (size_t i = 0; i < nodes->count; i++) {
        if (strcmp(nodes->entries[i].name, name) == 0)
            return &nodes->entries[i];
    }
    return NULL;
}

int qemu_report_refuse_size(struct error *error)
{
    return error_set(error, -EMSGSIZE, "the VMM reports more than %d block nodes",
                     QEMU_REPORT_ENTRIES);
}

/* Makes room for one more entry of `size` bytes. Capacities are powers of two, so they need not be
 * stored. */
static int reserve(void **entries, size_t count, size_t size, struct error *error)
{
    void *grown;

    if (count >= QEMU_REPORT_ENTRIES)
        return qemu_report_refuse_size(error);
    if (count & (count - 1) || (count && count < 8))
        return 0;
    grown = realloc(*entries, (count ? 2 * count : 8) * size);
    if (!grown)
        return error_set_errno(error, -ENOMEM, "cannot keep the VMM's report");
    *entries = grown;
    return 0;
}

int qemu_nodes_add(struct qemu_nodes *nodes, const struct qemu_node *node, const char *file,
                   struct error *error)
{
    void *entries = nodes->entries;
    char *copy;
    int r;

    if (!node->name[0] || strlen(file) >= QEMU_FILE_BYTES)
        return error_set(error, -EBADMSG, "the VMM reports a block node of no name or too long");
    if (qemu_nodes_find(nodes, node->name))
        return error_set(error, -EBADMSG, "the VMM reports block node \"%s\" twice", node->name);
    r = reserve(&entries, nodes->count, sizeof(*node), error);
    if (r < 0)
        return r;
    nodes->entries = entries;
    copy = strdup(file);
    if (!copy || qemu_protocols_add(&nodes->protocols, node->driver, copy) < 0) {
        free(copy);
        return error_set_errno(error, -ENOMEM, "cannot keep the VMM's report");
    }
    nodes->entries[nodes->count] = *node;
    nodes->entries[nodes->count++].file = copy;
    return 0;
}

static bool copy_name(const cJSON *object, const char *key, char ret_name[static QEMU_NAME_BYTES])
{
    const char *text = json_string(object, key);

    if (!text || strlen(text) >= QEMU_NAME_BYTES)
        return false;
    strcpy(ret_name, text);
    return true;
}

/* Parses one BlockDeviceInfo (QEMU: qapi/block-core.json). A size from 2^53 on (8 PiB) is refused,
 * because cJSON has it as a double. */
static int read_node(struct qemu_nodes *nodes, const cJSON *object, struct error *error)
{
    const char *file = json_string(object, "file");
    struct qemu_node node = {.read_only = cJSON_IsTrue(json_member(object, "ro"))};

    if (!file || !copy_name(object, "node-name", node.name) ||
        !copy_name(object, "drv", node.driver) ||
        json_number(json_member(object, "image"), "virtual-size", &node.bytes) != 0)
        return error_set(error, -EBADMSG, "the VMM reports a block node that makes no sense");
    return qemu_nodes_add(nodes, &node, file, error);
}

int qemu_report_read_frontends(struct qemu_nodes *roots, const cJSON *value, struct error *error)
{
    const cJSON *frontend;
    unsigned count = 0;

    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "query-block: the answer is no list");
    cJSON_ArrayForEach(frontend, value)
    {
        const cJSON *inserted = json_member(frontend, "inserted");
        const char *name = json_string(inserted, "node-name");
        int r;

        if (!inserted)
            continue;
        if (count++ == QEMU_REPORT_ENTRIES) /* also of one node */
            return qemu_report_refuse_size(error);
        if (name && qemu_nodes_find(roots, name))
            continue;
        r = read_node(roots, inserted, error);
        if (r < 0)
            return r;
    }
    return 0;
}

int qemu_report_read_nodes(struct qemu_nodes *nodes, const cJSON *value, struct error *error)
{
    const cJSON *object;

    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "query-named-block-nodes: the answer is no list");
    cJSON_ArrayForEach(object, value)
    {
        int r = read_node(nodes, object, error);

        if (r < 0)
            return r;
    }
    return 0;
}

static int add_descriptor(struct qemu_report *report, uint64_t set, uint64_t fd,
                          struct error *error)
{
    void *entries = report->descriptors;
    int r = reserve(&entries, report->descriptor_count, sizeof(*report->descriptors), error);

    if (r < 0)
        return r;
    report->descriptors = entries;
    report->descriptors[report->descriptor_count++] = (struct qemu_descriptor){set, (int)fd};
    return 0;
}

static int read_set(struct qemu_report *report, const cJSON *object, struct error *error)
{
    const cJSON *member;
    uint64_t set, fd;

    if (json_number(object, "fdset-id", &set) != 0)
        return error_set(error, -EBADMSG, "query-fdsets: a set without a number");
    cJSON_ArrayForEach(member, json_member(object, "fds"))
    {
        int r;

        if (json_number(member, "fd", &fd) != 0 || fd > INT_MAX)
            return error_set(error, -EBADMSG, "query-fdsets: a descriptor without a number");
        r = add_descriptor(report, set, fd, error);
        if (r < 0)
            return r;
    }
    return 0;
}

int qemu_report_read_sets(struct qemu_report *report, const cJSON *value, struct error *error)
{
    const cJSON *object;

    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "query-fdsets: the answer is no list");
    cJSON_ArrayForEach(object, value)
    {
        int r = read_set(report, object, error);

        if (r < 0)
            return r;
    }
    return 0;
}

bool qemu_name_is_plain(const char *name)
{
    size_t length = strlen(name);
    size_t prefix = name[0] == '#';

    return length > prefix && length < QEMU_NAME_BYTES &&
           strspn(name + prefix, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                 "-._") == length - prefix;
}
