/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_search.c - identifies a drive by the report (qemu_report.h). */
#include "hypervisor/qemu_search.h"

#include <inttypes.h>
#include <string.h>

#include "hypervisor/qemu_report.h"
#include "hypervisor/vmm_process.h"

static struct qemu_search_result go_on(enum qemu_search_next next)
{
    return (struct qemu_search_result){.next = next};
}

static struct qemu_search_result end(enum hypervisor_outcome outcome, const struct error *error)
{
    struct qemu_search_result result = {.next = QEMU_SEARCH_END, .outcome = outcome};

    if (outcome != HYPERVISOR_DONE)
        result.error = *error;
    return result;
}

void qemu_search_init(struct qemu_search *search, const struct loop *loop,
                      const struct hypervisor_request *request)
{
    *search = (struct qemu_search){.loop = loop, .request = request};
}

void qemu_search_done(struct qemu_search *search)
{
    qemu_report_done(&search->report);
    vmm_memory_done(&search->memory);
}

static struct qemu_search_result go_on_after(struct qemu_search *search, uint64_t pause_ns)
{
    search->is_long |= pause_ns > 0;
    return (struct qemu_search_result){.next = QEMU_SEARCH_AGAIN, .pause_ns = pause_ns};
}

/* The report, and what was examined because of it, may be as old as the call. */
static struct qemu_search_result expect(struct qemu_search *search)
{
    memcpy(search->expected, search->drive, sizeof(search->expected));
    qemu_report_done(&search->report);
    search->report = (struct qemu_report){.descriptor_count = 0};
    search->is_long = false;
    search->is_last = true;
    return go_on(QEMU_SEARCH_ANEW);
}

static void note_drive(struct qemu_search *search, const struct qemu_node *drive)
{
    memcpy(search->drive, drive->name, sizeof(search->drive));
    search->drive_bytes = drive->bytes;
}

/* A query also finds drives that may not be resized. */
static enum hypervisor_outcome foresee_resize(const struct qemu_search *search,
                                              struct vmm_resolver *resolver)
{
    struct vmm_wanted wanted = vmm_wanted_of(search->request);
    const struct qemu_node *drive = NULL;
    enum hypervisor_outcome outcome;
    struct error error;

    wanted.act = HYPERVISOR_RESIZE;
    outcome = qemu_drive_find(&search->report, &wanted, resolver, &drive, &error);
    return resolver->exhausted ? HYPERVISOR_UNREACHABLE : outcome;
}

/* Another drive has the name of the one that was found. */
static struct qemu_search_result end_changed(struct error *error)
{
    (void)error_prefix(error, "the VMM's drives have changed while they were examined: ");
    return end(HYPERVISOR_UNREACHABLE, error);
}

static struct qemu_search_result find(struct qemu_search *search, struct vmm_resolver *resolver)
{
    bool query = search->request->act == HYPERVISOR_QUERY;
    struct vmm_wanted wanted = vmm_wanted_of(search->request);
    const struct qemu_node *drive = NULL;
    enum hypervisor_outcome outcome;
    struct error error;

    if (search->expected[0])
        wanted.recorded_drive = search->expected;
    search->drive[0] = '\0'; /* of an earlier attempt */
    search->drive_bytes = 0;
    outcome = qemu_drive_find(&search->report, &wanted, resolver, &drive, &error);
    if (outcome == HYPERVISOR_MISMATCH && search->expected[0])
        return end_changed(&error);
    search->list = vmm_search_list(resolver, &wanted, drive, &outcome, &error);
    if (search->list != HYPERVISOR_LIST_HAS)
        drive = NULL;
    if (drive)
        note_drive(search, drive);
    if (drive && query)
        search->resize = foresee_resize(search, resolver);
    if (outcome != HYPERVISOR_DONE)
        return end(outcome, &error);
    return go_on(query ? QEMU_SEARCH_FOUND : QEMU_SEARCH_RESIZE);
}

/* Searches in the process, which is released. false: it is to be searched again. */
static bool try(struct qemu_search *search, struct vmm_process *process,
                struct qemu_search_result *ret_result)
{
    bool again;

    vmm_process_use_memory(process, &search->memory);
    *ret_result = find(search, &process->resolver);
    again = vmm_process_is_to_go_on(process) && !search->is_last;
    vmm_process_done(process);
    return !again;
}

struct qemu_search_result qemu_search_find(struct qemu_search *search)
{
    struct qemu_search_result result;
    struct vmm_process process;
    struct error error;

    if (!vmm_search_may_begin(search->loop))
        return go_on_after(search, 0);
    if (vmm_process_init(&process, search->request->vmm_pid, &error) < 0)
        return end(HYPERVISOR_UNREACHABLE, &error);
    if (!try(search, &process, &result))
        return go_on_after(search, VMM_SEARCH_PAUSE_NS);
    vmm_memory_done(&search->memory);
    return result.next == QEMU_SEARCH_RESIZE && search->is_long ? expect(search) : result;
}

/* The drive's size after the resize decides, not the success of the command. */
struct qemu_search_result qemu_search_check(struct qemu_search *search)
{
    const struct qemu_node *drive = qemu_nodes_find(&search->report.roots, search->drive);
    uint64_t bytes = search->request->bytes;
    struct error error;

    if (!drive) {
        search->list = HYPERVISOR_LIST_UNREAD;
        (void)error_set(&error, 0, "%s was removed in the meantime", search->drive);
        return end(HYPERVISOR_DRIVE_NOT_FOUND, &error);
    }
    search->drive_bytes = drive->bytes;
    if (drive->bytes >= bytes)
        return go_on(QEMU_SEARCH_FOUND);
    (void)error_set(&error, 0, "%s has %" PRIu64 " bytes after the resize, the device %" PRIu64,
                    search->drive, drive->bytes, bytes);
    return end(HYPERVISOR_REFUSED, &error);
}
