/* SPDX-License-Identifier: Apache-2.0 */
/* stage_check.c - checks a driver's claims about a volume against this node.
 *
 * A second writer destroys a file system that the host, another device or another guest uses, and
 * the kernel does not stop a VMM from becoming one. So the error names the holder, and the driver
 * may call again later. A volume that is already staged is checked too, because the kubelet repeats
 * its calls whenever it is restarted.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "lib/encode.h"
#include "observe/observe.h"
#include "reconciler/core/reconciler_internal.h"
#include "store/devices.h"

static enum status_code check_host(struct reconciler *reconciler, const char *path,
                                   const struct observed_device *device, struct error *error)
{
    const char *where =
        devices_host_use_for_client(&reconciler->devices, device->major, device->minor);
    char holder[192];
    int r;

    if (where)
        return answer_refuse(error, ANSWER_DEVICE_HELD, "%s is in use on the host: %s", path,
                             where);
    r = observe_holder(reconciler->context.sysfs, device->major, device->minor, holder,
                       sizeof(holder));
    if (r == OBSERVED)
        return answer_refuse(error, ANSWER_DEVICE_HELD, "%s is held on the host by %s", path,
                             holder);
    return r < 0 ? answer_refuse(error, ANSWER_DEVICE_HELD, "cannot tell who holds %s: %s", path,
                                 strerror(-r))
                 : STATUS_OK;
}

struct search {
    struct reconciler *reconciler;
    const struct reconciler_stage *stage;
    const struct observed_device *device;
    bool read_only;
    struct error *error;
    enum status_code code;
};

#define IS_SAME(one, its_kind, device)                                                             \
    ((its_kind) == (device)->kind &&                                                               \
     ((device)->kind == DEVICE_KIND_BLOCK                                                          \
          ? (one)->major == (device)->major && (one)->minor == (device)->minor                     \
          : (one)->file_device == (device)->file_device && (one)->inode == (device)->inode))

/* A volume whose path is not known yet goes by its key, a hash of the path. */
static bool is_itself(const struct search *search, const char *name)
{
    const char *target_path = search->stage->target_path;
    char hash[SHA256_HEX_BYTES];

    sha256_hex(target_path, strlen(target_path), hash);
    return strcmp(name, target_path) == 0 || strcmp(name, hash) == 0;
}

/* 1: this one has it. */
static int compare_volume(void *userdata, int64_t volume_id)
{
    struct search *search = userdata;
    struct store_volume volume;
    const char *name;
    int r = store_get_volume(search->reconciler->context.store, volume_id, &volume);

    if (r != 0)
        return r < 0 ? r : 0;
    name = volume.target_path[0] ? volume.target_path : volume.key;
    if (volume.live_sandboxes == 0 || !volume.device_id ||
        !IS_SAME(&volume, volume.device_kind, search->device) ||
        (!volume.orphaned && is_itself(search, name)) || (volume.read_only && search->read_only))
        return 0;
    search->code =
        answer_refuse(search->error, ANSWER_DEVICE_HELD, "%s is in %s sandbox%s%s as volume %s",
                      search->stage->device, volume.orphaned ? "an orphaned" : "a live",
                      volume.sandbox_id[0] ? " " : "", volume.sandbox_id, name);
    return 1;
}

/* 1: this one has it. */
static int compare_staged(struct search *search, const char *target_path, bool read_only)
{
    const struct context *context = &search->reconciler->context;
    struct observed_publish_path path;
    struct observed_kubelet kubelet;

    if (is_itself(search, target_path) || (read_only && search->read_only))
        return 0;
    /* A pod is gone only if its kubelet's directory is seen to have others. Of a path that is not
     * the kubelet's nothing is known: its driver unstages it. */
    if (node_publish_path(context, target_path, &path) == 0 && path.is_publish_path &&
        observe_kubelet(context->root,
                        config_list_item(&context->config->paths.kubelet, path.kubelet),
                        path.pod_uid, path.pv, &kubelet) == 0 &&
        !kubelet.pod && kubelet.canary[0] && !kubelet.elsewhere)
        return 0;
    search->code = answer_refuse(search->error, ANSWER_DEVICE_HELD, "%s is staged at %s%s%s",
                                 search->stage->device, target_path,
                                 path.is_publish_path ? " for pod " : "", path.pod_uid);
    return 1;
}

/* 1: this one has it. */
static int compare_user(void *userdata, const struct store_disk_user *user)
{
    struct search *search = userdata;
    const char *sandbox_id = search->stage->sandbox_id;
    const bool is_drive = user->kind == STORE_DISK_USER_DRIVE;

    if (user->kind == STORE_DISK_USER_ORPHAN) {
        search->code =
            answer_refuse(search->error, ANSWER_DEVICE_HELD,
                          "process %s, the VMM of the orphaned sandbox %s, has %s open: "
                          "it ends by kill %s",
                          user->name, user->sandbox_id, search->stage->device, user->name);
        return 1;
    }
    if (user->kind == STORE_DISK_USER_STAGED)
        return compare_staged(search, user->name, !user->writable);
    if (user->kind == STORE_DISK_USER_VOLUME || (!user->writable && search->read_only))
        return 0;
    if (!is_drive && sandbox_id && strcmp(sandbox_id, user->sandbox_id) == 0 &&
        is_itself(search, user->name))
        return 0; /* an unstaged volume, for the sandbox that has it */
    search->code = answer_refuse(search->error, ANSWER_DEVICE_HELD, "%s is in sandbox %s as %s %s",
                                 search->stage->device, user->sandbox_id,
                                 is_drive ? "drive" : "the unstaged volume", user->name);
    return 1;
}

/* A volume that is published into a sandbox may be a drive there already. One that is only staged
 * is for a container that would get the disk a second time. */
static enum status_code check_other_users(struct reconciler *reconciler,
                                          const struct reconciler_stage *stage,
                                          const struct observed_device *device, struct error *error)
{
    const bool is_block = device->kind == DEVICE_KIND_BLOCK;
    const struct store_drive_mount_disk disk = {
        .kind = device->kind,
        .major = device->major,
        .minor = device->minor,
        .diskseq = device->diskseq,
        .file_device = device->kind == DEVICE_KIND_FILE ? device->file_device : 0,
        .inode = device->kind == DEVICE_KIND_FILE ? device->inode : 0,
    };
    struct store *store = reconciler->context.store;
    struct search search = {reconciler, stage,    device, stage_request_is_read_only(stage),
                            error,      STATUS_OK};
    char own[DRIVE_ID_CHARS + 1];
    int r;

    publish_drive_id(stage->target_path, own);
    /* First those that name the process of an orphan. */
    r = store_each_disk_user(store, &disk, stage->sandbox_id ? own : NULL, compare_user, &search);
    if (r == 0 && is_block)
        r = store_each_volume(
            store, STORE_SEARCH(OF_DEVICE, .major = device->major, .minor = device->minor),
            compare_volume, &search);
    else if (r == 0)
        r = store_each_volume(store, STORE_SEARCH(BOUND), compare_volume, &search);
    for (const struct staging *one = reconciler->stagings.first; r == 0 && one; one = one->next)
        if (one->device.name[0] && IS_SAME(&one->device, one->device.kind, device))
            r = compare_staged(&search, one->target_path, one->read_only);
    return r < 0 ? answer_database_fails(store, error) : search.code;
}

static enum status_code check_file_system(struct reconciler *reconciler, const char *fs_type,
                                          struct error *error)
{
    struct reconciler_names known;
    char list[128] = "";
    int r = reconciler_find_file_systems(reconciler, &known);

    if (r < 0)
        return answer_database_fails(reconciler->context.store, error);
    for (unsigned i = 0; i < known.count; i++) {
        const size_t length = strlen(list);

        if (strcmp(known.name[i], fs_type) == 0)
            return STATUS_OK;
        (void)snprintf(list + length, sizeof(list) - length, "%s%s", i ? ", " : "", known.name[i]);
    }
    return answer_refuse(error, ANSWER_FILE_SYSTEM,
                         "no guest here mounts %s, they mount %s (crust.file_systems)", fs_type,
                         list[0] ? list : "none");
}

enum status_code stage_check(struct reconciler *reconciler, const struct reconciler_stage *stage,
                             struct observed_device *ret_device, struct error *error)
{
    struct store *store = reconciler->context.store;
    enum status_code code = check_file_system(reconciler, stage->fs_type, error);
    int r = OBSERVED_ABSENT;
    uint64_t start_ns;
    pid_t pid;

    if (code == STATUS_OK && !reconciler->context.synced)
        code = answer_refuse(error, ANSWER_NOT_SYNCED, "the first scan is not done yet");
    if (code == STATUS_OK && stage->sandbox_id) {
        if (store_find_vmm(store, stage->sandbox_id, &pid, &start_ns) < 0)
            return answer_database_fails(store, error);
        if (!pid) { /* observed before the next call */
            work_queue_add_sandbox(reconciler->context.queue, stage->sandbox_id);
            code = answer_refuse(error, ANSWER_UNKNOWN_SANDBOX, "no live sandbox %s is known here",
                                 stage->sandbox_id);
        }
    }
    if (code == STATUS_OK)
        r = observe_device_path(reconciler->context.root, reconciler->context.sysfs, stage->device,
                                ret_device);
    if (r != OBSERVED)
        return code; /* a device may appear after staging; it is checked then */
    if (ret_device->kind == DEVICE_KIND_BLOCK)
        code = check_host(reconciler, stage->device, ret_device, error);
    return code == STATUS_OK ? check_other_users(reconciler, stage, ret_device, error) : code;
}
