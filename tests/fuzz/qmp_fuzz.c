/* SPDX-License-Identifier: Apache-2.0 */
/* qmp_fuzz.c - a monitor's bytes through the decoder, in two splits that must agree, and what comes
 * out of it through the readers of a report, the search for a drive and the readers of what crustd
 * itself attached.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/qemu_hotplug.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/qmp.h"
#include "lib/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* In the place of the product's own: every path and descriptor is the device that is looked for. */
int vmm_process_path(struct vmm_process *process, const char *path,
                     struct hypervisor_disk *ret_disk)
{
    (void)process;
    (void)path;
    *ret_disk = (struct hypervisor_disk){.device = 1};
    return 0;
}

int vmm_process_descriptor(struct vmm_process *process, int fd, struct hypervisor_disk *ret_disk)
{
    if (fd < 0)
        abort();
    return vmm_process_path(process, "", ret_disk);
}

/* One drive's parts, whatever answers the question; its numbers keep their
 * bounds. */
static void read_attached(const cJSON *value)
{
    static const enum qemu_hotplug_command asked[] = {QEMU_ASK_SETS, QEMU_ASK_NODES,
                                                      QEMU_ASK_OBJECTS, QEMU_ASK_DEVICES};
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
}

static void read_answer(struct qemu_report *report, const cJSON *value)
{
    struct error error;

    (void)qemu_report_read_nodes(&report->roots, value, true, &error);
    (void)qemu_report_read_nodes(&report->nodes, value, false, &error);
    (void)qemu_report_read_sets(report, value, &error);
    read_attached(value);
}

/* Whatever was reported: what may be resized is plain in name, writable and over host_device. */
static void search(const struct qemu_report *report)
{
    const struct hypervisor_request wanted = {.act = HYPERVISOR_RESIZE, .disk = {.device = 1}};
    struct vmm_process process = {.pid = 0};
    const struct qemu_node *drive = NULL;
    struct error error = {.text = ""};

    if (qemu_drive_find(report, &wanted, &process, &drive, &error) != HYPERVISOR_DONE)
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
