/* SPDX-License-Identifier: Apache-2.0 */
/* place.c - the files at the database's path, without SQLite.
 *
 * The first 100 bytes show what the file is. They are read with read(2) and before SQLite has it
 * open (closing a second descriptor would drop SQLite's locks), so a foreign or newer database is
 * refused without even taking a lock on it. A damaged one is renamed to PATH.corrupt-N together
 * with its WAL, whose frames may be worth examining; the two newest are kept.
 */
#include "store/store_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "lib/text.h"
#include "store/schema.h"

/* https://www.sqlite.org/fileformat2.html, "The Database Header". */
enum {
    HEADER_WRITE_VERSION = 18, /* 1 or 2 */
    HEADER_SCHEMA_FORMAT = 44, /* 4 */
    HEADER_ENCODING = 56,      /* 1: UTF-8 */
    HEADER_USER_VERSION = 60,
    HEADER_APPLICATION_ID = 68,
};
static const char header_magic[16] = "SQLite format 3";

static uint32_t read_be32(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

enum place_kind place_judge_header(const unsigned char *header, size_t length)
{
    if (length == 0)
        return PLACE_NONE;
    if (length < PLACE_HEADER_BYTES || memcmp(header, header_magic, sizeof(header_magic)) != 0)
        return PLACE_DAMAGED;
    if (read_be32(header + HEADER_APPLICATION_ID) != SCHEMA_APPLICATION_ID)
        return PLACE_FOREIGN;
    if (read_be32(header + HEADER_USER_VERSION) > STORE_SCHEMA_VERSION)
        return PLACE_NEWER;
    /* SQLite calls these unsupported, not corrupt; in a file of ours they are. */
    if (header[HEADER_WRITE_VERSION] > 2 || read_be32(header + HEADER_SCHEMA_FORMAT) != 4 ||
        read_be32(header + HEADER_ENCODING) != 1)
        return PLACE_DAMAGED;
    return PLACE_OURS;
}

int place_judge(const char *path, enum place_kind *ret_kind, struct error *error)
{
    cleanup(fd_closep) int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    unsigned char header[PLACE_HEADER_BYTES];
    struct stat status;
    ssize_t length;

    if (fd < 0 && errno == ENOENT) {
        *ret_kind = PLACE_NONE;
        return 0;
    }
    if (fd < 0 || fstat(fd, &status) < 0)
        return error_set_errno(error, -errno, "%s", path);
    if (!S_ISREG(status.st_mode))
        return error_set(error, STORE_IN_THE_WAY, "%s is not a regular file", path);
    length = pread(fd, header, sizeof(header), 0);
    if (length < 0)
        return error_set_errno(error, -errno, "%s", path);
    *ret_kind = place_judge_header(header, (size_t)length);
    return 0;
}

char *place_with(const char *path, const char *suffix)
{
    char *text;

    return asprintf(&text, "%s%s", path, suffix) < 0 ? NULL : text;
}

int place_sync_directory(const char *path)
{
    cleanup(freep) char *copy = strdup(path);
    cleanup(fd_closep) int fd = -1;

    if (!copy)
        return -ENOMEM;
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

enum { CORRUPT_KEPT = 2, ROOM_BYTES = 512 * 1024, ROOM_STEP = 4096 };

int place_try_room(const char *path, struct error *error)
{
    static const char zeros[ROOM_STEP];
    cleanup(freep) char *room = place_with(path, ".room");
    cleanup(fd_closep) int fd = -1;
    int r = 0;

    if (!room)
        return error_set_errno(error, -ENOMEM, "%s", path);
    (void)unlink(room);
    fd = open(room, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        r = -errno;
    for (int at = 0; r == 0 && at < ROOM_BYTES; at += ROOM_STEP) {
        ssize_t written = write(fd, zeros, sizeof(zeros));

        if (written < ROOM_STEP)
            r = written < 0 ? -errno : -ENOSPC;
    }
    if (r == 0 && fsync(fd) < 0)
        r = -errno;
    (void)unlink(room);
    return r < 0 ? error_set_errno(error, r, "cannot write beside %s", path) : 0;
}

/* ---- setting a damaged file aside ---------------------------------------------------------- */

static const char *const suffixes[] = {"-wal", "-shm", ""};

/* The largest N of PATH.corrupt-N, 0 if there is none; those up to `dropped` are deleted. */
static int scan_corrupt(const char *path, unsigned dropped, unsigned *ret_largest)
{
    cleanup(freep) char *for_directory = strdup(path);
    cleanup(freep) char *for_name = strdup(path);
    cleanup(dir_closep) DIR *directory = NULL;
    cleanup(freep) char *prefix = NULL;

    if (!for_directory || !for_name || !(prefix = place_with(basename(for_name), ".corrupt-")))
        return -ENOMEM;
    directory = opendir(dirname(for_directory));
    if (!directory)
        return -errno;
    *ret_largest = 0;
    for (struct dirent *entry; (entry = readdir(directory));) {
        const char *digits = entry->d_name + strlen(prefix);
        unsigned long number;
        char *end;

        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0 || *digits < '1' || *digits > '9')
            continue;
        number = strtoul(digits, &end, 10);
        if (number >= UINT_MAX ||
            name_table_find(suffixes, sizeof(*suffixes), array_length(suffixes), end,
                            array_length(suffixes)) == array_length(suffixes))
            continue;
        if (number > *ret_largest)
            *ret_largest = (unsigned)number;
        if (number <= dropped)
            (void)unlinkat(dirfd(directory), entry->d_name, 0);
    }
    return 0;
}

bool place_has_set_aside(const char *path)
{
    unsigned largest;

    return scan_corrupt(path, 0, &largest) == 0 && largest > 0;
}

int place_set_aside(const char *path, struct error *error)
{
    unsigned number;
    int r = scan_corrupt(path, 0, &number);

    if (r < 0)
        return error_set_errno(error, r, "cannot list the directory of %s", path);
    number++;
    for (size_t i = 0; i < array_length(suffixes); i++) {
        char from[PATH_MAX], to[PATH_MAX];

        (void)snprintf(from, sizeof(from), "%s%s", path, suffixes[i]);
        (void)snprintf(to, sizeof(to), "%s.corrupt-%u%s", path, number, suffixes[i]);
        if (rename(from, to) < 0 && errno != ENOENT)
            return error_set_errno(error, -errno, "cannot set %s aside", from);
    }
    if (number > CORRUPT_KEPT)
        (void)scan_corrupt(path, number - CORRUPT_KEPT, &number);
    return 0;
}

bool place_has_log(const char *path)
{
    cleanup(freep) char *wal = place_with(path, "-wal");
    struct stat status;

    return wal && stat(wal, &status) == 0 && status.st_size > 0;
}

int place_clear(const char *path, struct error *error)
{
    cleanup(freep) char *wal = place_with(path, "-wal");
    cleanup(freep) char *shm = place_with(path, "-shm");

    if (!wal || !shm)
        return error_set_errno(error, -ENOMEM, "%s", path);
    if (place_has_log(path))
        return place_set_aside(path, error);
    if ((unlink(wal) < 0 && errno != ENOENT) || (unlink(shm) < 0 && errno != ENOENT))
        return error_set_errno(error, -errno, "cannot remove what is left beside %s", path);
    return 0;
}
