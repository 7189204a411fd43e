/* SPDX-License-Identifier: Apache-2.0 */
/* find_volume.c - the volume that a client means.
 *
 * A CSI driver names it by its path, the kubelet (as CRUST has it) by the sandbox and the host's
 * device, an operator by its number. A device is the same one if the names are, or if both names
 * lead to it.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "lib/encode.h"
#include "lib/path.h"
#include "observe/observe.h"
#include "reconciler/core/reconciler_internal.h"

/* The metadata may be so young that the watch has not reported it yet, and a path that only the
 * client knows may belong to an unresolved name. */
static int find_by_path(struct reconciler *reconciler, const char *target_path,
                        int64_t *ret_volume_id)
{
    const struct context *context = &reconciler->context;
    const size_t length = strlen(target_path);
    char hash[SHA256_HEX_BYTES], encoded[STORE_KEY_BYTES];
    int r = store_find_volume(context->store, target_path, ret_volume_id);

    if (r < 0 || *ret_volume_id)
        return r;
    sha256_hex(target_path, length, hash);
    if (length <= BASE64URL_PATH_BYTES)
        base64url_encode(target_path, length, encoded);
    r = store_begin(context->store);
    for (enum volume_layout layout = LAYOUT_KATA; layout <= LAYOUT_CRUST; layout++) {
        if (r == 0 && length <= BASE64URL_PATH_BYTES)
            r = observer_observe_entry(context, tree_of_layout(layout), encoded);
        if (r == 0)
            r = observer_observe_entry(context, tree_of_layout(layout), hash);
    }
    if (r == 0)
        r = unresolved_offer(context, target_path, "api");
    if (r == 0)
        r = store_find_volume(context->store, target_path, ret_volume_id);
    return store_end(context->store, r);
}

struct search {
    struct reconciler *reconciler;
    const struct reconciler_target *target;
    bool is_there; /* the device that was named leads somewhere */
    struct stat device;
    unsigned matches;
    int64_t volume_id; /* the first of them */
};

enum { TARGET_AMBIGUOUS = 1 };

static bool is_device(const struct search *search, const struct store_volume *volume)
{
    if (strcmp(volume->device_path, search->target->device) == 0)
        return true;
    if (!search->is_there || !volume->device_id)
        return false;
    if (volume->device_kind == DEVICE_KIND_BLOCK)
        return S_ISBLK(search->device.st_mode) && major(search->device.st_rdev) == volume->major &&
               minor(search->device.st_rdev) == volume->minor;
    return S_ISREG(search->device.st_mode) && search->device.st_dev == volume->file_device &&
           search->device.st_ino == volume->inode;
}

static int compare(void *userdata, int64_t volume_id)
{
    struct search *search = userdata;
    struct store_volume volume;
    int r = store_get_volume(search->reconciler->context.store, volume_id, &volume);

    if (r < 0)
        return r;
    if (r == STORE_NO_VOLUME || !is_device(search, &volume))
        return 0;
    if (search->matches++ == 0)
        search->volume_id = volume_id;
    return 0;
}

/* TARGET_AMBIGUOUS, without a sandbox. Volumes in a sandbox come first; without any, one that no
 * sandbox has yet. */
static int find_by_device(struct reconciler *reconciler, const struct reconciler_target *target,
                          int64_t *ret_volume_id)
{
    struct store *store = reconciler->context.store;
    struct search search = {.reconciler = reconciler, .target = target};
    int r;

    search.is_there =
        path_stat_in_root(reconciler->context.root, target->device, &search.device) == 0;
    if (target->sandbox_id)
        r = store_each_volume(store, STORE_SEARCH(OF_SANDBOX, .name = target->sandbox_id), compare,
                              &search);
    else
        r = store_each_volume(store, STORE_SEARCH(BOUND), compare, &search);
    if (r == 0 && !target->sandbox_id && search.matches == 0)
        r = store_each_volume(store, STORE_SEARCH(ALL), compare, &search);
    if (r == 0 && !target->sandbox_id && search.matches > 1)
        return TARGET_AMBIGUOUS;
    if (r == 0)
        *ret_volume_id = search.volume_id;
    return r;
}

enum status_code find_volume(struct reconciler *reconciler, const struct reconciler_target *target,
                             enum answer unknown, int64_t *ret_volume_id, struct error *error)
{
    struct store *store = reconciler->context.store;
    const bool by_path = target->target_path && !target->volume_id;
    const bool by_device = !target->target_path && !target->volume_id;
    struct store_volume volume;
    int r;

    if (by_path && check_target_path(target->target_path, error) != STATUS_OK)
        return answer_code(ANSWER_BAD_REQUEST);
    if (by_device && target->sandbox_id && !observe_is_sandbox_id(target->sandbox_id))
        return answer_refuse(error, ANSWER_BAD_REQUEST, "sandbox_id is missing, or is none");
    if (by_device && target->device[0] != '/')
        return answer_refuse(error, ANSWER_BAD_REQUEST,
                             "host_volume_id is missing, or is no device of the host");
    if (!reconciler->context.synced)
        return answer_refuse(error, ANSWER_NOT_SYNCED, "the first scan is not done yet");
    if (target->target_path) {
        r = find_by_path(reconciler, target->target_path, ret_volume_id);
    } else if (target->volume_id) {
        unknown = ANSWER_UNKNOWN_NUMBER;
        r = store_get_volume(store, target->volume_id, &volume);
        if (r == 0)
            *ret_volume_id = target->volume_id;
        else if (r == STORE_NO_VOLUME)
            r = 0;
    } else {
        r = find_by_device(reconciler, target, ret_volume_id);
    }
    if (r < 0)
        return answer_refuse(error, ANSWER_DATABASE, "the database fails: %s (%s)",
                             store_error_text(store), strerror(-r));
    if (r == TARGET_AMBIGUOUS)
        return answer_refuse(error, ANSWER_AMBIGUOUS_DEVICE,
                             "more than one volume is on this device: name its sandbox too");
    if (*ret_volume_id)
        return STATUS_OK;
    return answer_refuse(error, unknown, "there is no such volume here");
}

/* The device, with what a LUKS header takes of its lower device: to a driver that made the
 * header itself, those bytes are the volume's. */
uint64_t volume_usable_bytes(const struct context *context, const struct store_volume *volume)
{
    struct observed_layer layer[OBSERVE_LAYERS];
    struct observed_device device;
    uint64_t bytes = volume->device_bytes;
    unsigned count, at = 0;

    if (volume->device_kind != DEVICE_KIND_BLOCK ||
        observe_device_number(context->sysfs, volume->major, volume->minor, &device) != OBSERVED)
        return bytes;
    count = observe_stack(context->sysfs, &device, layer);
    for (unsigned i = 1; i < count && layer[at].kind == LAYER_CRYPT; i++)
        if (layer[i].above == at) {
            at = i;
            bytes = layer[i].device.size_bytes;
        }
    return bytes > volume->device_bytes ? bytes : volume->device_bytes;
}
