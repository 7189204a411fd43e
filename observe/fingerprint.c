/* SPDX-License-Identifier: Apache-2.0 */
/* fingerprint.c - the SHA-256 of a listing.
 *
 * The listing has one line for every file in the directory, in sorted order. A change of a name
 * changes the directory's mtime, a change of a file the file's own mtime and ctime. These times
 * advance with the kernel's clock tick, so a second write within one tick may leave them unchanged;
 * therefore sizes and the bytes themselves are included.
 */
#include "observe/mount_info.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/json.h"
#include "lib/path.h"
#include "observe/observe.h"

enum { LISTING_BYTES = 64 * 1024 };

static int read_names(int directory, struct directory_names *ret_names, struct error *error)
{
    cleanup(dir_closep) DIR *listing = NULL;
    int r = directory_list(directory, &listing);

    if (r == 0)
        r = directory_read_names(listing, OBSERVE_ENTRY_NAMES, NULL, ret_names);
    if (r == DIRECTORY_TOO_MANY)
        return error_set(error, FINGERPRINT_UNFIT, "more than %d names in the directory",
                         OBSERVE_ENTRY_NAMES);
    return r;
}

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

static int append_bytes(struct buffer *listing, int directory, const char *name,
                        struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_MOUNT_INFO.bytes);
    char hash[SHA256_HEX_BYTES];
    int r = path_read_below(directory, name, &text, NULL, error);

    if (r != PATH_OK)
        return r < 0 ? r : FINGERPRINT_UNFIT;
    sha256_hex(buffer_text(&text), text.length, hash);
    return buffer_append_format(listing, " %s", hash);
}

static int append_file(struct buffer *listing, int directory, const char *name, struct error *error)
{
    struct stat st;
    int r;

    if (fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? error_set(error, FINGERPRINT_UNFIT, "%s: vanished", name) : -errno;
    if (!S_ISREG(st.st_mode))
        return error_set(error, FINGERPRINT_UNFIT, "%s: not a regular file", name);
    buffer_append_text(listing, name);
    append_stat(listing, &st);
    append_time(listing, st.st_ctim);
    r = append_bytes(listing, directory, name, error);
    return r != 0 ? r : buffer_append_text(listing, "\n");
}

int fingerprint_directory(int directory, char ret_text[static SHA256_HEX_BYTES],
                          struct error *error)
{
    cleanup(buffer_done) struct buffer listing = BUFFER_INIT(LISTING_BYTES);
    cleanup(directory_names_done) struct directory_names names = {0};
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
        r = read_names(directory, &names, error);
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
