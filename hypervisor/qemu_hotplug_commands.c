/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug_commands.c - one row for each command: its name and who writes its arguments.
 *
 * What goes into a command is plain: ids and serials were checked by the call (drive.c), buses by
 * the reader of QEMU's answer, the rest is crustd's own.
 */
#include "hypervisor/qemu_hotplug_commands.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/sha256.h"

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

const char *qemu_hotplug_id_of(const char *opaque)
{
    static const char prefix[] = QEMU_OPAQUE_PREFIX;
    const char *id = opaque + sizeof(prefix) - 1;

    if (strncmp(opaque, prefix, sizeof(prefix) - 1) != 0 || !id[0] ||
        strlen(id) >= HYPERVISOR_DRIVE_ID_BYTES)
        return NULL;
    return id;
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

static void write_limits(struct buffer *text, const struct qemu_hotplug_values *values)
{
    const struct hypervisor_limits *limits = &values->request->limits;

    (void)buffer_append_format(text,
                               "{\"path\":\"/objects/%s\",\"property\":\"limits\","
                               "\"value\":{",
                               values->names.part[QEMU_PART_GROUP]);
    append_bucket(text, "bps", &limits->bandwidth);
    append_bucket(text, "iops", &limits->operations);
    (void)buffer_append_text(text, "\"iops-size\":0}}");
}

/* Over host_device a size up to the real one means "read the size again". */
static void write_resize(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)buffer_append_format(text, "{\"node-name\":\"%s\",\"size\":%" PRIu64 "}",
                               values->names.part[QEMU_PART_THROTTLE], values->request->bytes);
}

/* ---- questions ---- */

static void write_flat(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)values;
    (void)buffer_append_text(text, "{\"flat\":true}");
}

static void write_objects(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)values;
    (void)buffer_append_text(text, "{\"path\":\"/objects\"}");
}

static void write_devices(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)values;
    (void)buffer_append_text(text, "{\"path\":\"/machine/peripheral\"}");
}

static void write_property(struct buffer *text, const struct qemu_hotplug_values *values,
                           const char *property)
{
    (void)buffer_append_format(text, "{\"path\":\"/machine/peripheral/%s\",\"property\":\"%s\"}",
                               values->names.part[QEMU_PART_DEVICE], property);
}

static void write_scsi_id(struct buffer *text, const struct qemu_hotplug_values *values)
{
    write_property(text, values, "scsi-id");
}

static void write_lun(struct buffer *text, const struct qemu_hotplug_values *values)
{
    write_property(text, values, "lun");
}

static void write_serial(struct buffer *text, const struct qemu_hotplug_values *values)
{
    write_property(text, values, "serial");
}

/* ---- additions ---- */

static const char *boolean(bool value)
{
    return value ? "true" : "false";
}

static void write_opaque(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)buffer_append_format(text, "{\"opaque\":\"%s\"}", values->names.opaque);
}

static void write_group(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)buffer_append_format(text, "{\"qom-type\":\"throttle-group\",\"id\":\"%s\"}",
                               values->names.part[QEMU_PART_GROUP]);
}

static void write_node(struct buffer *text, const struct qemu_hotplug_values *values,
                       enum qemu_part part, const char *driver)
{
    (void)buffer_append_format(text, "{\"driver\":\"%s\",\"node-name\":\"%s\",", driver,
                               values->names.part[part]);
}

/* The three nodes. The lower ones take "read-only" and "cache" from the throttle node. The drivers
 * are named, never probed: a guest can write another format's header. */
static void write_nodes(struct buffer *text, const struct qemu_hotplug_values *values)
{
    const struct hypervisor_drive_request *request = values->request;

    write_node(text, values, QEMU_PART_THROTTLE, "throttle");
    (void)buffer_append_format(text, "\"throttle-group\":\"%s\",",
                               values->names.part[QEMU_PART_GROUP]);
    (void)buffer_append_format(text, "%s\"cache\":{\"direct\":%s},\"file\":",
                               request->read_only ? "\"read-only\":true," : "",
                               boolean(request->direct));
    write_node(text, values, QEMU_PART_RAW, "raw");
    (void)buffer_append_text(text, "\"file\":");
    write_node(text, values, QEMU_PART_FILE, request->disk.regular_file ? "file" : "host_device");
    (void)buffer_append_format(text, "\"filename\":\"/dev/fdset/%" PRIu64 "\"}}}", values->set);
}

/* QEMU makes the device's id from the serial. share-rw is off by default: QEMU's image locks then
 * refuse a second writer on the same device node. */
static void write_device(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)buffer_append_format(
        text,
        "{\"driver\":\"scsi-hd\",\"id\":\"%s\",\"bus\":\"%s\",\"drive\":\"%s\","
        "\"scsi-id\":%u,\"lun\":%u,\"serial\":\"%s\"}",
        values->names.part[QEMU_PART_DEVICE], values->bus, values->names.part[QEMU_PART_THROTTLE],
        values->scsi_id, values->lun, values->request->serial);
}

static void write_controller(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)buffer_append_format(text,
                               "{\"driver\":\"virtio-scsi-pci\",\"id\":\"" QEMU_HOTPLUG_CONTROLLER
                               "\",\"bus\":\"%s\",\"addr\":\"1f\"}",
                               values->bus);
}

/* ---- removals ---- */

static void write_set(struct buffer *text, const struct qemu_hotplug_values *values)
{
    (void)buffer_append_format(text, "{\"fdset-id\":%" PRIu64 "}", values->set);
}

static void write_name(struct buffer *text, const char *key, const char *name)
{
    (void)buffer_append_format(text, "{\"%s\":\"%s\"}", key, name);
}

static void write_file_name(struct buffer *text, const struct qemu_hotplug_values *values)
{
    write_name(text, "node-name", values->names.part[QEMU_PART_FILE]);
}

static void write_raw_name(struct buffer *text, const struct qemu_hotplug_values *values)
{
    write_name(text, "node-name", values->names.part[QEMU_PART_RAW]);
}

static void write_group_name(struct buffer *text, const struct qemu_hotplug_values *values)
{
    write_name(text, "id", values->names.part[QEMU_PART_GROUP]);
}

static void write_throttle_name(struct buffer *text, const struct qemu_hotplug_values *values)
{
    write_name(text, "node-name", values->names.part[QEMU_PART_THROTTLE]);
}

static void write_device_name(struct buffer *text, const struct qemu_hotplug_values *values)
{
    write_name(text, "id", values->names.part[QEMU_PART_DEVICE]);
}

/* ---- the table ---- */

static const struct {
    const char *name;
    void (*write)(struct buffer *text, const struct qemu_hotplug_values *values);
} commands[QEMU_HOTPLUG_COMMANDS] = {
    [QEMU_ASK_SETS] = {"query-fdsets", NULL},
    [QEMU_ASK_NODES] = {"query-named-block-nodes", write_flat},
    [QEMU_ASK_OBJECTS] = {"qom-list", write_objects},
    [QEMU_ASK_DEVICES] = {"qom-list", write_devices},
    [QEMU_ASK_SCSI_ID] = {"qom-get", write_scsi_id},
    [QEMU_ASK_LUN] = {"qom-get", write_lun},
    [QEMU_ASK_SERIAL] = {"qom-get", write_serial},
    [QEMU_ADD_SET] = {"add-fd", write_opaque},
    [QEMU_ADD_GROUP] = {"object-add", write_group},
    [QEMU_ADD_NODES] = {"blockdev-add", write_nodes},
    [QEMU_ADD_DEVICE] = {"device_add", write_device},
    [QEMU_REMOVE_SET] = {"remove-fd", write_set},
    [QEMU_REMOVE_FILE] = {"blockdev-del", write_file_name},
    [QEMU_REMOVE_RAW] = {"blockdev-del", write_raw_name},
    [QEMU_REMOVE_GROUP] = {"object-del", write_group_name},
    [QEMU_REMOVE_THROTTLE] = {"blockdev-del", write_throttle_name},
    [QEMU_REMOVE_DEVICE] = {"device_del", write_device_name},
    [QEMU_ADD_CONTROLLER] = {"device_add", write_controller},
    [QEMU_SET_LIMITS] = {"qom-set", write_limits},
    [QEMU_RESIZE] = {"block_resize", write_resize},
};

const char *qemu_hotplug_command_name(enum qemu_hotplug_command command)
{
    return commands[command].name;
}

int qemu_hotplug_arguments(enum qemu_hotplug_command command,
                           const struct qemu_hotplug_values *values,
                           char ret_arguments[static QEMU_HOTPLUG_ARGUMENT_BYTES])
{
    struct buffer text = BUFFER_INIT(QEMU_HOTPLUG_ARGUMENT_BYTES - 1);
    int r;

    if (commands[command].write)
        commands[command].write(&text, values);
    r = buffer_error(&text);
    if (r == 0)
        strcpy(ret_arguments, buffer_text(&text));
    buffer_done(&text);
    return r;
}
