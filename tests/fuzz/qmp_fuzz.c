/* SPDX-License-Identifier: Apache-2.0 */
/* qmp_fuzz.c - a monitor's bytes through the decoder, in two splits that must agree, and what comes
 * out of it through the readers of a report, the search for a drive and the readers of what crustd
 * itself attached.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/qemu_hotplug_found.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/qmp_codec.h"
#include "lib/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every path and descriptor is the device that is looked for. */
static int resolve_path(struct vmm_resolver *resolver, const char *path,
                        struct vmm_identity *ret_identity)
{
    (void)resolver;
    (void)path;
    *ret_identity = (struct vmm_identity){.block_device = true, .device = 1};
    return 0;
}

static int resolve_descriptor(struct vmm_resolver *resolver, int fd,
                              struct vmm_identity *ret_identity)
{
    if (fd < 0)
        abort();
    return resolve_path(resolver, "", ret_identity);
}

/* One drive's parts and the list of all, whatever answers the question; its numbers keep their
 * bounds. */
static void read_attached(const cJSON *value)
{
    static const enum qemu_hotplug_command asked[] = {QEMU_ASK_SETS, QEMU_ASK_NODES,
                                                      QEMU_ASK_OBJECTS, QEMU_ASK_DEVICES};
    struct qemu_hotplug_list list = {.count = 0};
    struct qemu_hotplug_found found;
    struct qemu_hotplug_names names;
    struct error error;

    qemu_hotplug_names_init(&names, "d1");
    for (size_t i = 0; i < array_length(asked); i++)
        (void)qemu_hotplug_read(&found, &names, asked[i], value, &error);
    if (found.set_count > QEMU_HOTPLUG_SETS || found.bridge_count > QEMU_HOTPLUG_BRIDGES)
        abort();
    if (qemu_hotplug_is_absent(&found) != (qemu_hotplug_state(&found) == HYPERVISOR_DRIVE_ABSENT))
        abort();
    if (qemu_hotplug_list_sets(&list, value, &error) == 0)
        (void)qemu_hotplug_list_devices(&list, value, &error);
    for (size_t i = 0; i < list.count; i++)
        if (list.fds[i] < 0 || !list.entries[i].drive_id[0])
            abort();
    qemu_hotplug_list_done(&list);
}

static void read_answer(struct qemu_report *report, const cJSON *value)
{
    struct error error;

    (void)qemu_report_read_frontends(&report->roots, value, &error);
    (void)qemu_report_read_nodes(&report->nodes, value, &error);
    (void)qemu_report_read_sets(report, value, &error);
    read_attached(value);
}

/* Whatever was reported: what may be resized is plain in name, writable and over host_device. */
static void search(const struct qemu_report *report)
{
    struct vmm_resolver resolver = {.path = resolve_path, .descriptor = resolve_descriptor};
    struct vmm_wanted wanted = {
        .act = HYPERVISOR_RESIZE,
        .identity = {.block_device = true, .device = 1},
    };
    const struct qemu_node *drive = NULL;
    struct error error = {.text = ""};

    if (qemu_drive_find(report, &wanted, &resolver, &drive, &error) != HYPERVISOR_DONE)
        return;
    if (!drive || drive->read_only || !qemu_name_is_plain(drive->name))
        abort();
}

/* Feeds `step` bytes at a time; returns how many messages came out, -1 after an error. */
static int decode_all(const uint8_t *data, size_t size, size_t step, struct qemu_report *report)
{
    cleanup(buffer_done) struct buffer input = BUFFER_INIT(QMP_MESSAGE_BYTES + 4096);
    struct qmp_decoder decoder = {0};
    int count = 0;

    for (size_t offset = 0; offset < size; offset += step) {
        size_t part = size - offset < step ? size - offset : step;
        int r = buffer_append(&input, data + offset, part);

        while (r == QMP_DECODED) {
            cleanup(qmp_message_done) struct qmp_message message = {.kind = QMP_OTHER};
            struct error error;

            r = qmp_decode(&decoder, &input, &message, &error);
            if (r != QMP_DECODED)
                break;
            count++;
            if (report && message.kind == QMP_RETURN)
                read_answer(report, message.value);
        }
        if (r < 0)
            return -1;
    }
    return count;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qemu_report report = {.descriptor_count = 0};

    if (decode_all(data, size, 4096, &report) != decode_all(data, size, 1, NULL))
        abort();
    search(&report);
    qemu_report_done(&report);
    return 0;
}
