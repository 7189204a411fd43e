/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_source.c - the layers of a drive, as far as QEMU names them.
 *
 * Only raw layers and filters without an offset or a size of their own, over host_device, may be
 * re-read: over a regular file the same command truncates, and over qcow2 it changes the guest's
 * disk.
 */
#include "hypervisor/qemu_report.h"

#include <ctype.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

enum { CHAIN_DEPTH = 8, CHAIN_VALUES = 256 };

static bool driver_is_protocol(const char *driver)
{
    return strcmp(driver, "host_device") == 0 || strcmp(driver, "file") == 0;
}

static bool read_set_number(const char *file, uint64_t *ret_set)
{
    static const char prefix[] = "/dev/fdset/";
    const char *digits = file + sizeof(prefix) - 1;
    char *end;

    if (strncmp(file, prefix, sizeof(prefix) - 1) != 0 || !isdigit((unsigned char)digits[0]))
        return false;
    errno = 0;
    *ret_set = strtoull(digits, &end, 10);
    return errno == 0 && *end == '\0';
}

/* "json:{…}" names every layer; the last one is the protocol. false if it is invalid. */
static bool read_chain(struct qemu_source *source, const cJSON *layer)
{
    for (unsigned depth = 0; depth < CHAIN_DEPTH; depth++) {
        const cJSON *inner = json_member(layer, "file");
        const char *driver = json_string(layer, "driver");
        const char *file = json_string(layer, "filename");

        if (!driver || (!inner && !file))
            return false;
        if (!inner) {
            source->host_device = strcmp(driver, "host_device") == 0;
            source->layered |= !driver_is_protocol(driver);
            strcpy(source->file, file);
            return true;
        }
        source->layered |= !qemu_driver_passes_size(driver);
        source->fixed |= json_member(layer, "offset") || json_member(layer, "size");
        layer = inner;
    }
    return false;
}

/* A plain name is shared by the root and the protocol node below it. Every protocol node of that
 * name must be host_device, because nothing shows which of several belongs to the root. */
static void read_plain(struct qemu_source *source, const struct qemu_node *root,
                       const struct qemu_nodes *nodes)
{
    const struct qemu_protocol *protocol = qemu_protocols_find(&nodes->protocols, root->file);

    source->layered = !qemu_driver_passes_size(root->driver) && !driver_is_protocol(root->driver);
    source->host_device = protocol && protocol->host_device && !protocol->other;
    strcpy(source->file, root->file);
}

bool qemu_source_read(struct qemu_source *source, const struct qemu_node *root,
                      const struct qemu_nodes *nodes)
{
    const struct json_limits limits = {QEMU_FILE_BYTES, CHAIN_DEPTH, CHAIN_VALUES};
    cleanup(json_deletep) cJSON *chain = NULL;

    memset(source, 0, offsetof(struct qemu_source, file));
    source->file[0] = '\0';
    if (strncmp(root->file, "json:", 5) != 0)
        read_plain(source, root, nodes);
    else if (json_parse(root->file + 5, strlen(root->file + 5), limits, &chain, NULL) < 0 ||
             !read_chain(source, chain))
        return false;
    source->is_set = read_set_number(source->file, &source->set);
    return true;
}
