/* SPDX-License-Identifier: Apache-2.0 */
/* disk.c - see disk.h.
 *
 * recording.c has the operations. Here each file has a base, which is flushed, and the operations
 * on it since. An image takes the base and applies of the others what the kind of loss says
 * (loss.c). The names are handled alike: those flushed, and the changes since.
 */
#include "tests/power-loss/disk.h"

#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "lib/cleanup.h"
#include "tests/power-loss/content.h"
#include "tests/power-loss/loss.h"
#include "tests/power-loss/recording.h"

enum { SHM_NOISE_BYTES = 32768 };

struct file {
    struct content base; /* flushed, after the first `position` operations */
    struct pending pending;
};

static struct {
    struct file file[FILES];
    size_t position;    /* how many operations the names have seen, and all bases */
    struct names names; /* flushed */
    struct pending pending_names;
} disk;

/* ---- beginning and end --------------------------------------------------------------------- */

int disk_record(const char *directory)
{
    int r;

    disk_forget();
    r = recording_start(directory);
    if (r < 0)
        return r;
    disk.names = *recording_first_names();
    for (unsigned i = 0; i < recording_files(); i++) {
        const struct content *first = recording_first_content(i);

        content_write(&disk.file[i].base, 0, first->bytes, first->length);
    }
    return 0;
}

void disk_stop(void)
{
    recording_stop();
}

void disk_forget(void)
{
    recording_forget();
    for (unsigned i = 0; i < FILES; i++) {
        free(disk.file[i].base.bytes);
        free(disk.file[i].pending.index);
    }
    free(disk.pending_names.index);
    memset(&disk, 0, sizeof(disk));
}

size_t disk_operations(void)
{
    return recording_count();
}

/* ---- what is flushed ------------------------------------------------------------------------ */

static void add_pending(struct pending *pending, size_t index)
{
    if (pending->count == pending->room) {
        pending->room = pending->room ? 2 * pending->room : 64;
        pending->index = reallocarray(pending->index, pending->room, sizeof(*pending->index));
        must(pending->index, "memory");
    }
    pending->index[pending->count++] = index;
}

static const struct operation *pending_at(const struct pending *pending, size_t i)
{
    return recording_at(pending->index[i]);
}

static void flush_file(struct file *file)
{
    for (size_t i = 0; i < file->pending.count; i++)
        content_apply(&file->base, pending_at(&file->pending, i));
    file->pending.count = 0;
}

static void flush_names(void)
{
    for (size_t i = 0; i < disk.pending_names.count; i++)
        names_apply(&disk.names, pending_at(&disk.pending_names, i));
    disk.pending_names.count = 0;
}

static void advance_by(size_t index)
{
    const struct operation *operation = recording_at(index);

    switch (operation->kind) {
    case WRITE:
    case TRUNCATE:
        add_pending(&disk.file[operation->file].pending, index);
        break;
    case FLUSH:
        flush_file(&disk.file[operation->file]);
        break;
    case FLUSH_NAMES:
        flush_names();
        break;
    case LINK:
    case UNLINK:
    case RENAME:
    default:
        add_pending(&disk.pending_names, index);
        break;
    }
}

/* ---- images -------------------------------------------------------------------------------- */

static int write_file(const char *directory, const char *name, const struct content *content)
{
    char path[PATH_MAX + NAME_BYTES];
    cleanup(fd_closep) int fd = -1;

    (void)snprintf(path, sizeof(path), "%s/%s", directory, name);
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0640);
    if (fd < 0)
        return -errno;
    for (size_t at = 0; at < content->length;) {
        ssize_t written = write(fd, content->bytes + at, content->length - at);

        if (written < 0)
            return -errno;
        at += (size_t)written;
    }
    return 0;
}

/* None, an empty one, zeros or noise. */
static int write_shm(const char *directory, const char *wal, uint64_t *seed)
{
    struct content content = {0};
    size_t kind = disk_random_below(seed, 4);
    char name[NAME_BYTES];
    int r;

    if (kind == 0)
        return 0;
    (void)snprintf(name, sizeof(name), "%.*s-shm", (int)strlen(wal) - 4, wal);
    content_resize(&content, kind == 1 ? 0 : SHM_NOISE_BYTES);
    if (kind == 3)
        loss_fill_noise(content.bytes, content.length, seed);
    r = write_file(directory, name, &content);
    free(content.bytes);
    return r;
}

static size_t lasting_names(enum disk_loss loss, uint64_t *seed)
{
    switch (loss) {
    case DISK_KEEPS_ALL:
    case DISK_TEARS_LAST:
    case DISK_LIES:
        return disk.pending_names.count;
    case DISK_MIXES_512:
    case DISK_MIXES_4096:
    case DISK_REORDERS:
    case DISK_GARBLES:
        return disk_random_below(seed, disk.pending_names.count + 1);
    case DISK_KEEPS_FLUSHED:
    default:
        return 0;
    }
}

static bool is_wal(const char *name)
{
    size_t length = strlen(name);

    return length >= 4 && strcmp(name + length - 4, "-wal") == 0;
}

static void leave(struct content *content, unsigned number, enum disk_loss loss, uint64_t *seed)
{
    const struct file *file = &disk.file[number];
    const struct cut_file cut = {number, disk.position, &file->base, &file->pending};

    loss_leave(content, &cut, loss, seed);
}

int disk_image(size_t operations, enum disk_loss loss, uint64_t seed, const char *directory)
{
    static struct content content;
    struct names names;
    int r = 0;

    must(!recording_is_on() && operations >= disk.position && operations <= recording_count(),
         "the order");
    while (disk.position < operations)
        advance_by(disk.position++);
    names = disk.names;
    for (size_t i = 0, count = lasting_names(loss, &seed); i < count; i++)
        names_apply(&names, pending_at(&disk.pending_names, i));
    for (unsigned i = 0; r == 0 && i < names.count; i++) {
        leave(&content, names.name[i].file, loss, &seed);
        r = write_file(directory, names.name[i].text, &content);
        if (r == 0 && is_wal(names.name[i].text))
            r = write_shm(directory, names.name[i].text, &seed);
    }
    return r;
}
