/* SPDX-License-Identifier: Apache-2.0 */
/* hmp_fuzz.c - a monitor's bytes through the framing, and each reply through the tables. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/hmp_codec.h"
#include "hypervisor/qemu_sets.h"
#include "hypervisor/qemu_tree.h"
#include "lib/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A table that was read has nodes with bounded names, and none of them twice. */
static void check_nodes(const struct qemu_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++) {
        cleanup(buffer_done) struct buffer output = BUFFER_INIT(4096);
        const struct qemu_node *node = &nodes->entries[i];

        if (!node->name[0] || qemu_nodes_find(nodes, node->name) != node)
            abort();
        if (hmp_encode_truncate(&output, node->name, node->bytes) == 0 &&
            strchr(buffer_text(&output), '\n') != output.data + output.length - 1)
            abort();
    }
}

/* No path leads anywhere; the process has two devices open, of 1 and 2 bytes, and no files. */
static int resolve_path(struct vmm_resolver *resolver, const char *path,
                        struct vmm_identity *ret_identity)
{
    (void)resolver;
    (void)path;
    (void)ret_identity;
    return -ENOENT;
}

static size_t list_held(struct vmm_resolver *resolver, struct vmm_identity *ret_identities,
                        size_t size)
{
    (void)resolver;
    (void)size;
    for (unsigned i = 0; i < 2; i++)
        ret_identities[i] = (struct vmm_identity){.block_device = true, .device = i + 1};
    return 2;
}

static int list_files(struct vmm_resolver *resolver, struct vmm_file *ret_files, size_t size,
                      size_t *ret_count)
{
    (void)resolver;
    (void)ret_files;
    (void)size;
    *ret_count = 0;
    return 0;
}

static int read_bytes(struct vmm_resolver *resolver, const struct vmm_identity *identity,
                      uint64_t *ret_bytes)
{
    (void)resolver;
    *ret_bytes = identity->device;
    return 0;
}

/* Where all may be read again, no node over a set is a file; and only writable ones are. */
static void compare_sizes(const struct qemu_report *report)
{
    struct vmm_resolver resolver = {
        .path = resolve_path, .held = list_held, .files = list_files, .bytes = read_bytes};
    const struct vmm_wanted wanted = {.identity = {.block_device = true, .device = 2}};
    cleanup(qemu_sets_done) struct qemu_sets sets = {0};
    const struct qemu_set_drive *drive;
    struct qemu_match match;
    struct error error;
    bool may = qemu_sets_may_refresh(report, &resolver, &error) == HYPERVISOR_DONE;

    for (size_t i = 0; may && i < report->nodes.count; i++)
        if (strcmp(report->nodes.entries[i].driver, "file") == 0 &&
            strcmp(report->nodes.entries[i].file, "/dev/fdset/1") == 0)
            abort();
    if (qemu_sets_read(&sets, report, &wanted, &resolver) < 0)
        abort();
    if (qemu_sets_match(&sets, report, &wanted, &resolver, &match) == QEMU_MATCH_UNIQUE &&
        (!match.drive || match.bytes != 2 || match.drive->bytes != 2))
        abort();
    while ((drive = qemu_sets_next(&sets)))
        if (!drive->writable || !qemu_name_is_plain(drive->name))
            abort();
    qemu_sets_update(&sets, &report->roots);
}

static void read_tables(const char *text)
{
    char address[QEMU_ADDRESS_BYTES];
    cleanup(qemu_report_done) struct qemu_report report = {0};
    struct error error;

    (void)hmp_read_blocks(text, false, &report.nodes, &error);
    check_nodes(&report.nodes);
    (void)hmp_read_blocks(text, true, &report.roots, &error);
    check_nodes(&report.roots);
    compare_sizes(&report);
    if (qemu_tree_find(text, "drive-1", address) && strlen(address) >= sizeof(address))
        abort();
}

/* Only the end of a read separates replies: every prompt in turn is tried as an end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    cleanup(buffer_done) struct buffer input = BUFFER_INIT(HMP_REPLY_BYTES + 4096);
    struct error error;

    for (size_t i = 0; i < size; i++) {
        cleanup(buffer_done) struct buffer text = BUFFER_INIT(HMP_REPLY_BYTES);
        int r = buffer_append(&input, data + i, 1);

        if (r == 0 && data[i] == ' ')
            r = hmp_decode(&input, &text, &error);
        else if (r == 0)
            r = HMP_INCOMPLETE;
        if (r < 0)
            return 0;
        if (r == HMP_DECODED)
            read_tables(buffer_text(&text));
    }
    return 0;
}
