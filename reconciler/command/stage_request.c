/* SPDX-License-Identifier: Apache-2.0 */
/* stage_request.c - checks a CSI driver's request and writes it as mountInfo.json.
 *
 * The volume type is written as directvol. Kata's Go runtime takes any word, its Rust runtime fails
 * the container for "block", the word of Kata's documents (src/runtime-rs/crates/resource/src/
 * volume/rawblock_volume.rs).
 */
#include "reconciler/command/stage_request.h"

#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/secret.h"
#include "observe/observe.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/clients_state.h"
#include "store/store.h"

#define VOLUME_TYPE "directvol"

enum { FS_TYPE_CHARS = 64 };

/* ---- what is asked ---- */

enum status_code check_target_path(const char *path, struct error *error)
{
    if (!*path)
        error_set(error, 0, "the target path is missing");
    else if (*path != '/')
        error_set(error, 0, "the target path is not absolute");
    else if (strlen(path) >= STORE_TARGET_BYTES)
        error_set(error, 0, "the target path is longer than %d bytes", STORE_TARGET_BYTES - 1);
    else if (!path_is_clean(path))
        error_set(error, 0,
                  "the target path has empty, \".\" or \"..\" components, and so is "
                  "not as the runtime will look for it");
    else
        return STATUS_OK;
    return answer_code(ANSWER_BAD_REQUEST);
}

/* Kata's layout has the path in the directory's name. Where both layouts are wanted, a path that
 * fits into one of them only is refused: Kata would take the empty directory for the volume. */
static enum status_code check_layout(const char *path, enum config_stage_layout layout,
                                     struct error *error)
{
    if (layout == STAGE_CRUST || strlen(path) <= BASE64URL_PATH_BYTES)
        return STATUS_OK;
    return answer_refuse(
        error, ANSWER_BAD_REQUEST,
        "the target path is longer than %d bytes, the most that a directory's name can "
        "hold in base64, as Kata's layout has it: crust.stage_layout = crust stages "
        "longer ones, for a runtime that looks there",
        BASE64URL_PATH_BYTES);
}

/* A missing device may still appear. A disk image is refused, too: no VMM follows when it grows, so
 * the volume could never be resized. */
static enum status_code check_device(int root, const char *device, struct error *error)
{
    struct stat status;

    if (!*device)
        error_set(error, 0, "the device is missing");
    else if (*device != '/')
        error_set(error, 0, "the device is not an absolute path");
    else if (path_stat_in_root(root, device, &status) < 0 || S_ISBLK(status.st_mode))
        return STATUS_OK;
    else if (S_ISREG(status.st_mode))
        error_set(
            error, 0,
            "%.200s is a regular file and no block device, so it could not be resized: attach "
            "it to a loop device (losetup --find --show) and name that",
            device);
    else
        error_set(error, 0, "%.200s is no block device", device);
    return answer_code(ANSWER_BAD_REQUEST);
}

static bool is_word(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    return *text && strlen(text) <= FS_TYPE_CHARS && strspn(text, letters) == strlen(text);
}

/* The largest group id there is; -1 means none to the kernel. */
static bool is_group(const char *text)
{
    uint64_t number = 0;

    if (!*text || strlen(text) > 10 || strspn(text, "0123456789") != strlen(text))
        return false;
    for (; *text; text++)
        number = number * 10 + (uint64_t)(*text - '0');
    return number < UINT32_MAX;
}

/* The error names the option, but never its value. */
static enum status_code check_option(const char *option, struct error *error)
{
    size_t shown = secret_shown_length(option), part = shown;

    if (!*option)
        return answer_refuse(error, ANSWER_BAD_REQUEST, "a mount option is empty");
    if (!option[shown])
        return STATUS_OK;
    while (part > 0 && option[part - 1] != ',')
        part--;
    return answer_refuse(
        error, ANSWER_BAD_REQUEST,
        "mount option %.*s carries a secret, which mountInfo.json would keep in plain "
        "text: give it to the guest by other means",
        (int)strcspn(option + part, "="), option + part);
}

enum status_code stage_request_check(int root, enum config_stage_layout layout,
                                     const struct reconciler_stage *stage, struct error *error)
{
    enum status_code code = check_target_path(stage->target_path, error);

    if (code == STATUS_OK)
        code = check_layout(stage->target_path, layout, error);
    if (code == STATUS_OK)
        code = check_device(root, stage->device, error);
    if (code != STATUS_OK)
        return code;
    if (!is_word(stage->fs_type))
        return answer_refuse(error, ANSWER_BAD_REQUEST,
                             "the file system type is missing, or no name");
    if (stage->group && !is_group(stage->group))
        return answer_refuse(error, ANSWER_BAD_REQUEST, "the group is not a number, or too large");
    if (stage->group_policy && !stage->group)
        return answer_refuse(error, ANSWER_BAD_REQUEST,
                             "a policy for changing the group, without a group");
    if (stage->sandbox_id && !observe_is_sandbox_id(stage->sandbox_id))
        return answer_refuse(error, ANSWER_BAD_REQUEST, "sandbox_id is missing, or is none");
    for (unsigned i = 0; code == STATUS_OK && i < stage->options; i++)
        code = check_option(stage->option[i], error);
    return code;
}

/* ---- mountInfo.json ---- */

/* Mount options of SELinux (context_mounts in mount(8)). A kernel without SELinux gives them to the
 * file system, which refuses them. */
bool stage_option_is_label(const char *option)
{
    static const char *const names[] = {"context=", "fscontext=", "defcontext=", "rootcontext="};

    for (size_t i = 0; i < array_length(names); i++)
        if (strncmp(option, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

bool stage_request_has_label(const struct reconciler_stage *stage)
{
    for (unsigned i = 0; i < stage->options; i++)
        if (stage_option_is_label(stage->option[i]))
            return true;
    return false;
}

bool stage_request_is_read_only(const struct reconciler_stage *stage)
{
    bool read_only = false;

    for (unsigned i = 0; i < stage->options; i++)
        read_only = observe_read_only(read_only, stage->option[i]);
    return read_only;
}

/* The kubelet changes no file of a read-only volume either. Kata's agent would try, and the
 * container would not start (src/agent/src/storage/mod.rs). */
static void append_group(struct buffer *text, const struct reconciler_stage *stage)
{
    const bool has_group = stage->group && !stage_request_is_read_only(stage);

    buffer_append_text(text, ",\"metadata\":{");
    if (has_group)
        json_append_member(text, "fsGroup", stage->group);
    if (has_group && stage->group_policy)
        json_append_member(text, "fsGroupChangePolicy", stage->group_policy);
    buffer_append_text(text, "}");
}

static void append_options(struct buffer *text, const struct reconciler_stage *stage,
                           bool with_labels)
{
    bool is_first = true;

    buffer_append_text(text, ",\"options\":[");
    for (unsigned i = 0; i < stage->options; i++) {
        if (!with_labels && stage_option_is_label(stage->option[i]))
            continue;
        buffer_append_text(text, is_first ? "" : ",");
        json_append_string(text, stage->option[i]);
        is_first = false;
    }
    buffer_append_text(text, "]");
}

int stage_request_write(const struct reconciler_stage *stage, bool with_labels, struct buffer *text)
{
    buffer_append_text(text, "{");
    json_append_member(text, "volume-type", VOLUME_TYPE);
    json_append_member(text, "device", stage->device);
    json_append_member(text, "fstype", stage->fs_type);
    append_group(text, stage);
    append_options(text, stage, with_labels);
    return buffer_append_text(text, "}");
}
