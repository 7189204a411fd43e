/* SPDX-License-Identifier: Apache-2.0 */
/* entry.c - one metadata directory.
 *
 * Everything is read through one descriptor of the directory, so that a directory that is replaced
 * meanwhile is not mixed up with its successor. Only mountInfo.json is opened, under the
 * restrictions of lib/path; sandbox-id files are examined with stat, never opened.
 *
 * A fault of the directory or of mountInfo.json becomes the entry's problem, as text. The first one
 * found is kept, except that too many names replace it. A name that does not belong in the
 * directory is ignored and reported as a remark, because an extra file says nothing about the
 * volume. Only a local failure (no descriptors, no memory) is an error, because then nothing was
 * learned about the directory.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/encode.h"
#include "lib/json.h"
#include "lib/path.h"
#include "observe/observe.h"

#define MOUNT_INFO  "mountInfo.json"
#define RUNTIME_CLI "runtime-cli"
#define PLUGIN_FILE "csiPlugin.json"

enum { SANDBOX_ID_CHARS = 128 };

bool observe_is_sandbox_id(const char *name)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-";
    size_t length = strlen(name);

    return length && length <= SANDBOX_ID_CHARS && strspn(name, alphabet) == length &&
           !strchr("_.-", name[0]) && strcmp(name, MOUNT_INFO) != 0 &&
           strcmp(name, RUNTIME_CLI) != 0 && strcmp(name, PLUGIN_FILE) != 0;
}

/* Only the first problem is kept. 0 or -ENOMEM. */
static int set_problem(struct observed_entry *entry, bool try_again, const char *text)
{
    if (entry->problem)
        return 0;
    entry->try_again = try_again;
    entry->problem = strdup(text);
    return entry->problem ? 0 : -ENOMEM;
}

/* The same for a name in the directory. */
static int set_name_problem(struct observed_entry *entry, bool try_again, const char *name,
                            const char *what)
{
    char shown[SHOWN_NAME_BYTES], text[ERROR_TEXT_BYTES];

    entry_name_show(name, shown);
    (void)snprintf(text, sizeof(text), "%s: %s", shown, what);
    return set_problem(entry, try_again, text);
}

/* Of several unknown names, the first by strcmp(3) is reported, so that the remark does not depend
 * on the order in which the directory is listed. */
struct unknown_names {
    unsigned count;
    char first[NAME_MAX + 1];
    const char *why;
};

static void note_unknown(struct unknown_names *unknown, const char *name, const char *why)
{
    if (unknown->count++ > 0 && strcmp(name, unknown->first) >= 0)
        return;
    (void)snprintf(unknown->first, sizeof(unknown->first), "%s", name);
    unknown->why = why;
}

/* 0 or -ENOMEM. */
static int set_remark(struct observed_entry *entry, const struct unknown_names *unknown)
{
    char shown[SHOWN_NAME_BYTES], more[64] = "";
    int length;

    if (unknown->count == 0)
        return 0;
    entry_name_show(unknown->first, shown);
    if (unknown->count > 1)
        (void)snprintf(more, sizeof(more), ", and %u more like it", unknown->count - 1);
    length = asprintf(&entry->remark, "%s: %s (ignored%s)", shown, unknown->why, more);
    if (length < 0)
        entry->remark = NULL;
    return length < 0 ? -ENOMEM : 0;
}

/* ---- the directory itself ---------------------------------------------------------------- */

/* Why a name below the root is not a directory that may be read; NULL: a local failure. */
static const char *why_not_a_directory(int r)
{
    switch (r) {
    case PATH_BELOW_A_FILE:
        return "not a directory";
    case PATH_BEHIND_A_LINK:
        return "is a symbolic link";
    case PATH_LEADS_OUT:
        return "another file system is mounted there";
    case PATH_NAME_TOO_LONG:
        return "longer than a name can be";
    default:
        return NULL;
    }
}

/* ---- the names in it --------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* NULL if it is a sandbox-id file: an empty regular file of root's with a single hard link. */
static const char *why_not_a_sandbox_file(const struct stat *st)
{
    if (S_ISLNK(st->st_mode))
        return "is a symbolic link, not a sandbox-id file";
    if (!S_ISREG(st->st_mode))
        return "not a regular file, so not a sandbox-id file";
    if (st->st_size != 0)
        return "not empty, so not a sandbox-id file";
    if (st->st_nlink > 1)
        return "has several hard links, so is not a sandbox-id file";
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return "a sandbox-id file that belongs to somebody else";
    return NULL;
}

static int examine_name(int directory, const char *name, struct observed_entry *entry,
                        struct unknown_names *unknown)
{
    const char *why = NULL;
    struct stat st;

    if (strcmp(name, MOUNT_INFO) == 0 || strcmp(name, RUNTIME_CLI) == 0)
        return 0;
    if (strcmp(name, PLUGIN_FILE) == 0)
        why = "refused, because a tenant may have written it";
    else if (!observe_is_sandbox_id(name))
        why = "not a name that belongs here";
    else if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    else
        why = why_not_a_sandbox_file(&st);
    if (why) {
        note_unknown(unknown, name, why);
        return 0;
    }
    if (entry->sandboxes == OBSERVE_SANDBOXES)
        return set_problem(entry, false, "more than 16 sandbox-id files");
    entry->sandbox[entry->sandboxes] = strdup(name);
    if (!entry->sandbox[entry->sandboxes])
        return -ENOMEM;
    entry->sandboxes++;
    return 0;
}

static int read_names(int fd, struct observed_entry *entry)
{
    struct directory_reader names = {.fd = fd};
    struct unknown_names unknown = {0};
    const char *name;
    int r = 0;

    for (unsigned count = 1; r == 0 && (name = directory_read_next(&names)); count++) {
        if (count > OBSERVE_ENTRY_NAMES) {
            /* In place of a problem of the first names, because their number says more. */
            free(take_pointer(&entry->problem));
            r = set_problem(entry, false, "more than 64 names in the directory");
            break;
        }
        r = examine_name(fd, name, entry, &unknown);
    }
    if (r == 0 && !name)
        r = -errno;
    qsort(entry->sandbox, entry->sandboxes, sizeof(entry->sandbox[0]), compare_names);
    return r < 0 ? r : set_remark(entry, &unknown);
}

/* ---- mountInfo.json ---------------------------------------------------------------------- */

static int read_mount_info(int fd, struct observed_entry *entry)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_MOUNT_INFO.bytes);
    struct error error = {0};
    struct mount_info info;
    int r = path_read_below(fd, MOUNT_INFO, &text, NULL, &error);

    if (r < 0)
        return r;
    if (r != PATH_OK)
        return set_problem(entry, r == PATH_ABSENT || r == PATH_CHANGING, error.text);
    r = mount_info_parse(buffer_text(&text), text.length, &info, &error);
    if (r < 0)
        return r;
    if (r != FILE_READ) {
        (void)error_prefix(&error, MOUNT_INFO ": ");
        return set_problem(entry, r == FILE_CUT, error.text);
    }
    entry->volume_type = info.volume_type;
    entry->device = info.device;
    entry->fs_type = info.fs_type;
    entry->options = info.options;
    entry->read_only = info.read_only;
    entry->metadata = info.metadata;
    entry->policy = info.policy;
    sha256_hex(buffer_text(&text), text.length, entry->mount_info_sha256);
    return 0;
}

/* An entry with a problem must leave nothing to act on. */
static void drop_mount_info(struct observed_entry *entry)
{
    struct mount_info info = {entry->volume_type, entry->device, entry->fs_type, entry->options,
                              entry->metadata,    false,         POLICY_GROW};

    mount_info_done(&info);
    entry->volume_type = entry->device = entry->fs_type = NULL;
    entry->options = entry->metadata = NULL;
    entry->mount_info_sha256[0] = '\0';
    entry->policy = POLICY_GROW;
}

static int read_directory(int fd, const char *name, struct observed_entry *entry)
{
    const struct path_identity *directory = &entry->directory;
    int r = path_identify(fd, &entry->directory);

    if (r == 0 && directory->owner != 0 && directory->owner != geteuid())
        r = set_name_problem(entry, false, name, "the directory belongs to somebody else");
    else if (r == 0 && directory->mode & (S_IWGRP | S_IWOTH))
        r = set_name_problem(entry, false, name, "the directory is writable by others");
    if (r == 0)
        r = read_mount_info(fd, entry);
    if (r == 0)
        r = read_names(fd, entry);
    if (r == 0 && entry->problem)
        drop_mount_info(entry);
    return r;
}

int observe_entry(int directory, const char *name, struct observed_entry *ret_entry)
{
    cleanup(fd_closep) int fd = -1;
    int opened = path_open_directory_below(directory, name, &fd);

    return observe_opened_entry(opened, fd, name, ret_entry);
}

int observe_opened_entry(int opened, int fd, const char *name, struct observed_entry *ret_entry)
{
    cleanup(observed_entry_done) struct observed_entry entry = {0};
    const char *why = why_not_a_directory(opened);
    char path[ENTRY_PATH_BYTES];
    struct error error;
    int r = 0;

    if (opened == PATH_MISSING)
        return OBSERVED_ABSENT;
    if (opened < 0 && !why)
        return opened;
    switch (entry_name_decode(name, path, &error)) {
    case ENTRY_NAME_PATH:
        entry.target_path = strdup(path);
        r = entry.target_path ? 0 : -ENOMEM;
        break;
    case ENTRY_NAME_SHA256:
        entry.is_hashed = true;
        break;
    default:
        r = set_problem(&entry, false, error.text);
    }
    if (r == 0)
        r = why ? set_name_problem(&entry, false, name, why) : read_directory(fd, name, &entry);
    if (r < 0)
        return r;
    *ret_entry = entry;
    entry = (struct observed_entry){0};
    return OBSERVED;
}

void observed_entry_done(struct observed_entry *entry)
{
    if (!entry)
        return;
    drop_mount_info(entry);
    free(entry->target_path);
    free(entry->problem);
    free(entry->remark);
    for (unsigned i = 0; i < entry->sandboxes; i++)
        free(entry->sandbox[i]);
    *entry = (struct observed_entry){0};
}

/* ---- fingerprint ---------------------------------------------------------------------------- */

/* The SHA-256 of a listing with one line for every file in the directory, in sorted order. A change
 * of a name changes the directory's mtime, a change of a file the file's own mtime and ctime. These
 * times advance with the kernel's clock tick, so a second write within one tick may leave them
 * unchanged; therefore sizes and the bytes themselves are included. */

enum { LISTING_BYTES = 64 * 1024 };

static void append_time(struct buffer *listing, struct timespec time)
{
    buffer_append_format(listing, " %" PRId64 ".%09ld", (int64_t)time.tv_sec, time.tv_nsec);
}

static void append_stat(struct buffer *listing, const struct stat *st)
{
    buffer_append_format(listing, " %" PRIu64 " %" PRIu64 " %o %u %u %" PRIu64 " %" PRId64,
                         (uint64_t)st->st_dev, (uint64_t)st->st_ino, st->st_mode, st->st_uid,
                         st->st_gid, (uint64_t)st->st_nlink, (int64_t)st->st_size);

    append_time(listing, st->st_mtim);
}

static int append_file(struct buffer *listing, int directory, const char *name, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_MOUNT_INFO.bytes);
    char hash[SHA256_HEX_BYTES];
    struct stat st;
    int r;

    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? error_set(error, FINGERPRINT_UNFIT, "%s: vanished", name) : -errno;
    if (!S_ISREG(st.st_mode))
        return error_set(error, FINGERPRINT_UNFIT, "%s: not a regular file", name);
    buffer_append_text(listing, name);
    append_stat(listing, &st);
    append_time(listing, st.st_ctim);
    r = path_read_below(directory, name, &text, NULL, error);
    if (r != PATH_OK)
        return r < 0 ? r : FINGERPRINT_UNFIT;
    sha256_hex(buffer_text(&text), text.length, hash);
    return buffer_append_format(listing, " %s\n", hash);
}

int fingerprint_directory(int directory, char ret_text[static SHA256_HEX_BYTES],
                          struct error *error)
{
    cleanup(buffer_done) struct buffer listing = BUFFER_INIT(LISTING_BYTES);
    cleanup(directory_names_done) struct directory_names names = {0};
    cleanup(dir_closep) DIR *files = NULL;
    struct path_identity identity;
    int r = path_identify(directory, &identity);

    if (r != 0)
        return r;
    buffer_append_format(&listing, "%" PRIu64 " %" PRIu64, (uint64_t)identity.device,
                         (uint64_t)identity.inode);
    append_time(&listing, identity.born);
    append_time(&listing, identity.modified);
    r = buffer_append_text(&listing, "\n");
    if (r == 0)
        r = directory_list(directory, &files);
    if (r == 0)
        r = directory_read_names(files, OBSERVE_ENTRY_NAMES, NULL, &names);
    if (r == DIRECTORY_TOO_MANY)
        return error_set(error, FINGERPRINT_UNFIT, "more than %d names in the directory",
                         OBSERVE_ENTRY_NAMES);
    for (unsigned i = 0; r == 0 && i < names.count; i++)
        r = append_file(&listing, directory, names.name[i], error);
    if (r != 0)
        return r;
    sha256_hex(buffer_text(&listing), listing.length, ret_text);
    return FINGERPRINT_TAKEN;
}

int fingerprint_file(int directory, const char *name, char ret_text[static SHA256_HEX_BYTES])
{
    cleanup(buffer_done) struct buffer listing = BUFFER_INIT(LISTING_BYTES);
    struct stat st;

    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? FINGERPRINT_ABSENT : -errno;
    if (!S_ISREG(st.st_mode) || st.st_size || st.st_nlink != 1)
        return FINGERPRINT_UNFIT;
    append_stat(&listing, &st);
    if (buffer_error(&listing) < 0)
        return buffer_error(&listing);
    sha256_hex(buffer_text(&listing), listing.length, ret_text);
    return FINGERPRINT_TAKEN;
}
