/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_drive.c - first a drive's identity, then the permission to act.
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
#include "hypervisor/qemu_report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"

/* What a set's descriptors are. */
struct set {
    uint64_t number;
    int result;
    struct vmm_identity identity;
};

struct search {
    const struct qemu_report *report;
    const struct vmm_wanted *wanted;
    struct vmm_resolver *resolver;
    struct set *sets; /* those that were resolved, because many drives may be over one; owned */
    size_t set_count;
};

/* The drive that is found, and what may be done to it. */
struct choice {
    const struct qemu_node *drive; /* NULL: none yet */
    enum hypervisor_outcome outcome;
    struct error reason;
};

static void search_done(struct search *search)
{
    free(search->sets);
}

/* All descriptors of a set must be the same file: it may contain one for reading and one for
 * writing. */
static int resolve_members(const struct search *search, uint64_t set,
                           struct vmm_identity *ret_identity)
{
    const struct qemu_report *report = search->report;
    struct vmm_identity first = {0}, next;
    bool found = false;

    for (size_t i = 0; i < report->descriptor_count; i++) {
        int r;

        if (report->descriptors[i].set != set)
            continue;
        r = search->resolver->descriptor(search->resolver, report->descriptors[i].fd,
                                         found ? &next : &first);
        if (r < 0)
            return r;
        if (found && !vmm_identity_equal(&first, &next))
            return -EXDEV;
        found = true;
    }
    if (!found)
        return -ENOENT;
    *ret_identity = first;
    return 0;
}

static const struct set *add_set(struct search *search, uint64_t number)
{
    struct set *set, *sets = reallocarray(search->sets, search->set_count + 1, sizeof(*sets));

    if (!sets) {
        (void)vmm_resolver_note(search->resolver, -ENOMEM);
        return NULL;
    }
    search->sets = sets;
    set = &sets[search->set_count++];
    set->number = number;
    set->result = resolve_members(search, number, &set->identity);
    return set;
}

static int resolve_set(struct search *search, uint64_t number, struct vmm_identity *ret_identity)
{
    const struct set *set = NULL;

    for (size_t i = 0; !set && i < search->set_count; i++)
        if (search->sets[i].number == number)
            set = &search->sets[i];
    if (!set)
        set = add_set(search, number);
    if (!set)
        return -ENOMEM;
    if (set->result == 0)
        *ret_identity = set->identity;
    return set->result;
}

static int resolve(struct search *search, const struct qemu_source *source,
                   struct vmm_identity *ret_identity)
{
    if (!source->is_set)
        return search->resolver->path(search->resolver, source->file, ret_identity);
    return resolve_set(search, source->set, ret_identity);
}

static bool is_wanted(struct search *search, const struct qemu_source *source)
{
    struct vmm_identity identity;

    return resolve(search, source, &identity) == 0 &&
           vmm_identity_equal(&identity, &search->wanted->identity);
}

/* Whether `act` may be done to this drive, whose device is the right one. */
static enum hypervisor_outcome judge(const struct search *search, const struct qemu_node *root,
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
    else if (resize && (!source->host_device || !search->wanted->identity.block_device))
        problem = "its protocol driver is not host_device";
    if (problem) {
        (void)error_set(error, 0, "%s: %s", root->name, problem);
        return HYPERVISOR_UNSUPPORTED;
    }
    if (resize && root->read_only) {
        (void)error_set(error, 0, "%s: attached read-only, cannot be refreshed", root->name);
        return HYPERVISOR_READ_ONLY;
    }
    return HYPERVISOR_DONE;
}

/* Nothing matched: reports whether the recorded drive (NULL: none) exists, as another device. */
static enum hypervisor_outcome explain_absence(struct search *search, const struct qemu_node *root,
                                               struct error *error)
{
    struct vmm_identity identity;
    struct qemu_source source;

    if (root && qemu_source_read(&source, root, &search->report->nodes) &&
        resolve(search, &source, &identity) == 0) {
        (void)error_set(error, 0, "%s is %.150s, another device", root->name, source.file);
        return HYPERVISOR_MISMATCH;
    }
    (void)error_set(error, 0, "none of the VMM's %zu drives is the device",
                    search->report->roots.count);
    return HYPERVISOR_DRIVE_NOT_FOUND;
}

/* Of several drives on the device, the first that `act` may be done to is chosen. */
static void consider(struct search *search, const struct qemu_node *root, struct choice *choice)
{
    struct error reason = {.text = ""};
    enum hypervisor_outcome outcome;
    struct qemu_source source;

    if (!qemu_source_read(&source, root, &search->report->nodes) || !is_wanted(search, &source))
        return;
    outcome = judge(search, root, &source, &reason);
    if (!choice->drive || (choice->outcome != HYPERVISOR_DONE && outcome == HYPERVISOR_DONE))
        *choice = (struct choice){root, outcome, reason};
}

/* The recorded drive is preferred to all others. It is examined first, because a VMM may have more
 * drives than can be examined. */
static void choose(struct search *search, const struct qemu_node *recorded, struct choice *choice)
{
    const struct qemu_nodes *roots = &search->report->roots;

    if (recorded)
        consider(search, recorded, choice);
    if (choice->drive)
        return;
    for (size_t i = 0; i < roots->count && !vmm_resolver_is_exhausted(search->resolver); i++)
        if (&roots->entries[i] != recorded)
            consider(search, &roots->entries[i], choice);
}

enum hypervisor_outcome qemu_drive_find(const struct qemu_report *report,
                                        const struct vmm_wanted *wanted,
                                        struct vmm_resolver *resolver,
                                        const struct qemu_node **ret_drive, struct error *error)
{
    cleanup(search_done) struct search search = {
        .report = report, .wanted = wanted, .resolver = resolver};
    const struct qemu_node *recorded =
        wanted->recorded_drive ? qemu_nodes_find(&report->roots, wanted->recorded_drive) : NULL;
    struct choice choice = {.drive = NULL};

    choose(&search, recorded, &choice);
    if (!choice.drive)
        return explain_absence(&search, recorded, error);
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
