/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_search.c - identifies one drive by the report (qemu_drive.h), or else one of several over fd
 * sets by their sizes (qemu_sets.h). */
#include "hypervisor/qemu_search.h"

#include <inttypes.h>
#include <string.h>

#include "hypervisor/qemu_drive.h"
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
    qemu_sets_done(&search->sets);
    vmm_memory_done(&search->memory);
}

static struct qemu_search_result go_on_after(struct qemu_search *search, uint64_t pause_ns)
{
    search->is_long |= pause_ns > 0;
    return (struct qemu_search_result){.next = QEMU_SEARCH_AGAIN, .pause_ns = pause_ns};
}

/* Takes the step on the process, which is released. false: it is to be taken again. */
static bool try(struct qemu_search *search, struct vmm_process *process,
                struct qemu_search_result *ret_result)
{
    bool again;

    vmm_process_use_memory(process, &search->memory);
    *ret_result = search->step(search, &process->resolver);
    again = vmm_process_is_to_go_on(process) && !search->is_last;
    vmm_process_done(process);
    return !again;
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

/* Takes a step, as far as it gets in the time that it has. */
static struct qemu_search_result take(struct qemu_search *search, qemu_search_step *step)
{
    struct qemu_search_result result;
    struct vmm_process process;
    struct error error;

    search->step = step;
    if (!vmm_search_may_begin(search->loop))
        return go_on_after(search, 0);
    if (vmm_process_init(&process, search->request, &error) < 0)
        return end(HYPERVISOR_UNREACHABLE, &error);
    if (!try(search, &process, &result))
        return go_on_after(search, VMM_SEARCH_PAUSE_NS);
    vmm_memory_done(&search->memory);
    return result.next == QEMU_SEARCH_RESIZE && search->is_long ? expect(search) : result;
}

/* ---- several drives over fd sets ---- */

/* The drive, or a set of drives that includes it, is identified, and its size is known. */
static struct qemu_search_result found_among(struct qemu_search *search,
                                             const struct qemu_match *match)
{
    search->list = HYPERVISOR_LIST_HAS;
    search->drive_bytes = match->bytes;
    search->doubt = match->doubt;
    if (match->drive)
        memcpy(search->drive, match->drive->name, sizeof(search->drive));
    return go_on(QEMU_SEARCH_FOUND);
}

/* Whether the drives may be re-read; if not, `error` says why. */
static enum hypervisor_outcome may_refresh(const struct qemu_search *search,
                                           struct vmm_resolver *resolver, struct error *error)
{
    const char *forbidden = search->request->others_forbid;

    if (!forbidden)
        return qemu_sets_may_refresh(&search->report, resolver, error);
    (void)error_set(error, 0, "QEMU's drives cannot be read again together: %s", forbidden);
    return HYPERVISOR_DRIVE_NOT_FOUND;
}

static struct qemu_search_result try_refresh(struct qemu_search *search,
                                             struct vmm_resolver *resolver)
{
    struct error error;
    enum hypervisor_outcome outcome = may_refresh(search, resolver, &error);

    return outcome == HYPERVISOR_DONE ? go_on(QEMU_SEARCH_RESIZE) : end(outcome, &error);
}

static struct qemu_search_result refresh_first(struct qemu_search *search,
                                               struct vmm_resolver *resolver)
{
    search->refreshing = qemu_sets_next(&search->sets);
    return search->refreshing ? try_refresh(search, resolver) : go_on(QEMU_SEARCH_CHECK);
}

/* Makes the next drive re-read its size; after the last one, asks for all sizes. */
static struct qemu_search_result refresh_next(struct qemu_search *search)
{
    search->refreshing = qemu_sets_next(&search->sets);
    return search->refreshing ? take(search, try_refresh) : go_on(QEMU_SEARCH_CHECK);
}

/* Ends the search if the listed sizes are conclusive, and otherwise re-reads all drives. */
static struct qemu_search_result compare_drives(struct qemu_search *search,
                                                struct vmm_resolver *resolver)
{
    struct vmm_wanted wanted = vmm_wanted_of(search->request);
    struct qemu_match match;
    enum qemu_match_result result =
        qemu_sets_match(&search->sets, &search->report, &wanted, resolver, &match);
    struct error error;

    if (vmm_resolver_doubt(resolver, true, &error) < 0)
        return end(HYPERVISOR_UNREACHABLE, &error);
    if (search->request->act == HYPERVISOR_RESIZE)
        return result != QEMU_MATCH_UNCLEAR && match.bytes >= search->request->bytes
                   ? found_among(search, &match)
                   : refresh_first(search, resolver);
    search->resize = match.drive && !match.drive->writable ? HYPERVISOR_READ_ONLY
                                                           : may_refresh(search, resolver, &error);
    return found_among(search, &match); /* UNCLEAR: without a size */
}

/* The sizes are not conclusive although all drives have been re-read. */
static struct qemu_search_result end_unclear(struct qemu_search *search,
                                             const struct qemu_match *match)
{
    struct error error = match->doubt;

    if (search->refusal != HYPERVISOR_DONE)
        return end(search->refusal, &search->refusal_text);
    (void)error_prefix(&error, "all drives have been read again, and still: ");
    return end(HYPERVISOR_DRIVE_NOT_FOUND, &error);
}

static struct qemu_search_result check_drives(struct qemu_search *search,
                                              struct vmm_resolver *resolver)
{
    struct vmm_wanted wanted = vmm_wanted_of(search->request);
    struct qemu_match match;
    struct error error;
    enum qemu_match_result result;

    qemu_sets_update(&search->sets, &search->report.roots);
    result = qemu_sets_match(&search->sets, &search->report, &wanted, resolver, &match);
    if (vmm_resolver_doubt(resolver, true, &error) < 0)
        return end(HYPERVISOR_UNREACHABLE, &error);
    if (result == QEMU_MATCH_UNCLEAR)
        return end_unclear(search, &match);
    if (match.bytes >= search->request->bytes)
        return found_among(search, &match);
    (void)error_set(&error, 0, "the device has %" PRIu64 " bytes, and is to have %" PRIu64,
                    match.bytes, search->request->bytes);
    return end(HYPERVISOR_REFUSED, &error);
}

/* ---- one drive ---- */

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
    int r = 0;

    if (search->expected[0])
        wanted.recorded_drive = search->expected;
    qemu_sets_done(&search->sets); /* of an earlier attempt, as is what follows */
    search->refreshing = NULL;
    search->drive[0] = '\0';
    search->drive_bytes = 0;
    outcome = qemu_drive_find(&search->report, &wanted, resolver, &drive, &error);
    if (outcome == HYPERVISOR_MISMATCH && search->expected[0])
        return end_changed(&error);
    if (outcome == HYPERVISOR_DRIVE_NOT_FOUND)
        r = qemu_sets_read(&search->sets, &search->report, &wanted, resolver);
    if (r < 0 && !resolver->exhausted) {
        (void)error_set_errno(&error, r, "cannot compare the VMM's drives");
        return end(HYPERVISOR_UNREACHABLE, &error);
    }
    if (search->sets.count && !resolver->exhausted)
        return compare_drives(search, resolver);
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

/* The drive's size after the resize decides, not the success of the command. */
static struct qemu_search_result check_drive(struct qemu_search *search)
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

/* ---- the steps ---- */

struct qemu_search_result qemu_search_find(struct qemu_search *search)
{
    return take(search, find);
}

struct qemu_search_result qemu_search_again(struct qemu_search *search)
{
    return take(search, search->step);
}

struct qemu_search_result qemu_search_resized(struct qemu_search *search)
{
    if (!search->refreshing)
        return go_on(QEMU_SEARCH_CHECK);
    search->refreshing->refreshed = true;
    return refresh_next(search);
}

struct qemu_search_result qemu_search_refused(struct qemu_search *search,
                                              enum hypervisor_outcome outcome, const char *words,
                                              size_t length)
{
    const char *drive = search->refreshing ? search->refreshing->name : search->drive;
    struct error error;

    (void)error_set(&error, 0, "%s%s%.*s", drive, drive[0] ? ": " : "", (int)length, words);
    if (!search->refreshing)
        return end(outcome, &error);
    /* The refused drive need not be the device's. */
    search->refusal = outcome;
    search->refusal_text = error;
    return refresh_next(search);
}

struct qemu_search_result qemu_search_check(struct qemu_search *search)
{
    return search->sets.count ? take(search, check_drives) : check_drive(search);
}
