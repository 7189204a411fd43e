/* hmp_fuzz.c - a monitor's bytes through the framing, and each reply through the tables. */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "reconciler/hypervisor/hmp_codec.h"
#include "reconciler/hypervisor/qemu_tree.h"

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

static void read_tables(const char *text)
{
    char address[QEMU_ADDRESS_BYTES];
    struct qemu_nodes nodes = {0};
    struct error error;

    (void)hmp_read_blocks(text, false, &nodes, &error);
    check_nodes(&nodes);
    qemu_nodes_done(&nodes);
    (void)hmp_read_blocks(text, true, &nodes, &error);
    check_nodes(&nodes);
    qemu_nodes_done(&nodes);
    if (qemu_tree_find(text, "drive-1", address) && strlen(address) >= sizeof(address))
        abort();
}

/* Replies are only told apart by where a read ends: every prompt in turn is tried as an end. */
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
