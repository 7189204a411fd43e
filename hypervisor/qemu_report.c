/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_report.c - QMP's replies into a report.
 *
 * Every string is bounded before it is copied and every list before it grows. Roots may repeat a
 * name (two frontends can share a node); then the first entry represents both. Named nodes may not.
 */
#include "hypervisor/qemu_report.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/quantity.h"

void qemu_nodes_done(struct qemu_nodes *nodes)
{
    for (size_t i = 0; i < nodes->count; i++)
        free(nodes->entries[i].file);
    free(nodes->entries);
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

/* Makes room for one more entry of `size` bytes. */
static int reserve(void **entries, size_t count, size_t size, struct error *error)
{
    void *grown;

    if (count == QEMU_REPORT_ENTRIES)
        return error_set(error, -EMSGSIZE, "the VMM reports more than %d block nodes or files",
                         QEMU_REPORT_ENTRIES);
    grown = reallocarray(*entries, count + 1, size);
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
    if (!copy)
        return error_set_errno(error, -ENOMEM, "cannot keep the VMM's report");
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

int qemu_report_read_nodes(struct qemu_nodes *nodes, const cJSON *value, bool are_frontends,
                           struct error *error)
{
    const cJSON *object;

    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "%s: the answer is no list",
                         are_frontends ? "query-block" : "query-named-block-nodes");
    cJSON_ArrayForEach(object, value)
    {
        const cJSON *node = are_frontends ? json_member(object, "inserted") : object;
        const char *name = json_string(node, "node-name");
        int r;

        if (are_frontends && (!node || (name && qemu_nodes_find(nodes, name))))
            continue;
        r = read_node(nodes, node, error);
        if (r < 0)
            return r;
    }
    return 0;
}

int qemu_report_read_sets(struct qemu_report *report, const cJSON *value, struct error *error)
{
    const cJSON *object, *member;
    uint64_t set, fd;

    if (!cJSON_IsArray(value))
        return error_set(error, -EBADMSG, "query-fdsets: the answer is no list");
    cJSON_ArrayForEach(object, value)
    {
        if (json_number(object, "fdset-id", &set) != 0)
            return error_set(error, -EBADMSG, "query-fdsets: a set without a number");
        cJSON_ArrayForEach(member, json_member(object, "fds"))
        {
            void *entries = report->descriptors;
            int r;

            if (json_number(member, "fd", &fd) != 0 || fd > INT_MAX)
                return error_set(error, -EBADMSG, "query-fdsets: a descriptor without a number");
            r = reserve(&entries, report->descriptor_count, sizeof(*report->descriptors), error);
            if (r < 0)
                return r;
            report->descriptors = entries;
            report->descriptors[report->descriptor_count++] =
                (struct qemu_descriptor){set, (int)fd};
        }
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

/* ---- qemu source ---------------------------------------------------------------------------- */

/* The layers of a drive, as far as QEMU names them.
 *
 * Only raw layers and filters without an offset or a size of their own, over host_device, may be
 * re-read: over a regular file the same command truncates, and over qcow2 it changes the guest's
 * disk.
 */

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

/* Whether a layer of this driver has the size of the layer below it. */
static bool qemu_driver_passes_size(const char *driver)
{
    return strcmp(driver, "raw") == 0 || strcmp(driver, "throttle") == 0 ||
           strcmp(driver, "copy-on-read") == 0;
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
    bool has_other = false;

    for (size_t i = 0; i < nodes->count; i++) {
        const struct qemu_node *node = &nodes->entries[i];
        const bool is_device = strcmp(node->driver, "host_device") == 0;

        if (qemu_driver_passes_size(node->driver) || strcmp(node->file, root->file) != 0)
            continue;
        source->host_device |= is_device;
        has_other |= !is_device;
    }
    source->host_device &= !has_other;
    source->layered = !qemu_driver_passes_size(root->driver) && !driver_is_protocol(root->driver);
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

/* ---- qemu drive ----------------------------------------------------------------------------- */

/* First a drive's identity, then the permission to act.
 *
 * A drive is found by the identity of its file, never by its name: the reported file name is
 * resolved as QEMU sees it and compared with the device. The recorded drive name only decides
 * between several drives on one device, and distinguishes "another device" from "no such drive".
 *
 * The root node is resized, because QEMU 7.2 notifies the guest only for that node.
 *
 * Two frontends on one device: a call serves one drive, the recorded one, or else the first that
 * may be resized. Runtimes attach a device once per sandbox and count its users, so a second
 * frontend is not theirs. Unless locking is off, QEMU refuses to resize either one ("Failed to get
 * "resize" lock").
 */

struct search {
    const struct qemu_report *report;
    const struct hypervisor_request *wanted;
    struct vmm_process *process;
};

/* The drive that is found, and what may be done to it. */
struct choice {
    const struct qemu_node *drive; /* NULL: none yet */
    enum hypervisor_outcome outcome;
    struct error reason;
};

/* All descriptors of a set must be the same file: it may contain one for reading and one for
 * writing. */
static int resolve_set(const struct search *search, uint64_t set, struct hypervisor_disk *ret_disk)
{
    const struct qemu_report *report = search->report;
    struct hypervisor_disk next;
    bool found = false;

    for (size_t i = 0; i < report->descriptor_count; i++) {
        int r;

        if (report->descriptors[i].set != set)
            continue;
        r = vmm_process_descriptor(search->process, report->descriptors[i].fd, &next);
        if (r < 0)
            return r;
        if (found && !vmm_disk_equal(ret_disk, &next))
            return -EXDEV;
        *ret_disk = next;
        found = true;
    }
    return found ? 0 : -ENOENT;
}

static int resolve(const struct search *search, const struct qemu_source *source,
                   struct hypervisor_disk *ret_disk)
{
    return source->is_set ? resolve_set(search, source->set, ret_disk)
                          : vmm_process_path(search->process, source->file, ret_disk);
}

static bool is_wanted(const struct search *search, const struct qemu_source *source)
{
    struct hypervisor_disk disk;

    return resolve(search, source, &disk) == 0 && vmm_disk_equal(&disk, &search->wanted->disk);
}

/* Whether `wanted->act` may be done to this drive, whose device is the right one. */
static enum hypervisor_outcome judge_node(const struct search *search, const struct qemu_node *root,
                                          const struct qemu_source *source, struct error *error)
{
    bool resize = search->wanted->act == HYPERVISOR_RESIZE;
    const char *problem = NULL;

    if (!qemu_name_is_plain(root->name))
        problem = "its name is not one that can be put into a command";
    else if (source->layered)
        problem = "a format other than raw lies over the device";
    else if (source->fixed)
        problem = "its raw layer has a fixed offset or size and does not follow the device";
    else if (resize && (!source->host_device || search->wanted->disk.regular_file))
        problem = "its protocol driver is not host_device";
    if (problem)
        return error_set(error, HYPERVISOR_UNSUPPORTED, "%s: %s", root->name, problem);
    if (resize && root->read_only)
        return error_set(error, HYPERVISOR_READ_ONLY, "%s: attached read-only, cannot be refreshed",
                         root->name);
    return HYPERVISOR_DONE;
}

/* Nothing matched: reports whether the recorded drive (NULL: none) exists, as another device. */
static enum hypervisor_outcome
explain_missing_node(const struct search *search, const struct qemu_node *root, struct error *error)
{
    struct hypervisor_disk disk;
    struct qemu_source source;

    if (root && qemu_source_read(&source, root, &search->report->nodes) &&
        resolve(search, &source, &disk) == 0)
        return error_set(error, HYPERVISOR_MISMATCH, "%s is %.150s, another device", root->name,
                         source.file);
    return error_set(error, HYPERVISOR_DRIVE_NOT_FOUND,
                     "none of the VMM's %zu drives is the device", search->report->roots.count);
}

/* Of several drives on the device, the smallest that `wanted->act` may be done to is chosen: Kata's
 * Rust runtime plugs a raw block claim in again for each container. */
static void consider(const struct search *search, const struct qemu_node *root,
                     struct choice *choice)
{
    struct error reason = {.text = ""};
    enum hypervisor_outcome outcome;
    struct qemu_source source;

    if (!qemu_source_read(&source, root, &search->report->nodes) || !is_wanted(search, &source))
        return;
    outcome = judge_node(search, root, &source, &reason);
    if (!choice->drive || (outcome == HYPERVISOR_DONE && (choice->outcome != HYPERVISOR_DONE ||
                                                          root->bytes < choice->drive->bytes)))
        *choice = (struct choice){root, outcome, reason};
}

/* The recorded drive is preferred to all others. It is examined first, because a VMM may have more
 * drives than can be examined. */
static void choose(const struct search *search, const struct qemu_node *recorded,
                   struct choice *choice)
{
    const struct qemu_nodes *roots = &search->report->roots;

    if (recorded)
        consider(search, recorded, choice);
    if (choice->drive)
        return;
    for (size_t i = 0; i < roots->count; i++)
        if (&roots->entries[i] != recorded)
            consider(search, &roots->entries[i], choice);
}

enum hypervisor_outcome qemu_drive_find(const struct qemu_report *report,
                                        const struct hypervisor_request *wanted,
                                        struct vmm_process *process,
                                        const struct qemu_node **ret_drive, struct error *error)
{
    const struct search search = {report, wanted, process};
    const struct qemu_node *recorded =
        wanted->recorded_drive ? qemu_nodes_find(&report->roots, wanted->recorded_drive) : NULL;
    struct choice choice = {.drive = NULL};

    choose(&search, recorded, &choice);
    if (!choice.drive)
        return explain_missing_node(&search, recorded, error);
    *ret_drive = choice.drive;
    if (error && choice.outcome != HYPERVISOR_DONE)
        *error = choice.reason;
    return choice.outcome;
}

enum hypervisor_outcome qemu_refusal(const char *error_class, const char *text)
{
    /* The order matters: a job's hold on a node may be reported as a permission conflict. */
    static const struct {
        const char *words;
        enum hypervisor_outcome outcome;
    } refusals[] = {
        {"is read-only", HYPERVISOR_READ_ONLY},
        {"Cannot grow device files", HYPERVISOR_REFUSED},
        {"Cannot resize fixed-size raw disks", HYPERVISOR_UNSUPPORTED},
        {" job '", HYPERVISOR_BUSY},
        {"Permission conflict on node", HYPERVISOR_UNSUPPORTED},
        {"is in use", HYPERVISOR_BUSY},
        {"Cannot find device", HYPERVISOR_DRIVE_NOT_FOUND},
    };

    if (strcmp(error_class, "CommandNotFound") == 0)
        return HYPERVISOR_UNSUPPORTED;
    for (size_t i = 0; i < array_length(refusals); i++) {
        if (strstr(text, refusals[i].words))
            return refusals[i].outcome;
    }
    return HYPERVISOR_REFUSED;
}

/* ---- qemu tree ------------------------------------------------------------------------------ */

/* Keeps a stack of the devices that contain the current line.
 *
 * A device ends where another device or a bus is not indented more deeply. The drive of a SCSI disk
 * is printed before its target and LUN, so the address is written when the disk ends.
 */

enum { DEPTH = 32 };

struct device {
    size_t indent;
    bool is_wanted, has_target, has_lun;
    uint32_t target, lun;
    char slot[5]; /* with its function, as QEMU prints it, "02.0"; "": there is none */
};

struct tree {
    const char *drive;
    unsigned depth; /* of `device` */
    struct device device[DEPTH];
    unsigned named; /* devices that have the drive */
    unsigned found; /* those with an address */
    char address[QEMU_ADDRESS_BYTES];
};

static bool write_address(struct tree *tree, const struct device *disk)
{
    const size_t size = sizeof(tree->address);
    size_t used = strlen("pci:");
    const char *separator = "";

    if (disk->has_target && disk->has_lun)
        return snprintf(tree->address, size, "scsi:%u:%u", disk->target, disk->lun) > 0;
    memcpy(tree->address, "pci:", used + 1);
    for (unsigned i = 0; i < tree->depth && used < size; i++) {
        const char *slot = tree->device[i].slot;

        if (!slot[0])
            continue;
        used += (size_t)snprintf(tree->address + used, size - used, "%s%.*s", separator,
                                 slot[3] == '0' ? 2 : 4, slot);
        separator = "/";
    }
    return *separator && used < size;
}

static void end_device(struct tree *tree)
{
    const struct device *device = &tree->device[tree->depth - 1];

    if (device->is_wanted && write_address(tree, device))
        tree->found++;
    tree->depth--;
}

static void end_devices(struct tree *tree, size_t indent)
{
    while (tree->depth && tree->device[tree->depth - 1].indent >= indent)
        end_device(tree);
}

static bool names_drive(const struct tree *tree, const char *line)
{
    static const char before[] = "drive = \"";
    size_t length = strlen(tree->drive);

    return strncmp(line, before, sizeof(before) - 1) == 0 &&
           strncmp(line + sizeof(before) - 1, tree->drive, length) == 0 &&
           line[sizeof(before) - 1 + length] == '"';
}

/* In hexadecimal. */
static void read_slot(const char *text, struct device *device)
{
    if (isxdigit((unsigned char)text[0]) && isxdigit((unsigned char)text[1]) && text[2] == '.' &&
        text[3] >= '0' && text[3] <= '7')
        memcpy(device->slot, text, sizeof(device->slot) - 1);
}

static void read_property(struct tree *tree, const char *line)
{
    struct device *device = &tree->device[tree->depth - 1];

    if (names_drive(tree, line)) {
        tree->named += !device->is_wanted;
        device->is_wanted = true;
    } else if (strncmp(line, "addr = ", 7) == 0) {
        read_slot(line + 7, device);
    } else if (strncmp(line, "scsi-id = ", 10) == 0) {
        device->has_target = numbers_read(line + 10, "", 10, &device->target);
    } else if (strncmp(line, "lun = ", 6) == 0) {
        device->has_lun = numbers_read(line + 6, "", 10, &device->lun);
    }
}

/* false: deeper than any real machine, or the drive is there twice. */
static bool read_line(struct tree *tree, const char *line)
{
    size_t indent = strspn(line, " ");

    line += indent;
    if (strncmp(line, "dev: ", 5) == 0) {
        end_devices(tree, indent);
        if (tree->depth == DEPTH)
            return false;
        tree->device[tree->depth++] = (struct device){.indent = indent};
    } else if (strncmp(line, "bus: ", 5) == 0) {
        end_devices(tree, indent);
    } else if (tree->depth) {
        read_property(tree, line);
    }
    return tree->named <= 1;
}

bool qemu_tree_find(const char *text, const char *drive,
                    char ret_address[static QEMU_ADDRESS_BYTES])
{
    struct tree tree = {.drive = drive};
    bool going = true;

    while (going && *text) {
        going = read_line(&tree, text);
        text = strchrnul(text, '\n');
        text += *text == '\n';
    }
    end_devices(&tree, 0);
    if (!going || tree.found != 1)
        return false;
    memcpy(ret_address, tree.address, sizeof(tree.address));
    return true;
}
