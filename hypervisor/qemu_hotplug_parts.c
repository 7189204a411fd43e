/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_parts.c - what QEMU has of a drive, and the commands about it.
 *
 * What goes into a command is plain: ids and serials were checked by the call, buses by the reader
 * of QEMU's answer, the rest is crustd's own. Of an answer, each thing is bounded before it is
 * kept.
 *
 * A drive has one set. An interrupted attach may have left a second one, so there may be several:
 * the one that the drive's node is on comes first, and DETACH removes all.
 */
#include "hypervisor/qemu_hotplug.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "hypervisor/qemu_report.h"
#include "lib/cleanup.h"
#include "lib/encode.h"

/* Of the hash of a drive's id: enough for the drives of one VM, and QEMU reads byte by byte. */
enum { STEM_DIGITS = 12 };

/* QEMU: THROTTLE_VALUE_MAX in include/qemu/throttle.h */
static const uint64_t rate_max = UINT64_C(1000000000000000);

void qemu_hotplug_names_init(struct qemu_hotplug_names *names, const char *drive_id)
{
    static const char *const suffixes[QEMU_PARTS] = {
        [QEMU_PART_FILE] = "-f",     [QEMU_PART_RAW] = "-r",  [QEMU_PART_GROUP] = "-g",
        [QEMU_PART_THROTTLE] = "-t", [QEMU_PART_DEVICE] = "",
    };
    char digits[SHA256_HEX_BYTES];

    *names = (struct qemu_hotplug_names){.opaque = ""};
    sha256_hex(drive_id, strlen(drive_id), digits);
    (void)snprintf(names->opaque, sizeof(names->opaque), QEMU_OPAQUE_PREFIX "%s", drive_id);
    for (enum qemu_part part = QEMU_PART_GROUP; part < QEMU_PARTS; part++)
        (void)snprintf(names->part[part], sizeof(names->part[part]), "crust-%.*s%s", STEM_DIGITS,
                       digits, suffixes[part]);
}

/* ---- limits ---- */

/* Tokens a second; never 0 for a limit, because 0 means none. */
static uint64_t rate_of(const struct hypervisor_bucket *bucket)
{
    unsigned __int128 rate = (unsigned __int128)bucket->size * 1000;

    if (!bucket->size || !bucket->refill_ms)
        return 0;
    rate /= bucket->refill_ms;
    if (rate > rate_max)
        return rate_max;
    return rate ? (uint64_t)rate : 1;
}

bool qemu_hotplug_is_limited(const struct hypervisor_limits *limits)
{
    return rate_of(&limits->bandwidth) || rate_of(&limits->operations);
}

/* Appends the keys of one bucket: NAME-total with its burst, and no limit on reads and writes
 * alone. QEMU keeps the value of a key that is left out, so all are given. */
static void append_bucket(struct buffer *text, const char *name,
                          const struct hypervisor_bucket *bucket)
{
    static const char *const kinds[] = {"read", "write"};
    uint64_t rate = rate_of(bucket);
    uint64_t burst = rate && bucket->size > rate ? bucket->size : rate;

    (void)buffer_append_format(
        text, "\"%s-total\":%" PRIu64 ",\"%s-total-max\":%" PRIu64 ",\"%s-total-max-length\":1, ",
        name, rate, name, burst < rate_max ? burst : rate_max, name);
    for (unsigned i = 0; i < 2; i++)
        (void)buffer_append_format(text, "\"%s-%s\":0,\"%s-%s-max\":0,\"%s-%s-max-length\":1, ",
                                   name, kinds[i], name, kinds[i], name, kinds[i]);
}

/* ---- commands ---- */

/* append_value() has the letters after a $. The drivers are named, never probed: a
 * guest can write another format's header. The lower nodes take "read-only" and "cache" from the
 * throttle node. QEMU makes the device's id from the serial. share-rw is off by default: QEMU's
 * image locks then refuse a second writer on the same device node. Over host_device a size up to
 * the real one means "read the size again". */
#define PROPERTY(name) "{\"path\":\"/machine/peripheral/$d\",\"property\":\"" name "\"}"
static const struct {
    const char *name, *arguments;
} commands[QEMU_HOTPLUG_COMMANDS] = {
    [QEMU_ASK_SETS] = {"query-fdsets", ""},
    [QEMU_ASK_NODES] = {"query-named-block-nodes", "{\"flat\":true}"},
    [QEMU_ASK_OBJECTS] = {"qom-list", "{\"path\":\"/objects\"}"},
    [QEMU_ASK_DEVICES] = {"qom-list", "{\"path\":\"/machine/peripheral\"}"},
    [QEMU_ASK_SCSI_ID] = {"qom-get", PROPERTY("scsi-id")},
    [QEMU_ASK_LUN] = {"qom-get", PROPERTY("lun")},
    [QEMU_ASK_SERIAL] = {"qom-get", PROPERTY("serial")},
    [QEMU_ADD_SET] = {"add-fd", "{\"opaque\":\"$o\"}"},
    [QEMU_ADD_GROUP] = {"object-add", "{\"qom-type\":\"throttle-group\",\"id\":\"$g\"}"},
    [QEMU_ADD_NODES] = {"blockdev-add",
                        "{\"driver\":\"throttle\",\"node-name\":\"$t\","
                        "\"throttle-group\":\"$g\",$a\"cache\":{\"direct\":$c},\"file\":"
                        "{\"driver\":\"raw\",\"node-name\":\"$r\",\"file\":"
                        "{\"driver\":\"$p\",\"node-name\":\"$f\","
                        "\"filename\":\"/dev/fdset/$S\"}}}"},
    [QEMU_ADD_DEVICE] = {"device_add",
                         "{\"driver\":\"scsi-hd\",\"id\":\"$d\",\"bus\":\"$b\",\"drive\":\"$t\","
                         "\"scsi-id\":$I,\"lun\":$U,\"serial\":\"$s\"}"},
    [QEMU_REMOVE_SET] = {"remove-fd", "{\"fdset-id\":$S}"},
    [QEMU_REMOVE_FILE] = {"blockdev-del", "{\"node-name\":\"$f\"}"},
    [QEMU_REMOVE_RAW] = {"blockdev-del", "{\"node-name\":\"$r\"}"},
    [QEMU_REMOVE_GROUP] = {"object-del", "{\"id\":\"$g\"}"},
    [QEMU_REMOVE_THROTTLE] = {"blockdev-del", "{\"node-name\":\"$t\"}"},
    [QEMU_REMOVE_DEVICE] = {"device_del", "{\"id\":\"$d\"}"},
    [QEMU_ADD_CONTROLLER] = {"device_add",
                             "{\"driver\":\"virtio-scsi-pci\",\"id\":\"" QEMU_HOTPLUG_CONTROLLER
                             "\",\"bus\":\"$b\",\"addr\":\"1f\"}"},
    [QEMU_SET_LIMITS] = {"qom-set",
                         "{\"path\":\"/objects/$g\",\"property\":\"limits\",\"value\":{$L}}"},
    [QEMU_RESIZE] = {"block_resize", "{\"node-name\":\"$t\",\"size\":$B}"},
};

const char *qemu_hotplug_command_name(enum qemu_hotplug_command command)
{
    return commands[command].name;
}

static void append_value(struct buffer *text, char letter, const struct qemu_hotplug_values *values)
{
    const struct hypervisor_request *request = values->request;
    const char *const texts[] = {
        ['o'] = values->names.opaque,
        ['g'] = values->names.part[QEMU_PART_GROUP],
        ['f'] = values->names.part[QEMU_PART_FILE],
        ['r'] = values->names.part[QEMU_PART_RAW],
        ['t'] = values->names.part[QEMU_PART_THROTTLE],
        ['d'] = values->names.part[QEMU_PART_DEVICE],
        ['b'] = values->bus,
        ['s'] = request->serial,
        ['a'] = request->read_only ? "\"read-only\":true," : "",
        ['c'] = request->direct ? "true" : "false",
        ['p'] = request->disk.regular_file ? "file" : "host_device",
    };
    const uint64_t numbers[] = {
        ['S'] = values->set, ['I'] = values->scsi_id, ['U'] = values->lun, ['B'] = request->bytes};

    if (letter == 'L') {
        append_bucket(text, "bps", &request->limits.bandwidth);
        append_bucket(text, "iops", &request->limits.operations);
        (void)buffer_append_text(text, "\"iops-size\":0");
    } else if (islower((unsigned char)letter)) {
        (void)buffer_append_text(text, texts[(unsigned char)letter]);
    } else {
        (void)buffer_append_format(text, "%" PRIu64, numbers[(unsigned char)letter]);
    }
}

int qemu_hotplug_arguments(enum qemu_hotplug_command command,
                           const struct qemu_hotplug_values *values, struct buffer *text)
{
    for (const char *at = commands[command].arguments; *at; at++)
        if (*at == '$')
            append_value(text, *++at, values);
        else
            (void)buffer_append(text, at, 1);
    return buffer_error(text);
}

/* ---- sets ---- */

const char *qemu_hotplug_read_set(const cJSON *set, uint64_t *ret_number, int *ret_fd)
{
    static const char prefix[] = QEMU_OPAQUE_PREFIX;
    const cJSON *first = cJSON_GetArrayItem(json_member(set, "fds"), 0);
    const char *opaque = json_text(first, "opaque"), *id = opaque + sizeof(prefix) - 1;
    uint64_t fd;

    if (strncmp(opaque, prefix, sizeof(prefix) - 1) != 0 || !id[0] ||
        strlen(id) >= HYPERVISOR_DRIVE_ID_BYTES ||
        json_number(set, "fdset-id", ret_number) != JSON_NUMBER ||
        json_number(first, "fd", &fd) != JSON_NUMBER || fd > INT_MAX)
        return NULL;
    *ret_fd = (int)fd;
    return id;
}

static void note_set(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                     const cJSON *object)
{
    struct qemu_hotplug_set set;
    const char *id = qemu_hotplug_read_set(object, &set.number, &set.fd);

    if (!id || strcmp(id, names->opaque + strlen(QEMU_OPAQUE_PREFIX)) != 0 ||
        found->set_count == QEMU_HOTPLUG_SETS)
        return;
    found->sets[found->set_count++] = set;
    found->has[QEMU_PART_SET] = true;
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
    int r = qemu_report_read_nodes(&nodes, value, false, error);

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

static void note_device(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
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

int qemu_hotplug_read(struct qemu_hotplug_found *found, const struct qemu_hotplug_names *names,
                      enum qemu_hotplug_command command, const cJSON *value, struct error *error)
{
    const cJSON *object;

    if (command == QEMU_ASK_SETS)
        *found = (struct qemu_hotplug_found){.set_count = 0};
    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "%s: the answer is no list", commands[command].name);
    if (command == QEMU_ASK_NODES)
        return read_nodes(found, names, value, error);
    cJSON_ArrayForEach(object, value)
    {
        if (command == QEMU_ASK_SETS)
            note_set(found, names, object);
        else if (command == QEMU_ASK_DEVICES)
            note_device(found, names, object);
        else if (strcmp(json_text(object, "name"), names->part[QEMU_PART_GROUP]) == 0)
            found->has[QEMU_PART_GROUP] = true;
    }
    return 0;
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
