/* SPDX-License-Identifier: Apache-2.0 */
/* stage_files.c - written aside, synced, renamed into place.
 *
 * There is one writer and it puts one thing at a time, so what comes has a fixed name in the
 * working directory; what goes keeps its own. A directory that comes into place is never renamed
 * onto another one (RENAME_NOREPLACE): if a driver has made it meanwhile, the file goes into that.
 *
 * Content is synced before its name is there, so that no crash of the machine leaves a name without
 * it. The names themselves are the watched root's, and one sync makes any number of them last; what
 * was taken away is removed after it, or a crash might leave a name without content after all. On a
 * tmpfs, where these roots are, all of that costs next to nothing and nothing outlives a crash.
 *
 * Everything is reached through descriptors of the two directories, and nothing follows a link.
 * What is removed is removed by lib/directory.h, and what that would refuse is not taken away
 * either: it stays whole in its place, where the owner of a mount inside it finds it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/text.h"
#include "observe/observe.h"
#include "reconciler/command/clients.h"
#include "store/store.h"

#define MOUNT_INFO "mountInfo.json"
#define NEW        "new"

enum { LEVELS = 5, ATTEMPTS = 3 };

/* An outcome beside STAGE_*: somebody else changed the place meanwhile, try again. */
enum { OVERTAKEN = 100 };

struct directories {
    int volumes;
    int staging_dir;
};

static void directories_done(struct directories *directories)
{
    fd_close(directories->volumes);
    fd_close(directories->staging_dir);
}

static int open_or_make(int root, const char *path, int *ret_fd)
{
    int r = path_open_directory_in_root(root, path, ret_fd);

    if (r != PATH_MISSING)
        return r;
    r = path_make_directories(root, path, 0700);
    return r < 0 ? r : path_open_directory_in_root(root, path, ret_fd);
}

/* r: the outcome of opening the volumes' directory. */
static int open_staging_dir(const struct stage_place *place, int r, int *ret_staging_dir,
                            struct error *error)
{
    if (r < 0)
        return error_set_errno(error, r, "cannot work in %s", place->volumes);
    r = open_or_make(place->root, place->staging_dir, ret_staging_dir);
    return r < 0 ? error_set_errno(error, r, "cannot work in %s", place->staging_dir) : 0;
}

int stage_files_sweep(const struct stage_place *place, struct error *error)
{
    cleanup(fd_closep) int staging_dir = -1;
    int r = path_open_directory_in_root(place->root, place->staging_dir, &staging_dir);

    if (r < 0)
        return r == PATH_MISSING ? 0 : error_set_errno(error, r, "cannot open it");
    return removal_empty(staging_dir, LEVELS, error);
}

static int write_file(int directory, const char *name, const char *text, size_t length)
{
    return path_write_below(directory, name, O_EXCL, 0600, text, length);
}

/* An empty file comes into being as a whole, wherever it is. */
static int write_beside(int directory, const struct stage_content *content)
{
    int r = content->beside ? write_file(directory, content->beside, "", 0) : 0;

    return r == PATH_IS_TAKEN ? 0 : r;
}

static int sync_directory(int fd)
{
    return fsync(fd) < 0 ? -errno : 0;
}

/* OVERTAKEN: there is a directory of this name by now, or the rest of another one in the working
 * directory.
 */
static int put_directory(const struct directories *directories, const char *name,
                         const struct stage_content *content)
{
    cleanup(fd_closep) int fd = -1;
    int r;

    if (mkdirat(directories->staging_dir, NEW, 0700) < 0)
        return errno == EEXIST ? OVERTAKEN : -errno;
    fd = openat(directories->staging_dir, NEW, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    r = write_file(fd, MOUNT_INFO, content->text, content->length);
    if (r == 0)
        r = write_beside(fd, content);
    if (r == 0)
        r = sync_directory(fd);
    if (r < 0)
        return r;
    if (renameat2(directories->staging_dir, NEW, directories->volumes, name, RENAME_NOREPLACE) < 0)
        return errno == EEXIST ? OVERTAKEN : -errno;
    return 0;
}

static bool has_content(int directory, const struct stage_content *content)
{
    cleanup(buffer_done) struct buffer now = BUFFER_INIT(content->length + 1);
    struct error error;
    struct stat status;

    return path_read_below(directory, MOUNT_INFO, &now, NULL, &error) == PATH_OK &&
           now.length == content->length &&
           memcmp(buffer_text(&now), content->text, content->length) == 0 &&
           (!content->beside ||
            fstatat(directory, content->beside, &status, AT_SYMLINK_NOFOLLOW) == 0);
}

/* OVERTAKEN: the directory is gone by now, or as above. */
static int put_files(const struct directories *directories, int directory,
                     const struct stage_content *content)
{
    int r = write_file(directories->staging_dir, NEW, content->text, content->length);

    if (r == 0)
        r = write_beside(directory, content);
    if (r < 0)
        return r == PATH_MISSING || r == PATH_IS_TAKEN ? OVERTAKEN : r;
    if (renameat(directories->staging_dir, NEW, directory, MOUNT_INFO) < 0)
        return errno == ENOENT ? OVERTAKEN : -errno;
    return sync_directory(directory);
}

/* STAGE_*, OVERTAKEN or -errno. */
static int put_once(const struct directories *directories, const char *name,
                    const struct stage_content *content, struct error *error)
{
    cleanup(fd_closep) int directory = -1, fd = -1;
    int r = path_open_directory_below(directories->volumes, name, &directory);

    if (r == PATH_MISSING)
        r = put_directory(directories, name, content);
    else if (path_is_no_directory(r))
        return error_set(error, STAGE_IN_THE_WAY, "%s: not a directory", name);
    else if (r == 0 && has_content(directory, content)) {
        /* That renews the directory's times, because staleness also depends on its age. The file
         * and its name may not be synced yet: a driver need not sync them, and a daemon may have
         * been killed before it did. */
        fd = openat(directory, MOUNT_INFO,
                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        r = fd < 0 || fsync(fd) < 0 || futimens(directory, NULL) < 0 ? -errno
                                                                     : sync_directory(directory);
        if (r == 0)
            return STAGE_UNCHANGED;
    } else if (r == 0)
        r = put_files(directories, directory, content);
    if (r == PATH_IS_A_DIRECTORY)
        return error_set(error, STAGE_IN_THE_WAY, "%s/" MOUNT_INFO ": a directory", name);
    if (r < 0)
        return error_set_errno(error, r, "cannot write %s", name);
    return r == 0 ? STAGE_DONE : OVERTAKEN;
}

int stage_files_put(const struct stage_place *place, const char *name,
                    const struct stage_content *content, struct error *error)
{
    cleanup(directories_done) struct directories directories = {-1, -1};
    int r = open_or_make(place->root, place->volumes, &directories.volumes);

    r = open_staging_dir(place, r, &directories.staging_dir, error);
    for (unsigned i = 0; r == 0 && i < ATTEMPTS; i++) {
        int done = put_once(&directories, name, content, error);

        if (done == STAGE_DONE || done == STAGE_UNCHANGED)
            return done;
        r = removal_run(directories.staging_dir, NEW, LEVELS, done == OVERTAKEN ? error : NULL);
        if (done != OVERTAKEN)
            return done;
        if (r < 0)
            return error_prefix(error, "%s/", place->staging_dir), r;
    }
    return r < 0 ? r : error_set(error, -EBUSY, "%s comes and goes", name);
}

int stage_files_take(const struct stage_place *place, const char *name, struct error *error)
{
    cleanup(directories_done) struct directories directories = {-1, -1};
    int r = path_open_directory_in_root(place->root, place->volumes, &directories.volumes);

    if (r == PATH_MISSING ||
        (r == 0 && faccessat(directories.volumes, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 &&
         errno == ENOENT))
        return STAGE_UNCHANGED;
    r = open_staging_dir(place, r, &directories.staging_dir, error);
    if (r < 0)
        return r;
    r = removal_run(directories.staging_dir, name, LEVELS, error);
    if (r < 0)
        return error_prefix(error, "%s/", place->staging_dir), r;
    r = removal_check(directories.volumes, name, LEVELS, error);
    if (r < 0)
        return error_prefix(error, "%s/", place->volumes), r;
    if (renameat(directories.volumes, name, directories.staging_dir, name) < 0)
        r = -errno;
    if (r == PATH_MISSING)
        return STAGE_UNCHANGED;
    return r < 0 ? error_set_errno(error, r, "cannot take %s away", name) : STAGE_DONE;
}

int stage_files_sync(const struct stage_place *place)
{
    cleanup(fd_closep) int fd = -1;
    int r = path_open_directory_in_root(place->root, place->volumes, &fd);

    if (r < 0)
        return r == PATH_MISSING ? 0 : r;
    return sync_directory(fd);
}

/* ---- the request ---------------------------------------------------------------------------- */

enum { FS_TYPE_CHARS = 64 };

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
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t fs_type_length = strspn(stage->fs_type, letters);
    enum status_code code = check_target_path(stage->target_path, error);

    /* Kata's layout has the path in the directory's name. Where both layouts are wanted, a path
     * that fits into one of them only is refused: Kata would take the empty directory for the
     * volume. */
    if (code == STATUS_OK && layout != STAGE_CRUST &&
        strlen(stage->target_path) > BASE64URL_PATH_BYTES)
        code = answer_refuse(
            error, ANSWER_BAD_REQUEST,
            "the target path is longer than %d bytes, the most that a directory's name can "
            "hold in base64, as Kata's layout has it: crust.stage_layout = crust stages "
            "longer ones, for a runtime that looks there",
            BASE64URL_PATH_BYTES);
    if (code == STATUS_OK)
        code = check_device(root, stage->device, error);
    if (code != STATUS_OK)
        return code;
    if (fs_type_length == 0 || fs_type_length > FS_TYPE_CHARS || stage->fs_type[fs_type_length])
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
 * container would not start (src/agent/src/storage/mod.rs).
 *
 * The volume type is written as directvol. Kata's Go runtime takes any word, its Rust runtime fails
 * the container for "block", the word of Kata's documents (src/runtime-rs/crates/resource/src/
 * volume/rawblock_volume.rs). */
int stage_request_write(const struct reconciler_stage *stage, bool with_labels, struct buffer *text)
{
    const bool has_group = stage->group && !stage_request_is_read_only(stage);
    bool is_first = true;

    buffer_append_text(text, "{");
    json_append_member(text, "volume-type", "directvol");
    json_append_member(text, "device", stage->device);
    json_append_member(text, "fstype", stage->fs_type);
    buffer_append_text(text, ",\"metadata\":{");
    if (has_group)
        json_append_member(text, "fsGroup", stage->group);
    if (has_group && stage->group_policy)
        json_append_member(text, "fsGroupChangePolicy", stage->group_policy);
    buffer_append_text(text, "},\"options\":[");
    for (unsigned i = 0; i < stage->options; i++) {
        if (!with_labels && stage_option_is_label(stage->option[i]))
            continue;
        buffer_append_text(text, is_first ? "" : ",");
        json_append_string(text, stage->option[i]);
        is_first = false;
    }
    return buffer_append_text(text, "]}");
}
