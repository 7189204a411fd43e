/* SPDX-License-Identifier: Apache-2.0 */
/* files.c - a file in pieces: each goes to PATH.tmp, which gets its name once it is whole. */
#include "files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHARED "/run/kata-containers/shared/containers/"

struct piece {
    char path[PATH_MAX];
    uint64_t file_bytes, mode, directory_mode, offset;
    struct bytes data;
};

static struct piece parse(struct bytes request)
{
    struct piece piece = {0};
    struct field field;

    while (wire_next(&request, &field)) {
        uint64_t *const numbers[] = {
            NULL, NULL, &piece.file_bytes, &piece.mode, &piece.directory_mode,
            NULL, NULL, &piece.offset};

        if (field.number == 1)
            wire_text(field.bytes, piece.path, sizeof(piece.path));
        else if (field.number == 8)
            piece.data = field.bytes;
        else if (field.number < 8 && numbers[field.number])
            *numbers[field.number] = field.value;
    }
    return piece;
}

int make_directories(const char *path)
{
    char prefix[PATH_MAX];

    if (snprintf(prefix, sizeof(prefix), "%s", path) >= (int)sizeof(prefix))
        return -1;
    for (char *slash = strchr(prefix + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(prefix, 0755) < 0 && errno != EEXIST)
            return -1;
        *slash = '/';
    }
    return mkdir(prefix, 0755) < 0 && errno != EEXIST ? -1 : 0;
}

static int write_piece(const struct piece *piece, const char *partial)
{
    int fd = open(partial, O_RDWR | O_CREAT | O_CLOEXEC | (piece->offset ? 0 : O_TRUNC),
                  (mode_t)(piece->mode & 07777));
    struct stat status;
    int result = -1;

    if (fd < 0)
        return -1;
    if (pwrite(fd, piece->data.data, piece->data.length, (off_t)piece->offset) ==
            (ssize_t)piece->data.length &&
        fstat(fd, &status) == 0)
        result = 0;
    close(fd);
    if (result == 0 && (uint64_t)status.st_size == piece->file_bytes)
        result = rename(partial, piece->path);
    return result;
}

bool copy_file(struct bytes request, char *ret_text, size_t size)
{
    struct piece piece = parse(request);
    char parent[PATH_MAX], partial[PATH_MAX + 4];

    if (strncmp(piece.path, SHARED, strlen(SHARED)) != 0 || strstr(piece.path, "..")) {
        (void)snprintf(ret_text, size,
                       "removing \"" SHARED
                       "\" prefix from %.80s\n\nCaused by:\n    prefix not found",
                       piece.path);
        return false;
    }
    (void)snprintf(parent, sizeof(parent), "%.*s", (int)(strrchr(piece.path, '/') - piece.path),
                   piece.path);
    (void)snprintf(partial, sizeof(partial), "%s.tmp", piece.path);
    if (make_directories(parent) == 0 &&
        (S_ISDIR(piece.mode) ? make_directories(piece.path) : write_piece(&piece, partial)) == 0)
        return true;
    (void)snprintf(ret_text, size, "mkdir_all parent\n\nCaused by:\n    %s (os error %d)",
                   strerror(errno), errno);
    return false;
}
