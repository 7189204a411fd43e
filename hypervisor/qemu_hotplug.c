/* SPDX-License-Identifier: Apache-2.0 */
/* qemu_hotplug.c - a drive's conversation with QEMU, over QMP.
 *
 * Carries out what qemu_hotplug_steps.h says: questions or commands together, or a while of
 * waiting. While a removal is waited for, an event of QEMU's is a reason to look again,
 * because DEVICE_DELETED is one of them; but not each of a flood.
 *
 * Every path ends in finish(), after which nothing here uses the call, because its owner may have
 * freed it.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "hypervisor/hypervisor_ops.h"
#include "hypervisor/qemu_hotplug_steps.h"
#include "hypervisor/qmp_conversation.h"
#include "hypervisor/vmm_process.h"
#include "lib/cleanup.h"
#include "lib/clock.h"

static const uint64_t pause_min_ns = 10 * NSEC_PER_MSEC, pause_max_ns = 500 * NSEC_PER_MSEC;

enum { EVENTS_HEEDED = 32 };

struct hotplug {
    struct hypervisor_drive_call call;
    struct qmp_conversation conversation;
    struct qemu_hotplug_plan plan;
    struct qemu_hotplug_list list;
    enum qemu_hotplug_command asked; /* the oldest command without an answer */
    enum qemu_hotplug_command last;  /* the newest */
    bool complete;                   /* plan.found is what QEMU has */
    bool has_address;
    char serial[HYPERVISOR_DRIVE_SERIAL_BYTES]; /* of the device; "" */
    struct loop_timer waiting;
    uint64_t waiting_since_ns; /* 0: nothing was waited for yet */
    uint64_t pause_ns;         /* the next one is twice as long */
    unsigned events;           /* that were a reason to look again */
};

static struct hotplug *hotplug_of(struct qmp_conversation *conversation)
{
    return container_of(conversation, struct hotplug, conversation);
}

/* ---- the end ---- */

static enum hypervisor_drive_state state_of(const struct hotplug *hotplug)
{
    return hotplug->complete ? qemu_hotplug_state(&hotplug->plan.found) : HYPERVISOR_DRIVE_UNKNOWN;
}

static void finish(struct hotplug *hotplug, enum hypervisor_drive_outcome outcome,
                   const struct error *error)
{
    struct hypervisor_drive_reply reply = {.outcome = outcome, .state = state_of(hotplug)};

    if (outcome != HYPERVISOR_DRIVE_DONE)
        reply.error = *error;
    if (hotplug->has_address)
        (void)snprintf(reply.address, sizeof(reply.address), "scsi:%u:%u",
                       hotplug->plan.values.scsi_id, hotplug->plan.values.lun);
    (void)snprintf(reply.serial, sizeof(reply.serial), "%s", hotplug->serial);
    if (outcome == HYPERVISOR_DRIVE_DONE) {
        if (hotplug->call.request.act == HYPERVISOR_DRIVE_RESIZE)
            reply.bytes = hotplug->call.request.bytes;
        reply.entries = hotplug->list.entries;
        reply.entry_count = hotplug->list.count;
    }
    hypervisor_drive_complete(&hotplug->call, &reply);
}

static void finish_unreachable(struct hotplug *hotplug, const struct error *error)
{
    hotplug->complete = false;
    finish(hotplug, HYPERVISOR_DRIVE_UNREACHABLE, error);
}

/* ---- the VMM's descriptors ---- */

static bool identify(pid_t pid, int fd, struct hypervisor_disk *ret_disk)
{
    struct vmm_identity identity;
    struct vmm_process process;
    bool known;

    if (vmm_process_init(&process, pid, NULL) < 0)
        return false;
    known = process.resolver.descriptor(&process.resolver, fd, &identity) == 0;
    vmm_process_done(&process);
    if (known)
        *ret_disk = (struct hypervisor_disk){.regular_file = !identity.block_device,
                                             .device = identity.device,
                                             .inode = identity.inode};
    return known;
}

static bool is_disk(const struct qemu_hotplug_plan *plan, void *userdata)
{
    const struct hypervisor_drive_request *request = plan->values.request;
    const struct hypervisor_disk *wanted = &request->disk;
    struct hypervisor_disk disk;

    (void)userdata;
    return identify(request->vmm_pid, plan->found.sets[0].fd, &disk) &&
           disk.regular_file == wanted->regular_file && disk.device == wanted->device &&
           (!disk.regular_file || disk.inode == wanted->inode);
}

/* ---- commands ---- */

/* Asks for `first` and all up to `last`, together. */
static void ask(struct hotplug *hotplug, enum qemu_hotplug_command first,
                enum qemu_hotplug_command last)
{
    struct qemu_hotplug_plan *plan = &hotplug->plan;
    char arguments[QEMU_HOTPLUG_ARGUMENT_BYTES];
    struct error error;
    int r = 0;

    hotplug->asked = first;
    hotplug->last = last;
    for (enum qemu_hotplug_command command = first; r == 0 && command <= last; command++) {
        r = qemu_hotplug_arguments(command, &plan->values, arguments);
        if (r == 0)
            r = qmp_conversation_ask(&hotplug->conversation, qemu_hotplug_command_name(command),
                                     arguments[0] ? arguments : NULL,
                                     command == QEMU_ADD_SET ? hotplug->call.request.descriptor
                                                             : -1);
    }
    if (r == 0)
        return;
    (void)error_set_errno(&error, r, "cannot ask the monitor");
    finish_unreachable(hotplug, &error);
}

static void read_all(struct hotplug *hotplug)
{
    hotplug->complete = false;
    ask(hotplug, QEMU_ASK_SETS, QEMU_ASK_OBJECTS);
}

static void follow(struct hotplug *hotplug, struct qemu_hotplug_step step);

static void look_again(struct hotplug *hotplug)
{
    loop_timer_stop(&hotplug->waiting);
    if (clock_boottime() - hotplug->waiting_since_ns < hotplug->call.request.removal_ns)
        read_all(hotplug);
    else
        follow(hotplug, qemu_hotplug_step_late(&hotplug->plan));
}

static void on_waited(struct loop_timer *timer)
{
    look_again(container_of(timer, struct hotplug, waiting));
}

static void wait_a_little(struct hotplug *hotplug)
{
    if (!hotplug->waiting_since_ns)
        hotplug->waiting_since_ns = clock_boottime();
    hotplug->pause_ns = hotplug->pause_ns ? 2 * hotplug->pause_ns : pause_min_ns;
    if (hotplug->pause_ns > pause_max_ns)
        hotplug->pause_ns = pause_max_ns;
    loop_timer_start(hotplug->call.loop, &hotplug->waiting, hotplug->pause_ns, on_waited);
}

/* The device's target and unit are known. */
static void note_address(struct hotplug *hotplug, const char *serial)
{
    hotplug->has_address = true;
    if (strlen(serial) < sizeof(hotplug->serial))
        strcpy(hotplug->serial, serial);
}

static void follow(struct hotplug *hotplug, struct qemu_hotplug_step step)
{
    switch (step.next) {
    case QEMU_HOTPLUG_READ:
        read_all(hotplug);
        return;
    case QEMU_HOTPLUG_COMMAND:
        ask(hotplug, step.command, step.last);
        return;
    case QEMU_HOTPLUG_ANSWER:
        return;
    case QEMU_HOTPLUG_ADDRESS:
        ask(hotplug, QEMU_ASK_SCSI_ID, QEMU_ASK_SERIAL);
        return;
    case QEMU_HOTPLUG_WAIT:
        wait_a_little(hotplug);
        return;
    case QEMU_HOTPLUG_END:
        break;
    }
    if (step.outcome == HYPERVISOR_DRIVE_DONE &&
        hotplug->call.request.act == HYPERVISOR_DRIVE_ATTACH && !hotplug->has_address)
        note_address(hotplug, hotplug->call.request.serial);
    finish(hotplug, step.outcome, &hotplug->plan.error);
}

/* ---- answers ---- */

static int read_list(struct hotplug *hotplug, const cJSON *value, struct error *error)
{
    struct qemu_hotplug_list *list = &hotplug->list;
    int r;

    if (hotplug->asked == QEMU_ASK_SETS)
        return qemu_hotplug_list_sets(list, value, error);
    if (hotplug->asked != QEMU_ASK_DEVICES)
        return 0;
    r = qemu_hotplug_list_devices(list, value, error);
    for (size_t i = 0; r == 0 && i < list->count; i++)
        list->entries[i].identified =
            identify(hotplug->call.request.vmm_pid, list->fds[i], &list->entries[i].disk);
    return r;
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

/* An answer to a question. */
static int read_answer(struct hotplug *hotplug, const cJSON *value, struct error *error)
{
    struct qemu_hotplug_plan *plan = &hotplug->plan;

    if (hotplug->call.request.act == HYPERVISOR_DRIVE_LIST)
        return read_list(hotplug, value, error);
    if (hotplug->asked == QEMU_ASK_SCSI_ID)
        return read_unsigned(value, 255, &plan->values.scsi_id, error);
    if (hotplug->asked == QEMU_ASK_LUN)
        return read_unsigned(value, 16383, &plan->values.lun, error);
    if (hotplug->asked == QEMU_ASK_SERIAL)
        return cJSON_IsString(value)
                   ? 0
                   : error_set(error, -EBADMSG, "the VMM reports a serial that makes no sense");
    return qemu_hotplug_read(&plan->found, &plan->values.names, hotplug->asked, value, error);
}

/* The last of the questions has been answered. */
static void answered_all(struct hotplug *hotplug, const cJSON *value)
{
    if (hotplug->last == QEMU_ASK_SERIAL) {
        note_address(hotplug, value->valuestring);
        follow(hotplug, qemu_hotplug_step_address(&hotplug->plan, value->valuestring));
    } else if (hotplug->call.request.act == HYPERVISOR_DRIVE_LIST) {
        finish(hotplug, HYPERVISOR_DRIVE_DONE, NULL);
    } else {
        hotplug->complete = true;
        follow(hotplug, qemu_hotplug_step_found(&hotplug->plan));
    }
}

static void answered_question(struct hotplug *hotplug, const struct qmp_message *message)
{
    struct error error;

    if (message->kind == QMP_ERROR) {
        (void)error_set(&error, 0, "%s: %s", qemu_hotplug_command_name(hotplug->asked),
                        message->error_text);
        finish_unreachable(hotplug, &error);
    } else if (read_answer(hotplug, message->value, &error) < 0) {
        finish_unreachable(hotplug, &error);
    } else if (hotplug->asked == hotplug->last) {
        answered_all(hotplug, message->value);
    } else {
        hotplug->asked++;
    }
}

static bool read_new_set(struct qemu_hotplug_plan *plan, const cJSON *value)
{
    struct qemu_hotplug_set *set = &plan->found.sets[0];
    uint64_t fd;

    if (json_number(value, "fdset-id", &set->number) != JSON_NUMBER ||
        json_number(value, "fd", &fd) != JSON_NUMBER || fd > INT_MAX)
        return false;
    set->fd = (int)fd;
    plan->found.set_count = 1;
    plan->values.set = set->number;
    return true;
}

static void answered_command(struct hotplug *hotplug, const struct qmp_message *message)
{
    struct qemu_hotplug_plan *plan = &hotplug->plan;
    enum qemu_hotplug_command command = hotplug->asked;
    struct error error;

    hotplug->asked++;
    if (message->kind == QMP_ERROR) {
        follow(hotplug,
               qemu_hotplug_step_refused(plan, command, message->error_class, message->error_text));
    } else if (command == QEMU_ADD_SET && !read_new_set(plan, message->value)) {
        (void)error_set(&error, 0, "add-fd: the answer has no set or no descriptor");
        finish_unreachable(hotplug, &error);
    } else {
        follow(hotplug, qemu_hotplug_step_done(plan, command));
    }
}

static void answered(struct qmp_conversation *conversation, const struct qmp_message *message)
{
    struct hotplug *hotplug = hotplug_of(conversation);

    if (hotplug->asked <= QEMU_ASK_SERIAL)
        answered_question(hotplug, message);
    else
        answered_command(hotplug, message);
}

static void on_ready(struct qmp_conversation *conversation)
{
    struct hotplug *hotplug = hotplug_of(conversation);

    if (hotplug->call.request.act == HYPERVISOR_DRIVE_LIST)
        ask(hotplug, QEMU_ASK_SETS, QEMU_ASK_DEVICES);
    else
        read_all(hotplug);
}

static void on_event(struct qmp_conversation *conversation)
{
    struct hotplug *hotplug = hotplug_of(conversation);

    if (loop_timer_is_active(&hotplug->waiting) && hotplug->events++ < EVENTS_HEEDED)
        look_again(hotplug);
}

static void on_failed(struct qmp_conversation *conversation, enum qmp_failure failure,
                      const struct error *error)
{
    static const enum hypervisor_drive_outcome outcomes[] = {
        [QMP_MONITOR_MISSING] = HYPERVISOR_DRIVE_MONITOR_MISSING,
        [QMP_MONITOR_BUSY] = HYPERVISOR_DRIVE_BUSY,
        [QMP_MONITOR_BROKEN] = HYPERVISOR_DRIVE_UNREACHABLE,
    };
    struct hotplug *hotplug = hotplug_of(conversation);

    hotplug->complete = false;
    finish(hotplug, outcomes[failure], error);
}

static const struct qmp_conversation_handler conversation_handler = {
    .ready = on_ready, .answered = answered, .event = on_event, .failed = on_failed};

static int hotplug_start(struct hypervisor_drive_call *call)
{
    struct hotplug *hotplug = container_of(call, struct hotplug, call);
    const struct stream_address address = {
        .family = STREAM_UNIX,
        .directory = call->request.root,
        .path = call->request.control_socket,
        .listener = {.vmm = call->request.vmm_pid, .sandbox_id = call->request.sandbox_id},
    };

    qemu_hotplug_plan_init(&hotplug->plan, &call->request);
    hotplug->plan.is_disk = is_disk;
    return qmp_conversation_start(&hotplug->conversation, call->loop, &address,
                                  call->request.deadline_ns, &conversation_handler);
}

static void hotplug_stop(struct hypervisor_drive_call *call)
{
    struct hotplug *hotplug = container_of(call, struct hotplug, call);

    loop_timer_stop(&hotplug->waiting);
    qmp_conversation_done(&hotplug->conversation);
}

static void hotplug_done(struct hypervisor_drive_call *call)
{
    qemu_hotplug_list_done(&container_of(call, struct hotplug, call)->list);
}

const struct hypervisor_drive_ops hypervisor_drive_qemu_ops = {
    .size = sizeof(struct hotplug),
    .start = hotplug_start,
    .stop = hotplug_stop,
    .done = hotplug_done,
};
