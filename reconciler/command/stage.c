/* stage.c - a volume's metadata written and taken away for a CSI driver.
 *
 * What the driver asks is checked, put into mountInfo.json's words, put in place as a whole, looked
 * at again by the reader that also reads what others write, and committed to disk with its line in
 * the journal; only then is it answered. So a reply means that the runtime will find the volume and
 * that an auditor will find who asked for it. Killed anywhere before that, nothing half is left:
 * the directory is there or not, the next scan finds it, and the driver asks again.
 *
 * The volume type is written as directvol. Kata's Go runtime takes any word, its Rust runtime fails
 * the container for "block", the word of Kata's documents (src/runtime-rs/crates/resource/src/
 * volume/rawblock_volume.rs).
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "lib/base64url.h"
#include "lib/cleanup.h"
#include "lib/json.h"
#include "lib/log.h"
#include "lib/path.h"
#include "lib/sha256.h"
#include "reconciler/clients.h"
#include "reconciler/command/stage_files.h"
#include "reconciler/fallback.h"
#include "reconciler/internal.h"
#include "reconciler/observe/observe.h"

#define VOLUME_TYPE "directvol"

enum { FS_TYPE_CHARS = 64, TEXT_BYTES = 32 * 1024 };

/* ---- what is asked ---- */

static bool is_clean_path(const char *path)
{
    while (*path == '/') {
        size_t length = strcspn(++path, "/");

        if (length == 0 || (length == 1 && path[0] == '.') ||
            (length == 2 && path[0] == '.' && path[1] == '.'))
            return false;
        path += length;
    }
    return true;
}

enum status_code command_check_target_path(const char *path, struct error *error)
{
    if (!*path)
        error_set(error, 0, "the target path is missing");
    else if (*path != '/')
        error_set(error, 0, "the target path is not absolute");
    else if (strlen(path) > BASE64URL_PATH_BYTES)
        error_set(error, 0,
                  "the target path is longer than %d bytes, the most that a "
                  "directory's name can hold in base64",
                  BASE64URL_PATH_BYTES);
    else if (!is_clean_path(path))
        error_set(error, 0,
                  "the target path has empty, \".\" or \"..\" components, and so is "
                  "not as the runtime will look for it");
    else
        return STATUS_OK;
    return STATUS_INVALID_ARGUMENT;
}

/* What is not there yet may come; what is there and can hold no file system is a mistake. */
static enum status_code check_device(const struct reconciler *reconciler, const char *device,
                                     struct error *error)
{
    struct stat status;

    if (!*device)
        error_set(error, 0, "the device is missing");
    else if (*device != '/')
        error_set(error, 0, "the device is not an absolute path");
    else if (path_stat_in_root(reconciler->root, device, &status) == 0 &&
             !S_ISBLK(status.st_mode) && !S_ISREG(status.st_mode))
        error_set(error, 0, "the device is neither a block device nor a disk image");
    else
        return STATUS_OK;
    return STATUS_INVALID_ARGUMENT;
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

static enum status_code check_stage(const struct reconciler *reconciler,
                                    const struct reconciler_stage *stage, struct error *error)
{
    enum status_code code = command_check_target_path(stage->target_path, error);

    if (code == STATUS_OK)
        code = check_device(reconciler, stage->device, error);
    if (code != STATUS_OK)
        return code;
    if (!is_word(stage->fs_type))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the file system type is missing, or no name");
    if (stage->group && !is_group(stage->group))
        return error_set(error, STATUS_INVALID_ARGUMENT, "the group is not a number, or too large");
    if (stage->group_policy && !stage->group)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a policy for changing the group, without a group");
    if (stage->sandbox_id && !observe_is_sandbox_id(stage->sandbox_id))
        return error_set(error, STATUS_INVALID_ARGUMENT, "sandbox_id is missing, or is none");
    for (unsigned i = 0; i < stage->options; i++)
        if (!*stage->option[i])
            return error_set(error, STATUS_INVALID_ARGUMENT, "a mount option is empty");
    return STATUS_OK;
}

/* ---- mountInfo.json ---- */

static int append_member(struct buffer *text, const char *name, const char *value)
{
    int r = buffer_append_format(text, "\"%s\":", name);

    return r < 0 ? r : json_append_string(text, value);
}

static int append_group(struct buffer *text, const struct reconciler_stage *stage)
{
    int r = buffer_append_text(text, ",\"metadata\":{");

    if (r == 0 && stage->group)
        r = append_member(text, "fsGroup", stage->group);
    if (r == 0 && stage->group_policy)
        r = buffer_append_text(text, ",");
    if (r == 0 && stage->group_policy)
        r = append_member(text, "fsGroupChangePolicy", stage->group_policy);
    return r < 0 ? r : buffer_append_text(text, "}");
}

static int append_options(struct buffer *text, const struct reconciler_stage *stage)
{
    int r = buffer_append_text(text, ",\"options\":[");

    for (unsigned i = 0; r == 0 && i < stage->options; i++) {
        r = buffer_append_text(text, i ? "," : "");
        if (r == 0)
            r = json_append_string(text, stage->option[i]);
    }
    return r < 0 ? r : buffer_append_text(text, "]}");
}

/* 0, -EMSGSIZE, -ENOMEM. */
static int append_mount_info(struct buffer *text, const struct reconciler_stage *stage)
{
    int r = buffer_append_text(text, "{\"volume-type\":\"" VOLUME_TYPE "\",");

    if (r == 0)
        r = append_member(text, "device", stage->device);
    if (r == 0)
        r = buffer_append_text(text, ",");
    if (r == 0)
        r = append_member(text, "fstype", stage->fs_type);
    if (r == 0)
        r = append_group(text, stage);
    return r < 0 ? r : append_options(text, stage);
}

/* ---- where ---- */

struct layout {
    enum reconciler_tree tree;
    const char *name;
    bool is_hashed;            /* the key is a SHA-256 */
    char key[STORE_KEY_BYTES]; /* of the directory */
    char workshop[PATH_MAX];
    struct stage_place place;
};

/* The kind of names that a runtime looks for in it. */
static bool has_hashed_names(enum reconciler_tree tree)
{
    return tree == TREE_CRUST_VOLUMES;
}

/* The working directory stands beside the trash, which is on the volumes' file system for the same
 * reason. */
static void make_layout(const struct reconciler *reconciler, enum reconciler_tree tree,
                        bool is_hashed, const char *target_path, struct layout *ret_layout)
{
    bool is_kata = tree == TREE_KATA_VOLUMES;
    const char *trash = look_trash_path(reconciler, is_kata ? STORE_KATA : STORE_CRUST);

    ret_layout->tree = tree;
    ret_layout->name = is_kata ? "kata" : "crust";
    ret_layout->is_hashed = is_hashed;
    if (is_hashed)
        sha256_hex(target_path, strlen(target_path), ret_layout->key);
    else
        base64url_encode(target_path, strlen(target_path), ret_layout->key);
    (void)snprintf(ret_layout->workshop, sizeof(ret_layout->workshop), "%.*s/.crust-stage",
                   (int)(strrchr(trash, '/') - trash), trash);
    ret_layout->place = (struct stage_place){
        .root = reconciler->root,
        .volumes = look_path(reconciler, tree),
        .workshop = ret_layout->workshop,
    };
}

/* ---- and then ---- */

static enum status_code say(enum status_code code, const struct error *why, struct error *error)
{
    *error = *why;
    return code;
}

/* What was done is read as it now stands and made durable, with a line in the journal (kind NULL:
 * without). ret_volume_id: whose path it is now; 0 nobody's. */
static int record(struct reconciler *reconciler, const struct layout *layout,
                  const char *target_path, const char *kind, int64_t *ret_volume_id)
{
    struct store *store = reconciler->store;
    int64_t before = 0, after = 0;
    char detail[64];
    int r = store_begin(store);

    (void)snprintf(detail, sizeof(detail), "{\"layout\":\"%s\"}", layout->name);
    if (r == 0)
        r = store_find_volume(store, target_path, &before);
    if (r == 0)
        r = look_at_entry(reconciler, layout->tree, layout->key);
    if (r == 0 && layout->is_hashed)
        r = hidden_offer_asked(reconciler, target_path);
    if (r == 0)
        r = store_find_volume(store, target_path, &after);
    if (r == 0 && kind)
        r = store_journal(store, kind, after ? after : before, NULL, NULL, detail);
    if (r == 0)
        r = store_commit_durable(store);
    if (r < 0) {
        store_rollback(store);
        reconciler_look_at_directory(reconciler, layout->tree, layout->key);
        return r;
    }
    *ret_volume_id = after;
    return 0;
}

static enum status_code not_recorded(const struct reconciler *reconciler, int r,
                                     struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE, "the database does not take it: %s (%s)",
                     store_error_text(reconciler->store), strerror(-r));
}

static enum status_code stage_in(struct reconciler *reconciler, enum reconciler_tree tree,
                                 const struct reconciler_stage *stage, const struct buffer *text,
                                 struct error *error)
{
    struct layout layout;
    struct store_volume volume;
    struct error why = {0};
    int64_t volume_id = 0;
    int r, done;

    make_layout(reconciler, tree, has_hashed_names(tree), stage->target_path, &layout);
    done = stage_files_put(
        &layout.place, layout.key,
        &(struct stage_content){buffer_text(text), text->length, stage->sandbox_id}, &why);
    if (done < 0)
        return say(STATUS_UNAVAILABLE, &why, error);
    if (done == STAGE_IN_THE_WAY)
        return say(STATUS_FAILED_PRECONDITION, &why, error);
    r = record(reconciler, &layout, stage->target_path, done == STAGE_DONE ? "volume_staged" : NULL,
               &volume_id);
    if (r < 0)
        return not_recorded(reconciler, r, error);
    if (!volume_id)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "crustd takes no more than %d volumes on a node", STORE_VOLUMES);
    r = store_get_volume(reconciler->store, volume_id, &volume);
    if (r < 0)
        return not_recorded(reconciler, r, error);
    if (volume.status != STORE_PRESENT)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the volume's directory has something in it that does not belong there: "
                         "see crustctl volume %" PRId64,
                         volume_id);
    log_info(&(struct log_ids){.volume = volume_id}, "staged in layout %s%s", layout.name,
             done == STAGE_UNCHANGED ? ", as it was" : "");
    return STATUS_OK;
}

enum status_code reconciler_stage(struct reconciler *reconciler,
                                  const struct reconciler_stage *stage, struct error *error)
{
    enum config_stage_layout layout = reconciler->config.crust.stage_layout;
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(TEXT_BYTES);
    enum status_code code = check_stage(reconciler, stage, error);

    if (code == STATUS_OK && append_mount_info(&text, stage) < 0)
        code = error_set(error, STATUS_INVALID_ARGUMENT, "all of it is more than %d bytes",
                         TEXT_BYTES);
    if (code == STATUS_OK)
        code = fallback_check_promise(reconciler, error);
    if (code == STATUS_OK && layout != STAGE_CRUST)
        code = stage_in(reconciler, TREE_KATA_VOLUMES, stage, &text, error);
    if (code == STATUS_OK && layout != STAGE_KATA)
        code = stage_in(reconciler, TREE_CRUST_VOLUMES, stage, &text, error);
    return code;
}

static enum status_code unstage_name(struct reconciler *reconciler, enum reconciler_tree tree,
                                     bool is_hashed, const char *target_path, struct error *error)
{
    struct layout layout;
    struct error why = {0};
    int64_t volume_id;
    int r, done;

    make_layout(reconciler, tree, is_hashed, target_path, &layout);
    done = stage_files_take(&layout.place, layout.key, &why);
    if (done < 0)
        return say(STATUS_UNAVAILABLE, &why, error);
    if (done == STAGE_UNCHANGED && is_hashed != has_hashed_names(tree))
        return STATUS_OK; /* there hardly ever is one */
    r = record(reconciler, &layout, target_path, done == STAGE_DONE ? "volume_unstaged" : NULL,
               &volume_id);
    if (r < 0)
        return not_recorded(reconciler, r, error);
    /* Also what a daemon that was killed here has left. */
    r = stage_files_sweep(&layout.place);
    if (r < 0 && r != -ENOENT)
        log_warning(NULL, "cannot empty %s: %s", layout.workshop, strerror(-r));
    return STATUS_OK;
}

/* A driver's own hands may have used either kind of name. */
static enum status_code unstage_in(struct reconciler *reconciler, enum reconciler_tree tree,
                                   const char *target_path, struct error *error)
{
    enum status_code code = unstage_name(reconciler, tree, false, target_path, error);

    return code == STATUS_OK ? unstage_name(reconciler, tree, true, target_path, error) : code;
}

/* In both layouts, whatever the configuration says by now. */
enum status_code reconciler_unstage(struct reconciler *reconciler, const char *target_path,
                                    struct error *error)
{
    enum status_code code = command_check_target_path(target_path, error);

    if (code == STATUS_OK)
        code = fallback_check_promise(reconciler, error);
    if (code == STATUS_OK)
        code = unstage_in(reconciler, TREE_KATA_VOLUMES, target_path, error);
    if (code == STATUS_OK)
        code = unstage_in(reconciler, TREE_CRUST_VOLUMES, target_path, error);
    return code;
}
