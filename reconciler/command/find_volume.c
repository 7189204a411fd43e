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

#include "config/config.h"
#include "lib/base64url.h"
#include "lib/path.h"
#include "lib/sha256.h"
#include "observe/observe.h"
#include "reconciler/command/clients_state.h"
#include "reconciler/core/context.h"
#include "store/store.h"

/* ---- by its path ---- */

/* The metadata may be so young that the watch has not reported it yet. */
static int look_for_entries(struct clients *clients, const char *target_path)
{
    const size_t length = strlen(target_path);
    char hash[SHA256_HEX_BYTES], encoded[STORE_KEY_BYTES];
    int r = 0;

    sha256_hex(target_path, length, hash);
    if (length <= BASE64URL_PATH_BYTES)
        base64url_encode(target_path, length, encoded);
    for (enum volume_layout layout = LAYOUT_KATA; layout <= LAYOUT_CRUST; layout++) {
        if (r == 0 && length <= BASE64URL_PATH_BYTES)
            r = clients->options.core->observe_entry(clients->options.userdata, layout, encoded);
        if (r == 0)
            r = clients->options.core->observe_entry(clients->options.userdata, layout, hash);
    }
    return r;
}

/* A path that only the client knows may belong to an unresolved name. */
static int learn_and_find(struct clients *clients, const char *target_path, int64_t *ret_volume_id)
{
    int r = store_begin(clients->context->store);

    if (r == 0)
        r = look_for_entries(clients, target_path);
    if (r == 0)
        r = clients->options.core->resolve_path(clients->options.userdata, target_path);
    if (r == 0)
        r = store_find_volume(clients->context->store, target_path, ret_volume_id);
    return store_end(clients->context->store, r);
}

static int find_by_path(struct clients *clients, const char *target_path, int64_t *ret_volume_id)
{
    int r = store_find_volume(clients->context->store, target_path, ret_volume_id);

    return r == 0 && !*ret_volume_id ? learn_and_find(clients, target_path, ret_volume_id) : r;
}

/* ---- by its sandbox and device ---- */

struct search {
    struct clients *clients;
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
    int r = store_get_volume(search->clients->context->store, volume_id, &volume);

    if (r < 0)
        return r;
    if (r == STORE_NO_VOLUME || !is_device(search, &volume))
        return 0;
    if (search->matches++ == 0)
        search->volume_id = volume_id;
    return 0;
}

/* Volumes in a sandbox come first; without any, one that no sandbox has yet. */
static int search_all(struct search *search)
{
    struct store *store = search->clients->context->store;
    int r = store_each_bound_volume(store, compare, search);

    return r == 0 && search->matches == 0 ? store_each_volume(store, compare, search) : r;
}

/* TARGET_AMBIGUOUS, without a sandbox. */
static int find_by_device(struct clients *clients, const struct reconciler_target *target,
                          int64_t *ret_volume_id)
{
    struct search search = {.clients = clients, .target = target};
    int r;

    search.is_there =
        path_stat_in_root(clients->context->root, target->device, &search.device) == 0;
    if (target->sandbox_id)
        r = store_each_volume_of_sandbox(clients->context->store, target->sandbox_id, compare,
                                         &search);
    else
        r = search_all(&search);
    if (r == 0 && !target->sandbox_id && search.matches > 1)
        return TARGET_AMBIGUOUS;
    if (r == 0)
        *ret_volume_id = search.volume_id;
    return r;
}

static enum status_code check_device(const struct reconciler_target *target, struct error *error)
{
    if (target->sandbox_id && !observe_is_sandbox_id(target->sandbox_id))
        return answer_refuse(error, ANSWER_BAD_REQUEST, "sandbox_id is missing, or is none");
    if (target->device[0] != '/')
        return answer_refuse(error, ANSWER_BAD_REQUEST,
                             "host_volume_id is missing, or is no device of the host");
    return STATUS_OK;
}

/* ---- any way ---- */

static enum status_code check(const struct reconciler_target *target, struct error *error)
{
    if (target->volume_id)
        return STATUS_OK;
    return target->target_path ? check_target_path(target->target_path, error)
                               : check_device(target, error);
}

/* 0 with an id or 0, TARGET_AMBIGUOUS, -errno. */
static int find(struct clients *clients, const struct reconciler_target *target,
                int64_t *ret_volume_id)
{
    struct store_volume volume;
    int r;

    if (target->target_path)
        return find_by_path(clients, target->target_path, ret_volume_id);
    if (!target->volume_id)
        return find_by_device(clients, target, ret_volume_id);
    r = store_get_volume(clients->context->store, target->volume_id, &volume);
    if (r == 0)
        *ret_volume_id = target->volume_id;
    return r == STORE_NO_VOLUME ? 0 : r;
}

enum status_code find_volume(struct clients *clients, const struct reconciler_target *target,
                             enum answer unknown, int64_t *ret_volume_id, struct error *error)
{
    enum status_code code = check(target, error);
    int r;

    if (code != STATUS_OK)
        return code;
    if (!clients->options.context->synced)
        return answer_refuse(error, ANSWER_NOT_SYNCED, "the first scan is not done yet");
    r = find(clients, target, ret_volume_id);
    if (r == TARGET_AMBIGUOUS)
        return answer_refuse(error, ANSWER_AMBIGUOUS_DEVICE,
                             "more than one volume is on this device: name its sandbox too");
    if (r < 0)
        return answer_refuse(error, ANSWER_DATABASE, "the database fails: %s (%s)",
                             store_error_text(clients->context->store), strerror(-r));
    if (*ret_volume_id)
        return STATUS_OK;
    return answer_refuse(error, target->volume_id ? ANSWER_UNKNOWN_NUMBER : unknown,
                         "there is no such volume here");
}
