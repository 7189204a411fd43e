/* SPDX-License-Identifier: Apache-2.0 */
/* qemu.c - the acts on a QEMU, over QMP.
 *
 * Commands that do not depend on an answer are sent together: all questions at once, and the check
 * with the resize. Each saves one round trip.
 *
 * QEMU is asked for the device's real size, never for less than the drive has. The drive's size
 * after the resize decides, not the success of the command.
 *
 * For a drive of crustd's, the plan of qemu_hotplug_steps.c is carried out.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hypervisor/qemu_hotplug.h"
#include "hypervisor/qemu_report.h"
#include "hypervisor/qmp.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/text.h"
#include "lib/workers.h"

static const uint64_t pause_min_ns = 10 * NSEC_PER_MSEC, pause_max_ns = 500 * NSEC_PER_MSEC;

enum { EVENTS_HEEDED = 32 };

enum question { FRONTENDS, NODES, SETS, STATUS, QUESTIONS };

struct qemu {
    const struct hypervisor_request *request;
    struct hypervisor_reply *reply;
    struct qmp qmp;

    /* A drive that the runtime attached. */
    struct qemu_report report;
    struct error paused; /* why the VM does not run; empty if it runs, or that is not known */

    /* A drive of crustd's. */
    struct qemu_hotplug_plan plan;
    struct qemu_hotplug_step step; /* the next one */
    uint64_t waiting_since_ns;     /* 0 until the first wait */
    uint64_t pause_ns;             /* the next one is twice as long */
    unsigned events;               /* received while waiting */
};

/* ---- a drive that the runtime attached ---- */

static enum hypervisor_outcome ask(struct qemu *qemu, const char *command, const char *arguments)
{
    return qmp_ask(&qemu->qmp, command, arguments, -1, &qemu->reply->error);
}

/* A refusal becomes the outcome that fits its text. */
static enum hypervisor_outcome take_answer(struct qemu *qemu, struct qmp_message *ret_answer)
{
    const char *drive = qemu->reply->drive_id;
    enum hypervisor_outcome outcome = qmp_answer(&qemu->qmp, ret_answer, &qemu->reply->error);

    if (outcome != HYPERVISOR_DONE || ret_answer->kind != QMP_ERROR)
        return outcome;
    (void)error_set(&qemu->reply->error, 0, "%s%s%s", drive, drive[0] ? ": " : "",
                    ret_answer->error_text);
    return qemu_refusal(ret_answer->error_class, ret_answer->error_text);
}

/* {"status": "io-error", "running": false}: paused by hand, or by QEMU itself (QEMU:
 * qapi/run-state.json). One that was not started yet is not paused. */
static void note_status(struct qemu *qemu, const cJSON *value)
{
    const char *status = json_string(value, "status");
    char word[32];

    if (!status || !cJSON_IsFalse(json_member(value, "running")) ||
        strcmp(status, "prelaunch") == 0 || strcmp(status, "inmigrate") == 0)
        return;
    text_clean(status, strlen(status), word, sizeof(word));
    (void)error_set(&qemu->paused, 0, "the VM is paused: QEMU's status is %s", word);
}

static int read_answer(struct qemu *qemu, enum question question, const cJSON *value)
{
    struct error *error = &qemu->reply->error;

    if (question == FRONTENDS)
        return qemu_report_read_nodes(&qemu->report.roots, value, true, error);
    if (question == NODES)
        return qemu_report_read_nodes(&qemu->report.nodes, value, false, error);
    if (question == SETS)
        return qemu_report_read_sets(&qemu->report, value, error);
    note_status(qemu, value);
    return 0;
}

static enum hypervisor_outcome read_report(struct qemu *qemu)
{
    static const struct {
        const char *command, *arguments;
    } questions[QUESTIONS] = {
        [FRONTENDS] = {"query-block", NULL},
        [NODES] = {"query-named-block-nodes", "{\"flat\":true}"},
        [SETS] = {"query-fdsets", NULL},
        [STATUS] = {"query-status", NULL},
    };
    enum hypervisor_outcome outcome = HYPERVISOR_DONE;

    for (enum question i = FRONTENDS; outcome == HYPERVISOR_DONE && i < QUESTIONS; i++)
        outcome = ask(qemu, questions[i].command, questions[i].arguments);
    for (enum question i = FRONTENDS; outcome == HYPERVISOR_DONE && i < QUESTIONS; i++) {
        cleanup(qmp_message_done) struct qmp_message answer = {.kind = QMP_OTHER};

        outcome = take_answer(qemu, &answer);
        if (i == STATUS && answer.kind == QMP_ERROR) /* the VM is taken to run */
            outcome = HYPERVISOR_DONE;
        if (outcome == HYPERVISOR_DONE && read_answer(qemu, i, answer.value) < 0)
            outcome = HYPERVISOR_UNREACHABLE;
    }
    return outcome;
}

/* The drive in the report whose file is the device, by what the VMM's process has open. */
static enum hypervisor_outcome find(struct qemu *qemu)
{
    const struct hypervisor_request *request = qemu->request;
    struct hypervisor_request resize = *request;
    struct hypervisor_reply *reply = qemu->reply;
    const struct qemu_node *drive = NULL;
    cleanup(vmm_process_done) struct vmm_process process;
    enum hypervisor_outcome outcome;

    if (vmm_process_init(&process, request->vmm_pid, &reply->error) < 0)
        return HYPERVISOR_UNREACHABLE;
    outcome = qemu_drive_find(&qemu->report, request, &process, &drive, &reply->error);
    reply->list = vmm_process_judge(&process, request, drive, &outcome, &reply->error);
    if (drive && reply->list == HYPERVISOR_LIST_HAS) {
        (void)snprintf(reply->drive_id, sizeof(reply->drive_id), "%s", drive->name);
        reply->bytes = drive->bytes;
        /* A query also finds drives that may not be resized. */
        resize.act = HYPERVISOR_RESIZE;
        if (request->act == HYPERVISOR_QUERY)
            reply->resize = qemu_drive_find(&qemu->report, &resize, &process, &drive, NULL);
    }
    return outcome;
}

/* Has QEMU read the size of the drive that was found, and checks what it has then. */
static enum hypervisor_outcome resize_one(struct qemu *qemu)
{
    cleanup(qmp_message_done) struct qmp_message resized = {.kind = QMP_OTHER};
    cleanup(qmp_message_done) struct qmp_message listed = {.kind = QMP_OTHER};
    struct hypervisor_reply *reply = qemu->reply;
    const uint64_t bytes = qemu->request->bytes;
    char arguments[sizeof(reply->drive_id) + 64];
    enum hypervisor_outcome outcome;
    const struct qemu_node *drive;

    /* QMP's int is 64 bits with a sign, as the kernel's sizes are. */
    (void)snprintf(arguments, sizeof(arguments), "{\"node-name\":\"%s\",\"size\":%" PRIu64 "}",
                   reply->drive_id, bytes > reply->bytes ? bytes : reply->bytes);
    job_await_go();
    outcome = ask(qemu, "block_resize", arguments);
    if (outcome == HYPERVISOR_DONE)
        outcome = ask(qemu, "query-block", NULL);
    if (outcome == HYPERVISOR_DONE)
        outcome = take_answer(qemu, &resized);
    if (outcome == HYPERVISOR_DONE)
        outcome = take_answer(qemu, &listed);
    if (outcome != HYPERVISOR_DONE)
        return outcome;
    qemu_nodes_done(&qemu->report.roots);
    if (read_answer(qemu, FRONTENDS, listed.value) < 0)
        return HYPERVISOR_UNREACHABLE;
    drive = qemu_nodes_find(&qemu->report.roots, reply->drive_id);
    if (!drive) {
        reply->list = HYPERVISOR_LIST_UNREAD;
        (void)error_set(&reply->error, 0, "%s was removed in the meantime", reply->drive_id);
        return HYPERVISOR_DRIVE_NOT_FOUND;
    }
    reply->bytes = drive->bytes;
    if (drive->bytes >= bytes)
        return HYPERVISOR_DONE;
    (void)error_set(&reply->error, 0,
                    "%s has %" PRIu64 " bytes after the resize, the device %" PRIu64,
                    reply->drive_id, drive->bytes, bytes);
    return HYPERVISOR_REFUSED;
}

/* qemu_drive_find() returns the smallest drive of the device: once that has grown, another one may
 * be the smallest. If none is found then, the one that was resized has the size all the same. */
static enum hypervisor_outcome resize(struct qemu *qemu)
{
    struct hypervisor_reply *reply = qemu->reply;

    do {
        enum hypervisor_outcome outcome = resize_one(qemu);
        const struct hypervisor_reply resized = *reply;

        if (outcome != HYPERVISOR_DONE)
            return outcome;
        if (find(qemu) != HYPERVISOR_DONE) {
            *reply = resized;
            reply->list = HYPERVISOR_LIST_HAS;
            return HYPERVISOR_DONE;
        }
    } while (reply->bytes < qemu->request->bytes);
    return HYPERVISOR_DONE;
}

/* Where the guest sees the drive. It is asked for last, because no failure of this matters. */
static void ask_address(struct qemu *qemu)
{
    cleanup(qmp_message_done) struct qmp_message tree = {.kind = QMP_OTHER};

    if (ask(qemu, "human-monitor-command", "{\"command-line\":\"info qtree\"}") ==
            HYPERVISOR_DONE &&
        take_answer(qemu, &tree) == HYPERVISOR_DONE && cJSON_IsString(tree.value))
        (void)qemu_tree_find(tree.value->valuestring, qemu->reply->drive_id, qemu->reply->address);
}

static enum hypervisor_outcome act_on_device(struct qemu *qemu)
{
    struct hypervisor_reply *reply = qemu->reply;
    enum hypervisor_outcome outcome = read_report(qemu);

    if (outcome == HYPERVISOR_DONE)
        outcome = find(qemu);
    if (outcome == HYPERVISOR_DONE && qemu->request->act == HYPERVISOR_RESIZE)
        outcome = resize(qemu);
    if (outcome == HYPERVISOR_DONE && qemu->request->wants_address && reply->drive_id[0])
        ask_address(qemu);
    if (outcome != HYPERVISOR_DONE)
        return outcome;
    reply->error = qemu->paused;
    return qemu->paused.text[0] ? HYPERVISOR_PAUSED : HYPERVISOR_DONE;
}

/* ---- a drive of crustd's ---- */

static bool identify(pid_t pid, int fd, struct hypervisor_disk *ret_disk)
{
    cleanup(vmm_process_done) struct vmm_process process;

    return vmm_process_init(&process, pid, NULL) == 0 &&
           vmm_process_descriptor(&process, fd, ret_disk) == 0;
}

static bool is_disk(const struct qemu_hotplug_plan *plan)
{
    const struct hypervisor_request *request = plan->values.request;
    struct hypervisor_disk disk;

    return identify(request->vmm_pid, plan->found.sets[0].fd, &disk) &&
           vmm_disk_equal(&disk, &request->disk);
}

static int read_unsigned(const cJSON *value, unsigned bound, unsigned *ret_number,
                         struct error *error)
{
    double number = cJSON_IsNumber(value) ? value->valuedouble : -1;

    if (!(number >= 0 && number <= bound))
        return error_set(error, -EBADMSG, "the VMM reports an address that makes no sense");
    *ret_number = (unsigned)number;
    return 0;
}

static void note_address(struct qemu *qemu, const char *serial)
{
    struct hypervisor_reply *reply = qemu->reply;

    (void)snprintf(reply->address, sizeof(reply->address), "scsi:%u:%u", qemu->plan.values.scsi_id,
                   qemu->plan.values.lun);
    if (strlen(serial) < sizeof(reply->serial))
        strcpy(reply->serial, serial);
}

/* Reads the answer to a question. The last one of several decides the next step. */
static int read_plan_answer(struct qemu *qemu, enum qemu_hotplug_command asked, const cJSON *value,
                            struct error *error)
{
    struct qemu_hotplug_plan *plan = &qemu->plan;
    int r;

    if (asked == QEMU_ASK_SCSI_ID)
        return read_unsigned(value, 255, &plan->values.scsi_id, error);
    if (asked == QEMU_ASK_LUN)
        return read_unsigned(value, 16383, &plan->values.lun, error);
    if (asked == QEMU_ASK_SERIAL && !cJSON_IsString(value))
        return error_set(error, -EBADMSG, "the VMM reports a serial that makes no sense");
    if (asked == QEMU_ASK_SERIAL) {
        note_address(qemu, value->valuestring);
        qemu->step = qemu_hotplug_step_address(plan, value->valuestring);
        return 0;
    }
    r = qemu_hotplug_read(&plan->found, &plan->values.names, asked, value, error);
    if (r == 0 && asked == QEMU_ASK_OBJECTS)
        qemu->step = qemu_hotplug_step_found(plan);
    return r;
}

static int read_new_set(struct qemu_hotplug_plan *plan, const cJSON *value, struct error *error)
{
    struct qemu_hotplug_set *set = &plan->found.sets[0];
    uint64_t fd;

    if (json_number(value, "fdset-id", &set->number) != JSON_NUMBER ||
        json_number(value, "fd", &fd) != JSON_NUMBER || fd > INT_MAX)
        return error_set(error, -EBADMSG, "add-fd: the answer has no set or no descriptor");
    set->fd = (int)fd;
    plan->found.set_count = 1;
    plan->values.set = set->number;
    return 0;
}

/* Returns 0 or -errno. */
static int take_plan_answer(struct qemu *qemu, enum qemu_hotplug_command command,
                            const struct qmp_message *answer, struct error *error)
{
    struct qemu_hotplug_plan *plan = &qemu->plan;
    int r = 0;

    if (command <= QEMU_ASK_SERIAL && answer->kind == QMP_ERROR)
        return error_set(error, -EBADMSG, "%s: %s", qemu_hotplug_command_name(command),
                         answer->error_text);
    if (command <= QEMU_ASK_SERIAL)
        return read_plan_answer(qemu, command, answer->value, error);
    if (answer->kind == QMP_ERROR) {
        qemu->step =
            qemu_hotplug_step_refused(plan, command, answer->error_class, answer->error_text);
        return 0;
    }
    if (command == QEMU_ADD_SET)
        r = read_new_set(plan, answer->value, error);
    if (r == 0)
        qemu->step = qemu_hotplug_step_done(plan, command);
    return r;
}

static enum hypervisor_outcome ask_planned(struct qemu *qemu, enum qemu_hotplug_command command)
{
    cleanup(buffer_done) struct buffer arguments = BUFFER_INIT(QEMU_HOTPLUG_ARGUMENT_BYTES);
    int r = qemu_hotplug_arguments(command, &qemu->plan.values, &arguments);

    if (r < 0) {
        (void)error_set_errno(&qemu->reply->error, r, "cannot ask the monitor");
        return HYPERVISOR_UNREACHABLE;
    }
    return qmp_ask(&qemu->qmp, qemu_hotplug_command_name(command),
                   arguments.length ? buffer_text(&arguments) : NULL,
                   command == QEMU_ADD_SET ? qemu->request->descriptor : -1, &qemu->reply->error);
}

/* Sends `first` and all up to `last` together, and takes their answers. */
static enum hypervisor_outcome converse(struct qemu *qemu, enum qemu_hotplug_command first,
                                        enum qemu_hotplug_command last)
{
    struct error *error = &qemu->reply->error;
    enum hypervisor_outcome outcome = HYPERVISOR_DONE;
    bool is_refused = false;

    for (enum qemu_hotplug_command command = first; outcome == HYPERVISOR_DONE && command <= last;
         command++)
        outcome = ask_planned(qemu, command);
    for (enum qemu_hotplug_command command = first; outcome == HYPERVISOR_DONE && command <= last;
         command++) {
        cleanup(qmp_message_done) struct qmp_message answer = {.kind = QMP_OTHER};

        outcome = qmp_answer(&qemu->qmp, &answer, error);
        if (outcome == HYPERVISOR_DONE && !is_refused &&
            take_plan_answer(qemu, command, &answer, error) < 0)
            outcome = HYPERVISOR_UNREACHABLE;
        is_refused |= answer.kind == QMP_ERROR;
    }
    return outcome;
}

/* An event is a reason to look again, because DEVICE_DELETED is one; but not each of a flood. */
static enum hypervisor_outcome wait_a_little(struct qemu *qemu)
{
    const uint64_t now_ns = clock_boottime();
    int r;

    if (!qemu->waiting_since_ns)
        qemu->waiting_since_ns = now_ns;
    qemu->pause_ns = qemu->pause_ns ? 2 * qemu->pause_ns : pause_min_ns;
    if (qemu->pause_ns > pause_max_ns)
        qemu->pause_ns = pause_max_ns;
    do {
        r = qmp_wait_event(&qemu->qmp, now_ns + qemu->pause_ns, &qemu->reply->error);
    } while (r == 0 && qemu->events++ >= EVENTS_HEEDED);
    if (r != 0 && r != QMP_WAITED)
        return r;
    if (clock_boottime() - qemu->waiting_since_ns < qemu->request->removal_ns)
        qemu->step.next = QEMU_HOTPLUG_READ;
    else
        qemu->step = qemu_hotplug_step_late(&qemu->plan);
    return 0;
}

static enum hypervisor_outcome carry_out(struct qemu *qemu)
{
    enum hypervisor_outcome outcome = HYPERVISOR_DONE;

    while (outcome == HYPERVISOR_DONE && qemu->step.next != QEMU_HOTPLUG_END) {
        if (qemu->step.next == QEMU_HOTPLUG_READ)
            outcome = converse(qemu, QEMU_ASK_SETS, QEMU_ASK_OBJECTS);
        else if (qemu->step.next == QEMU_HOTPLUG_COMMAND)
            outcome = converse(qemu, qemu->step.command, qemu->step.last);
        else if (qemu->step.next == QEMU_HOTPLUG_ADDRESS)
            outcome = converse(qemu, QEMU_ASK_SCSI_ID, QEMU_ASK_SERIAL);
        else
            outcome = wait_a_little(qemu);
    }
    return outcome;
}

static enum hypervisor_outcome act_on_drive(struct qemu *qemu)
{
    const struct hypervisor_request *request = qemu->request;
    struct hypervisor_reply *reply = qemu->reply;
    enum hypervisor_outcome outcome;

    qemu_hotplug_plan_init(&qemu->plan, request);
    qemu->plan.is_disk = is_disk;
    outcome = carry_out(qemu);
    if (outcome != HYPERVISOR_DONE)
        return outcome;
    reply->state = qemu_hotplug_state(&qemu->plan.found);
    reply->error = qemu->plan.error;
    if (qemu->step.outcome != HYPERVISOR_DONE)
        return qemu->step.outcome;
    if (request->act == HYPERVISOR_ATTACH && !reply->address[0])
        note_address(qemu, request->serial);
    if (request->act == HYPERVISOR_RESIZE)
        reply->bytes = request->bytes;
    return HYPERVISOR_DONE;
}

/* ---- all drives of crustd's ---- */

static enum hypervisor_outcome ask_list(struct qemu *qemu, enum qemu_hotplug_command command,
                                        struct qmp_message *ret_answer)
{
    const char *name = qemu_hotplug_command_name(command);
    struct error *error = &qemu->reply->error;
    enum hypervisor_outcome outcome = ask_planned(qemu, command);

    if (outcome == HYPERVISOR_DONE)
        outcome = qmp_answer(&qemu->qmp, ret_answer, error);
    if (outcome != HYPERVISOR_DONE || cJSON_IsArray(ret_answer->value))
        return outcome;
    if (ret_answer->kind == QMP_ERROR)
        (void)error_set(error, 0, "%s: %s", name, ret_answer->error_text);
    else
        (void)error_set(error, 0, "%s: the answer is no list", name);
    return HYPERVISOR_UNREACHABLE;
}

static bool has_device(const cJSON *devices, const char *drive_id)
{
    struct qemu_hotplug_names names;
    const cJSON *device;

    qemu_hotplug_names_init(&names, drive_id);
    cJSON_ArrayForEach(device, devices)
    {
        if (strcmp(json_text(device, "name"), names.part[QEMU_PART_DEVICE]) == 0)
            return true;
    }
    return false;
}

/* The sets that are crustd's, each drive once, and which of them have a device. */
static enum hypervisor_outcome list(struct qemu *qemu)
{
    cleanup(qmp_message_done) struct qmp_message sets = {.kind = QMP_OTHER};
    cleanup(qmp_message_done) struct qmp_message devices = {.kind = QMP_OTHER};
    struct hypervisor_drive_entry *entries = calloc(QEMU_HOTPLUG_ENTRIES, sizeof(*entries));
    enum hypervisor_outcome outcome = ask_list(qemu, QEMU_ASK_SETS, &sets);
    struct hypervisor_reply *reply = qemu->reply;
    const cJSON *set;

    reply->entries = entries;
    if (outcome == HYPERVISOR_DONE)
        outcome = ask_list(qemu, QEMU_ASK_DEVICES, &devices);
    if (outcome == HYPERVISOR_DONE && !entries) {
        (void)error_set_errno(&reply->error, -ENOMEM, "cannot keep the list of drives");
        outcome = HYPERVISOR_UNREACHABLE;
    }
    if (outcome != HYPERVISOR_DONE)
        return outcome;
    cJSON_ArrayForEach(set, sets.value)
    {
        struct hypervisor_drive_entry *entry = entries;
        uint64_t number;
        int fd;
        const char *id = qemu_hotplug_read_set(set, &number, &fd);

        while (id && entry < entries + reply->entry_count && strcmp(entry->drive_id, id) != 0)
            entry++;
        if (!id || entry < entries + reply->entry_count)
            continue;
        if (reply->entry_count == QEMU_HOTPLUG_ENTRIES) {
            (void)error_set(&reply->error, 0, "the VMM reports more than %d drives",
                            QEMU_HOTPLUG_ENTRIES);
            reply->entry_count = 0;
            return HYPERVISOR_UNREACHABLE;
        }
        reply->entry_count++;
        strcpy(entry->drive_id, id); /* bounded by qemu_hotplug_read_set() */
        entry->state =
            has_device(devices.value, id) ? HYPERVISOR_DRIVE_PRESENT : HYPERVISOR_DRIVE_PARTIAL;
        entry->identified = identify(qemu->request->vmm_pid, fd, &entry->disk);
    }
    return HYPERVISOR_DONE;
}

/* ---- the act ---- */

void qemu_act(const struct hypervisor_request *request, uint64_t deadline_ns,
              struct hypervisor_reply *reply)
{
    const struct listener listener = {.vmm = request->vmm_pid, .sandbox_id = request->sandbox_id};
    struct qemu qemu = {.request = request, .reply = reply, .step = {.next = QEMU_HOTPLUG_READ}};

    reply->outcome = qmp_open(&qemu.qmp, request->root, request->control_socket, &listener,
                              deadline_ns, &reply->error);
    if (reply->outcome == HYPERVISOR_DONE && request->drive_id)
        reply->outcome = act_on_drive(&qemu);
    else if (reply->outcome == HYPERVISOR_DONE && request->act == HYPERVISOR_LIST)
        reply->outcome = list(&qemu);
    else if (reply->outcome == HYPERVISOR_DONE)
        reply->outcome = act_on_device(&qemu);
    if (reply->outcome == HYPERVISOR_DONE)
        reply->error = (struct error){.code = 0};
    memcpy(reply->version, qemu.qmp.version, sizeof(reply->version));
    qemu_report_done(&qemu.report);
    qmp_close(&qemu.qmp);
}
