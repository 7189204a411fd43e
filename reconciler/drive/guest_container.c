/* SPDX-License-Identifier: Apache-2.0 */
/* guest_container.c - the container that holds a drive in a guest that has only kata-agent.
 *
 * `hold` creates a container that has the disk among its storages: kata-agent mounts it at vm_path
 * before it answers CreateContainer. The container's program is the helper. It verifies that the
 * mounted disk is the drive's, sets the group, syncs the file system before the call is over, and
 * goes on syncing it, because QEMU is killed at the end of a sandbox. Removing the container
 * unmounts the disk, unless somebody uses it: then the mount stays but kata-agent forgets it, and
 * only another container with the same storage hands it back to the agent. The container is named
 * by the drive's serial, and so is its directory in the sandbox's share. That directory exists for
 * as long as the container may exist, which tells a later crustd the route.
 *
 * What comes when is in guest.c, and the other steps are errands (guest_errands.c).
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "agent-client/container_run.h"
#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "reconciler/drive/guest_line.h"
#include "reconciler/drive/guest_state.h"
#include "reconciler/helper/report.h"
#include "reconciler/helper/share.h"

enum { NUMBER_BYTES = 24, ARGUMENTS = 10, SPELLINGS = 64 };

/* By virtiofsd's leave (cache=auto) a guest takes a directory for the one that had its name until a
 * second ago. In that one, which was removed, kata-agent cannot make the mount point of /proc. */
static const uint64_t settling_ns = NSEC_PER_SEC + 100 * NSEC_PER_MSEC;

/* The arguments of the helper in the container. */
struct holder {
    char flush[NUMBER_BYTES], group[NUMBER_BYTES];
    const char *argument[ARGUMENTS + 1];
    size_t arguments;
};

/* ---- the container that holds the drive ---- */

void drive_guest_open_share(struct drive_guest_call *call)
{
    struct error ignored;
    int r;

    if (call->share >= 0)
        return;
    r = helper_share_open(call->context->root, call->sandbox.runtime, call->sandbox.sandbox_id,
                          &call->share, &ignored);
    call->share_comes = r == HELPER_SHARE_LATER;
    if (r != HELPER_SHARE_OK)
        call->share = -1;
}

bool drive_guest_is_held(struct drive_guest_call *call)
{
    drive_guest_open_share(call);
    return call->share >= 0 &&
           helper_share_has(call->share, call->drive.serial) == HELPER_SHARE_HAS;
}

/* vm_path with slashes at its end. kata-agent counts the users of a mount point by its spelling,
 * and never forgets those of a CreateContainer that was cut off: a mount point spelled like theirs
 * is not mounted again, and not unmounted. What is mounted already it takes over only where the
 * spelling is the kernel's. */
static void spell_mount_point(const struct drive_guest_call *call,
                              char ret_path[static DRIVE_PATH_CHARS + SPELLINGS + 1])
{
    const char *vm_path = call->drive.request.vm_path;
    size_t length = strlen(vm_path), slashes = 0;
    uint8_t number = 0;

    if (call->act == DRIVE_GUEST_MOUNT && !call->is_there) {
        (void)!getrandom(&number, sizeof(number), GRND_NONBLOCK);
        slashes = 1 + number % SPELLINGS;
    }
    memcpy(ret_path, vm_path, length);
    memset(ret_path + length, '/', slashes);
    ret_path[length + slashes] = '\0';
}

/* kata-agent's answer names the mount point; people know vm_path. */
static void spell_vm_path(const struct drive_guest_call *call, struct error *error)
{
    const char *vm_path = call->drive.request.vm_path;
    char *end = strstr(error->text, vm_path), *rest;

    if (!end)
        return;
    end += strlen(vm_path);
    rest = end + strspn(end, "/");
    if (!*rest || strchr(" ,:;\"'", *rest)) /* a path that goes on is another one */
        memmove(end, rest, strlen(rest) + 1);
}

static int fill_storage(const struct drive_guest_call *call, struct container_storage *storage,
                        const char *texts[static CONTAINER_STORAGE_OPTIONS + 1],
                        const struct drive_mount_request *mount, const char *mount_point)
{
    size_t count = 0;

    texts[count++] = "nodev";
    texts[count++] = "nosuid";
    if (mount->read_only)
        texts[count++] = "ro";
    for (size_t i = 0; i < mount->option_count; i++) {
        const char *option = mount->options[i];

        if (strcmp(option, "ro") == 0 || strcmp(option, "rw") == 0 ||
            strcmp(option, "nodev") == 0 || strcmp(option, "nosuid") == 0)
            continue;
        if (count == CONTAINER_STORAGE_OPTIONS)
            return -E2BIG;
        texts[count++] = option;
    }
    texts[count] = NULL;
    *storage = (struct container_storage){
        .address = call->address,
        .filesystem_type = mount->filesystem_type,
        .options = texts,
        .mount_point = mount_point,
    };
    return 0;
}

static void add_argument(struct holder *holder, const char *argument)
{
    holder->argument[holder->arguments++] = argument;
}

/* The group is set once, by the call that mounts the drive. */
static void fill_holder(const struct drive_guest_call *call,
                        const struct drive_mount_request *mount, struct holder *holder)
{
    *holder = (struct holder){0};
    (void)snprintf(holder->flush, NUMBER_BYTES, "%u", call->context->config->drives.flush_seconds);
    (void)snprintf(holder->group, NUMBER_BYTES, "%u", mount->fs_group);
    add_argument(holder, "--drive");
    add_argument(holder, "hold");
    add_argument(holder, "--flush");
    add_argument(holder, holder->flush);
    if (mount->has_fs_group && !mount->read_only && call->act == DRIVE_GUEST_MOUNT) {
        add_argument(holder, "--fs-group");
        add_argument(holder, holder->group);
        add_argument(holder, "--fs-group-policy");
        add_argument(holder, drive_group_policy_name(mount->fs_group_policy));
    }
    add_argument(holder, call->drive.serial);
    add_argument(holder, "/vol/0");
}

static struct container_request describe(const struct drive_guest_call *call,
                                         enum container_act act, const char *directory)
{
    uint64_t time = drive_guest_time(call);

    return (struct container_request){
        .act = act,
        .root = call->context->root,
        .address = call->sandbox.agent_address,
        .listener = {.vmm = call->sandbox.vmm_pid, .sandbox_id = call->sandbox.sandbox_id},
        .container_id = call->drive.serial,
        .directory = directory,
        .program = HELPER_PROGRAM_NAME,
        .program_file = -1,
        .step_ns = time,
        .program_ns = time,
        .total_ns = time,
    };
}

static enum status_code status_of(enum container_kind kind)
{
    switch (kind) {
    case CONTAINER_DONE:
        return STATUS_OK;
    case CONTAINER_DENIED:
        return STATUS_PERMISSION_DENIED;
    case CONTAINER_UNREACHABLE:
    case CONTAINER_TIMED_OUT:
        return STATUS_UNAVAILABLE;
    case CONTAINER_UNSUPPORTED:
    case CONTAINER_NO_CGROUPS:
    case CONTAINER_FAILED:
    case CONTAINER_KINDS:
    default:
        return STATUS_FAILED_PRECONDITION;
    }
}

/* The container is gone, so its directory is no longer needed. */
static void remove_directory(struct drive_guest_call *call)
{
    if (call->share >= 0)
        (void)helper_share_remove(call->share, call->drive.serial);
}

static void on_removed(struct container_run *run, const struct container_reply *reply,
                       void *userdata)
{
    struct drive_guest_call *call = userdata;
    enum status_code status = status_of(reply->kind);
    struct error error = reply->error;
    bool left = reply->left;

    call->container = container_run_free(run);
    if (left) {
        if (status == STATUS_OK)
            status = STATUS_UNAVAILABLE;
        drive_guest_fail(call, status, error.text);
        return;
    }
    remove_directory(call);
    if (call->is_undone) { /* the reply has status and error already */
        if (call->act == DRIVE_GUEST_MOUNT)
            call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        drive_guest_finish(call);
    } else if (call->act == DRIVE_GUEST_MOUNT) {
        drive_guest_check(call);
    } else {
        drive_guest_prove(call);
    }
}

/* Removes the container, if one may exist; the next step follows. */
void drive_guest_remove_holder(struct drive_guest_call *call)
{
    char directory[HELPER_GUEST_PATH_BYTES];
    struct container_request request;
    int r;

    helper_share_guest_path(call->sandbox.runtime, call->drive.serial, directory);
    request = describe(call, CONTAINER_CLEAN_UP, directory);
    r = container_run_new(call->context->loop, &request, on_removed, call, &call->container);
    if (r < 0)
        drive_guest_fail_errno(call, r, "cannot have the drive's container removed");
}

static void undo(struct drive_guest_call *call, enum status_code status, const char *text)
{
    drive_guest_note_refusal(call, status, text);
    call->is_undone = true;
    drive_guest_remove_holder(call);
}

/* UNMOUNT: the reply already reports that somebody has the disk. */
static void held_again(struct drive_guest_call *call, bool held, bool left, bool is_fine)
{
    if (held && !is_fine) {
        call->is_undone = true;
        drive_guest_remove_holder(call);
        return;
    }
    if (held)
        call->reply.guest = DRIVE_IN_GUEST_MOUNTED;
    else if (!left)
        remove_directory(call);
    drive_guest_finish(call);
}

/* A group walk that ran out of time is to be repeated at once: the next one skips what this one has
 * changed. */
static enum status_code status_of_hold(const struct drive_guest_call *call,
                                       const struct container_reply *reply)
{
    return reply->kind == CONTAINER_TIMED_OUT && reply->step == CONTAINER_READ &&
                   call->drive.request.has_fs_group
               ? STATUS_DEADLINE_EXCEEDED
               : status_of(reply->kind);
}

/* The uevent of a disk that arrives while the guest boots is lost. */
static bool was_unseen(const struct container_reply *reply)
{
    return reply->step == CONTAINER_CREATE && strstr(reply->error.text, "waiting for uevent");
}

static void explain_unseen(const struct container_reply *reply, struct error *error)
{
    if (was_unseen(reply))
        (void)error_set(
            error, 0,
            "kata-agent did not see the disk arrive, for example because it was attached "
            "before the agent started: attach it again");
}

static bool was_refused_at_first(const struct drive_guest_call *call,
                                 const struct container_reply *reply)
{
    return !call->is_second && !reply->left && reply->kind == CONTAINER_FAILED &&
           reply->step == CONTAINER_CREATE && !was_unseen(reply) &&
           drive_guest_time(call) > settling_ns;
}

static void on_settled(struct loop_timer *timer)
{
    drive_guest_hold(container_of(timer, struct drive_guest_call, settling));
}

static void hold_when_settled(struct drive_guest_call *call)
{
    call->is_second = true;
    loop_timer_start(call->context->loop, &call->settling, settling_ns, on_settled);
}

/* The mount point may be spelled as in a call that was cut off, and then kata-agent mounts nothing.
 * Another disk that is mounted there is still there at the second try. */
static bool has_old_spelling(const struct drive_guest_call *call,
                             const struct drive_guest_line *line)
{
    return call->act == DRIVE_GUEST_MOUNT && !call->is_second &&
           line->status == STATUS_FAILED_PRECONDITION && !line->is_mounted;
}

static void on_held(struct container_run *run, const struct container_reply *reply, void *userdata)
{
    struct drive_guest_call *call = userdata;
    enum status_code status = status_of_hold(call, reply);
    struct error error = reply->error;
    struct drive_guest_line line = {0};
    bool held = reply->held, left = reply->left, is_refused = was_refused_at_first(call, reply);

    if (status == STATUS_OK &&
        drive_guest_line_parse(reply->output, reply->output_length, &line, &error) < 0)
        status = STATUS_FAILED_PRECONDITION;
    else if (status == STATUS_OK && line.status != STATUS_OK) {
        status = line.status;
        error = line.error;
    }
    explain_unseen(reply, &error);
    spell_vm_path(call, &error);
    call->container = container_run_free(run);
    if (is_refused) {
        remove_directory(call);
        hold_when_settled(call);
    } else if (call->act == DRIVE_GUEST_UNMOUNT) {
        held_again(call, held, left, status == STATUS_OK);
    } else if (status == STATUS_OK && held) {
        call->reply.guest = DRIVE_IN_GUEST_MOUNTED;
        (void)snprintf(call->reply.device, sizeof(call->reply.device), "%s", line.device);
        drive_guest_remark_walk(call, &line.walk);
        drive_guest_finish(call);
    } else if (held && has_old_spelling(call, &line)) {
        call->is_second = true;
        drive_guest_remove_holder(call);
    } else if (held) {
        undo(call, status, error.text);
    } else {
        if (!left) {
            remove_directory(call);
            call->reply.guest = DRIVE_IN_GUEST_ABSENT;
        }
        drive_guest_fail(call, status == STATUS_OK ? STATUS_FAILED_PRECONDITION : status,
                         error.text[0] ? error.text : "the drive's container has ended");
    }
}

static int start_holding(struct drive_guest_call *call, struct error *error)
{
    cleanup(fd_closep) int program = -1;
    cleanup(freep) struct drive_mount_request *mount = calloc(1, sizeof(*mount));
    const char *options[CONTAINER_STORAGE_OPTIONS + 1];
    const char *const volume_paths[] = {call->drive.request.vm_path, NULL};
    char directory[HELPER_GUEST_PATH_BYTES], mount_point[DRIVE_PATH_CHARS + SPELLINGS + 1];
    struct holder holder;
    struct container_storage storage;
    struct container_request request;
    int r = mount ? drive_guest_fill_mount(call, mount) : -ENOMEM;

    if (r == 0) {
        spell_mount_point(call, mount_point);
        r = fill_storage(call, &storage, options, mount, mount_point);
    }
    if (r < 0)
        return error_set_errno(error, r, "the mount cannot be described");
    r = helper_program_open(call->context->config, &program, error);
    if (r == 0)
        r = helper_share_place(call->share, call->drive.serial, program, error);
    if (r != 0)
        return -EIO;
    fill_holder(call, mount, &holder);
    helper_share_guest_path(call->sandbox.runtime, call->drive.serial, directory);
    request = describe(call, CONTAINER_HOLD, directory);
    request.arguments = holder.argument;
    request.files_of_others =
        true; /* also to open a root directory that only its tenant may read */
    request.volume_paths = volume_paths;
    request.storage = &storage;
    r = container_run_new(call->context->loop, &request, on_held, call, &call->container);
    return r < 0 ? error_set_errno(error, r, "cannot have a container created") : 0;
}

void drive_guest_hold(struct drive_guest_call *call)
{
    struct error error;

    if (start_holding(call, &error) == 0)
        return;
    if (call->act == DRIVE_GUEST_UNMOUNT)
        drive_guest_finish(call); /* the reply already reports that somebody has the disk */
    else
        drive_guest_fail(call, STATUS_FAILED_PRECONDITION, error.text);
}

/* The drive has to be as it was before the detach, so that the next detach begins with its
 * container. A slow guest may have used up the call's time, so it is restarted. */
void drive_guest_hold_again(struct drive_guest_call *call)
{
    drive_guest_begin_time(call);
    drive_guest_hold(call);
}
