/* SPDX-License-Identifier: Apache-2.0 */
/* disk.c - see disk.h.
 *
 * Each file (an inode) has a base, which is flushed, and the operations on it since. An image takes
 * the base and applies of the others what the kind of loss says. The names are handled alike: those
 * flushed, and the changes since.
 */
#include "tests/power-loss/disk.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cleanup.h"

enum { FILES = 256, NAME_BYTES = 64, SECTOR = 512, PAGE = 4096, SHM_NOISE_BYTES = 32768 };

/* ---- what is on record --------------------------------------------------------------------- */

enum kind { WRITE, TRUNCATE, FLUSH, LINK, UNLINK, RENAME, FLUSH_NAMES };

struct operation {
    enum kind kind;
    unsigned file;
    size_t offset, length; /* TRUNCATE: the new length */
    uint8_t *bytes;
    char name[NAME_BYTES], to[NAME_BYTES];
};

struct content {
    uint8_t *bytes;
    size_t length, room;
};

/* Operations that no flush has followed, by their index. */
struct pending {
    size_t *index;
    size_t count, room;
};

struct file {
    dev_t device;
    ino_t inode;
    struct content base; /* flushed, after the first `position` operations */
    struct pending pending;
};

struct name {
    char text[NAME_BYTES];
    unsigned file;
};

struct names {
    struct name name[FILES];
    unsigned count;
};

static struct {
    char directory[4096];
    size_t directory_length;
    dev_t device;
    ino_t inode;
    bool recording;

    struct operation *operation;
    size_t count, room;
    struct file file[FILES];
    unsigned files;

    size_t position;    /* how many operations the following has seen, and all bases */
    struct names names; /* flushed */
    struct pending pending_names;
} disk;

static void must(bool condition, const char *what)
{
    if (condition)
        return;
    (void)fprintf(stderr, "power loss: %s: %s\n", what, strerror(errno));
    abort();
}

uint64_t disk_random(uint64_t *seed) /* splitmix64 */
{
    uint64_t z = (*seed += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t random_below(uint64_t *seed, size_t bound)
{
    return (size_t)(disk_random(seed) % bound);
}

const char *disk_loss_name(enum disk_loss loss)
{
    static const char *const names[] = {
        [DISK_KEEPS_ALL] = "all kept",         [DISK_KEEPS_FLUSHED] = "only what was flushed",
        [DISK_MIXES_512] = "sectors of 512",   [DISK_MIXES_4096] = "sectors of 4,096",
        [DISK_REORDERS] = "writes reordered",  [DISK_TEARS_LAST] = "last write torn",
        [DISK_GARBLES] = "sectors with noise", [DISK_LIES] = "flushes ignored"};

    return names[loss];
}

/* ---- contents ------------------------------------------------------------------------------ */

static void content_resize(struct content *content, size_t length)
{
    if (length > content->room) {
        size_t room = length + length / 2 + 4096;

        content->bytes = realloc(content->bytes, room);
        must(content->bytes, "memory");
        content->room = room;
    }
    if (length > content->length)
        memset(content->bytes + content->length, 0, length - content->length);
    content->length = length;
}

static void content_write(struct content *content, size_t offset, const void *bytes, size_t length)
{
    if (length == 0)
        return;
    if (offset + length > content->length)
        content_resize(content, offset + length);
    memcpy(content->bytes + offset, bytes, length);
}

static void content_apply(struct content *content, const struct operation *operation)
{
    if (operation->kind == TRUNCATE)
        content_resize(content, operation->length);
    else
        content_write(content, operation->offset, operation->bytes, operation->length);
}

/* ---- names --------------------------------------------------------------------------------- */

static struct name *find_name(struct names *names, const char *text)
{
    for (unsigned i = 0; i < names->count; i++)
        if (strcmp(names->name[i].text, text) == 0)
            return &names->name[i];
    return NULL;
}

static void set_name(struct names *names, const char *text, unsigned file)
{
    struct name *name = find_name(names, text);

    if (!name) {
        must(names->count < FILES, "too many names");
        name = &names->name[names->count++];
        (void)snprintf(name->text, sizeof(name->text), "%s", text);
    }
    name->file = file;
}

static void drop_name(struct names *names, const char *text)
{
    struct name *name = find_name(names, text);

    if (name)
        *name = names->name[--names->count];
}

static void apply_name(struct names *names, const struct operation *operation)
{
    const struct name *name;

    switch (operation->kind) {
    case LINK:
        set_name(names, operation->name, operation->file);
        break;
    case UNLINK:
        drop_name(names, operation->name);
        break;
    case RENAME:
        name = find_name(names, operation->name);
        if (name)
            set_name(names, operation->to, name->file);
        drop_name(names, operation->name);
        break;
    case WRITE:
    case TRUNCATE:
    case FLUSH:
    case FLUSH_NAMES:
    default:
        break;
    }
}

/* ---- recording ----------------------------------------------------------------------------- */

/* The name within the directory, NULL: it is another one's, or the wal-index. */
static const char *recorded_name(const char *path)
{
    const char *name = path + disk.directory_length + 1;
    size_t length = strlen(path);

    if (!disk.recording || length <= disk.directory_length + 1 ||
        strncmp(path, disk.directory, disk.directory_length) != 0 ||
        path[disk.directory_length] != '/' || strchr(name, '/'))
        return NULL;
    if (length >= 4 && strcmp(path + length - 4, "-shm") == 0)
        return NULL;
    must(strlen(name) < NAME_BYTES, "a long name");
    return name;
}

/* The newest one: the number of an inode that is gone is given again. */
static struct file *find_file(const struct stat *status)
{
    for (unsigned i = disk.files; i > 0; i--)
        if (disk.file[i - 1].device == status->st_dev && disk.file[i - 1].inode == status->st_ino)
            return &disk.file[i - 1];
    return NULL;
}

static struct file *recorded_file(int fd)
{
    struct stat status;

    return disk.recording && fstat(fd, &status) == 0 ? find_file(&status) : NULL;
}

static bool is_recorded_directory(int fd)
{
    struct stat status;

    return disk.recording && fstat(fd, &status) == 0 && status.st_dev == disk.device &&
           status.st_ino == disk.inode;
}

static unsigned add_file(const struct stat *status)
{
    must(disk.files < FILES, "too many files");
    disk.file[disk.files] = (struct file){.device = status->st_dev, .inode = status->st_ino};
    return disk.files++;
}

static struct operation *add_operation(enum kind kind)
{
    struct operation *operation;

    if (disk.count == disk.room) {
        disk.room = disk.room ? 2 * disk.room : 4096;
        disk.operation = reallocarray(disk.operation, disk.room, sizeof(*operation));
        must(disk.operation, "memory");
    }
    operation = &disk.operation[disk.count++];
    *operation = (struct operation){.kind = kind};
    return operation;
}

static void note_of_file(const struct file *file, enum kind kind, size_t offset, const void *bytes,
                         size_t length)
{
    struct operation *operation = add_operation(kind);

    operation->file = (unsigned)(file - disk.file);
    operation->offset = offset;
    operation->length = length;
    if (!bytes || !length)
        return;
    operation->bytes = malloc(length);
    must(operation->bytes, "memory");
    memcpy(operation->bytes, bytes, length);
}

static void note_of_name(enum kind kind, unsigned file, const char *name, const char *to)
{
    struct operation *operation = add_operation(kind);

    operation->file = file;
    (void)snprintf(operation->name, sizeof(operation->name), "%s", name);
    (void)snprintf(operation->to, sizeof(operation->to), "%s", to);
}

/* ---- between the program and libc ---------------------------------------------------------- */

#define REAL(name)                                                                                 \
    do {                                                                                           \
        if (!real)                                                                                 \
            *(void **)&real = dlsym(RTLD_NEXT, name);                                              \
    } while (0)

int recorded_open(const char *path, int flags, ...) __asm__("open64");
int recorded_open(const char *path, int flags, ...)
{
    static int (*real)(const char *, int, ...);
    const char *name = recorded_name(path);
    struct stat status;
    mode_t mode = 0;
    bool is_new;
    va_list list;
    int fd;

    REAL("open64");
    va_start(list, flags);
    if (flags & O_CREAT)
        mode = va_arg(list, mode_t);
    va_end(list);
    is_new = name && (flags & O_CREAT) && access(path, F_OK) < 0;
    fd = real(path, flags, mode);
    if (is_new && fd >= 0 && fstat(fd, &status) == 0)
        note_of_name(LINK, add_file(&status), name, "");
    return fd;
}

ssize_t recorded_pwrite(int fd, const void *bytes, size_t length, off_t offset) __asm__("pwrite64");
ssize_t recorded_pwrite(int fd, const void *bytes, size_t length, off_t offset)
{
    static ssize_t (*real)(int, const void *, size_t, off_t);
    const struct file *file = recorded_file(fd);
    ssize_t written;

    REAL("pwrite64");
    written = real(fd, bytes, length, offset);
    if (file && written > 0)
        note_of_file(file, WRITE, (size_t)offset, bytes, (size_t)written);
    return written;
}

ssize_t recorded_write(int fd, const void *bytes, size_t length) __asm__("write");
ssize_t recorded_write(int fd, const void *bytes, size_t length)
{
    static ssize_t (*real)(int, const void *, size_t);
    const struct file *file = recorded_file(fd);
    off_t offset = file ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t written;

    REAL("write");
    written = real(fd, bytes, length);
    if (file && written > 0)
        note_of_file(file, WRITE, (size_t)offset, bytes, (size_t)written);
    return written;
}

int recorded_ftruncate(int fd, off_t length) __asm__("ftruncate64");
int recorded_ftruncate(int fd, off_t length)
{
    static int (*real)(int, off_t);
    const struct file *file = recorded_file(fd);
    int r;

    REAL("ftruncate64");
    r = real(fd, length);
    if (file && r == 0)
        note_of_file(file, TRUNCATE, 0, NULL, (size_t)length);
    return r;
}

/* Images need no flushes either. */
static bool note_flush(int fd)
{
    const struct file *file = recorded_file(fd);

    if (file)
        note_of_file(file, FLUSH, 0, NULL, 0);
    else if (is_recorded_directory(fd))
        (void)add_operation(FLUSH_NAMES);
    return disk.directory_length > 0;
}

int recorded_fsync(int fd) __asm__("fsync");
int recorded_fsync(int fd)
{
    static int (*real)(int);

    REAL("fsync");
    return note_flush(fd) ? 0 : real(fd);
}

int recorded_fdatasync(int fd) __asm__("fdatasync");
int recorded_fdatasync(int fd)
{
    static int (*real)(int);

    REAL("fdatasync");
    return note_flush(fd) ? 0 : real(fd);
}

int recorded_unlink(const char *path) __asm__("unlink");
int recorded_unlink(const char *path)
{
    static int (*real)(const char *);
    const char *name = recorded_name(path);
    int r;

    REAL("unlink");
    r = real(path);
    if (name && r == 0)
        note_of_name(UNLINK, 0, name, "");
    return r;
}

int recorded_rename(const char *from, const char *to) __asm__("rename");
int recorded_rename(const char *from, const char *to)
{
    static int (*real)(const char *, const char *);
    const char *name = recorded_name(from), *to_name = recorded_name(to);
    int r;

    REAL("rename");
    r = real(from, to);
    if (name && r == 0) {
        must(to_name, "renamed out of the directory");
        note_of_name(RENAME, 0, name, to_name);
    }
    return r;
}

/* ---- beginning and end --------------------------------------------------------------------- */

static void read_content(int fd, struct content *content)
{
    struct stat status;

    must(fstat(fd, &status) == 0, "fstat");
    content_resize(content, (size_t)status.st_size);
    must(pread(fd, content->bytes, content->length, 0) == (ssize_t)content->length, "pread");
}

static void take_first(const char *name)
{
    char path[sizeof(disk.directory) + NAME_BYTES];
    cleanup(fd_closep) int fd = -1;
    struct stat status;
    unsigned file;

    (void)snprintf(path, sizeof(path), "%s/%s", disk.directory, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    must(fd >= 0 && fstat(fd, &status) == 0, path);
    file = add_file(&status);
    read_content(fd, &disk.file[file].base);
    set_name(&disk.names, name, file);
}

int disk_record(const char *directory)
{
    cleanup(dir_closep) DIR *names = opendir(directory);
    struct stat status;

    if (!names || stat(directory, &status) < 0)
        return -errno;
    disk_forget();
    (void)snprintf(disk.directory, sizeof(disk.directory), "%s", directory);
    disk.directory_length = strlen(directory);
    disk.device = status.st_dev;
    disk.inode = status.st_ino;
    for (struct dirent *entry; (entry = readdir(names));) {
        size_t length = strlen(entry->d_name);

        if (entry->d_name[0] != '.' &&
            (length < 4 || strcmp(entry->d_name + length - 4, "-shm") != 0))
            take_first(entry->d_name);
    }
    disk.recording = true;
    return 0;
}

void disk_stop(void)
{
    disk.recording = false;
}

void disk_forget(void)
{
    for (size_t i = 0; i < disk.count; i++)
        free(disk.operation[i].bytes);
    for (unsigned i = 0; i < disk.files; i++) {
        free(disk.file[i].base.bytes);
        free(disk.file[i].pending.index);
    }
    free(disk.pending_names.index);
    free(disk.operation);
    memset(&disk, 0, sizeof(disk));
}

size_t disk_operations(void)
{
    return disk.count;
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
    return &disk.operation[pending->index[i]];
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
        apply_name(&disk.names, pending_at(&disk.pending_names, i));
    disk.pending_names.count = 0;
}

static void advance_by(size_t index)
{
    const struct operation *operation = &disk.operation[index];

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

/* ---- what is left of a file ------------------------------------------------------------------ */

struct mixing {
    size_t sector;
    bool noise;
    uint64_t *seed;
    unsigned
        *touched; /* by sector: how many operations there are on it, then how many of them last */
    unsigned *seen;
};

static void fill_noise(uint8_t *bytes, size_t length, uint64_t *seed)
{
    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)disk_random(seed);
}

/* The part of an operation that falls into one sector. */
static void apply_part(struct content *content, const struct operation *operation, size_t from,
                       size_t to, struct mixing *mixing)
{
    if (operation->kind == TRUNCATE)
        memset(content->bytes + from, 0, to - from);
    else if (mixing->noise && random_below(mixing->seed, 4) == 0)
        fill_noise(content->bytes + from, to - from, mixing->seed);
    else
        memcpy(content->bytes + from, operation->bytes + (from - operation->offset), to - from);
}

/* An operation sector by sector: counted (content NULL), or applied where it lasts. */
static void mix_operation(struct content *content, const struct operation *operation, size_t most,
                          struct mixing *mixing)
{
    bool cuts = operation->kind == TRUNCATE;
    size_t from = cuts ? operation->length : operation->offset;
    size_t end = cuts ? most : operation->offset + operation->length;

    while (from < end) {
        size_t sector = from / mixing->sector, to = (sector + 1) * mixing->sector;

        to = to < end ? to : end;
        if (!content)
            mixing->touched[sector]++;
        else if (++mixing->seen[sector] <= mixing->touched[sector])
            apply_part(content, operation, from, to, mixing);
        from = to;
    }
}

static size_t length_after(size_t length, const struct operation *operation)
{
    size_t end = operation->offset + operation->length;

    if (operation->kind == TRUNCATE)
        return operation->length;
    return end > length ? end : length;
}

/* Its lengths are states as well: one that it had, and the largest. */
static size_t pick_length(const struct file *file, uint64_t *seed, size_t *ret_most)
{
    size_t length = file->base.length, picked = length, most = length;
    size_t choice = random_below(seed, file->pending.count + 1);

    for (size_t i = 0; i < file->pending.count; i++) {
        length = length_after(length, pending_at(&file->pending, i));
        most = length > most ? length : most;
        if (i + 1 == choice)
            picked = length;
    }
    *ret_most = most;
    return picked;
}

static void mix(struct content *content, const struct file *file, size_t sector, bool noise,
                uint64_t *seed)
{
    struct mixing mixing = {.sector = sector, .noise = noise, .seed = seed};
    size_t most, length = pick_length(file, seed, &most), sectors = most / sector + 1;

    mixing.touched = calloc(sectors, sizeof(unsigned));
    mixing.seen = calloc(sectors, sizeof(unsigned));
    must(mixing.touched && mixing.seen, "memory");
    content_resize(content, most);
    for (size_t i = 0; i < file->pending.count; i++)
        mix_operation(NULL, pending_at(&file->pending, i), most, &mixing);
    for (size_t i = 0; i < sectors; i++)
        mixing.touched[i] = (unsigned)random_below(seed, mixing.touched[i] + 1);
    for (size_t i = 0; i < file->pending.count; i++)
        mix_operation(content, pending_at(&file->pending, i), most, &mixing);
    content_resize(content, length);
    free(mixing.touched);
    free(mixing.seen);
}

static void reorder(struct content *content, const struct file *file, uint64_t *seed)
{
    for (size_t i = 0; i < file->pending.count; i++)
        if (random_below(seed, 2))
            content_apply(content, pending_at(&file->pending, i));
}

/* Of a write that was under way when the power went, the sectors before one of them, or from it. */
static void tear(struct content *content, const struct operation *operation, uint64_t *seed)
{
    size_t end = operation->offset + operation->length;
    size_t first = operation->offset / SECTOR, sectors = (end - 1) / SECTOR - first + 1;
    size_t at = (first + random_below(seed, sectors + 1)) * SECTOR;

    at = at < operation->offset ? operation->offset : at > end ? end : at;
    if (random_below(seed, 2))
        content_write(content, operation->offset, operation->bytes, at - operation->offset);
    else
        content_write(content, at, operation->bytes + (at - operation->offset), end - at);
}

static void keep_all(struct content *content, const struct file *file, bool torn, uint64_t *seed)
{
    for (size_t i = 0; i < file->pending.count; i++) {
        const struct operation *operation = pending_at(&file->pending, i);
        bool is_last = operation == &disk.operation[disk.position - 1];

        if (torn && is_last && operation->kind == WRITE)
            tear(content, operation, seed);
        else
            content_apply(content, operation);
    }
}

/* From its beginning on, whatever was flushed. */
static void lie(struct content *content, unsigned file, uint64_t *seed)
{
    content_resize(content, 0);
    for (size_t i = 0; i < disk.position; i++) {
        const struct operation *operation = &disk.operation[i];

        if (operation->file == file && (operation->kind == WRITE || operation->kind == TRUNCATE) &&
            random_below(seed, 16))
            content_apply(content, operation);
    }
}

static void leave(struct content *content, unsigned number, enum disk_loss loss, uint64_t *seed)
{
    const struct file *file = &disk.file[number];

    content_resize(content, 0);
    content_write(content, 0, file->base.bytes, file->base.length);
    switch (loss) {
    case DISK_KEEPS_ALL:
    case DISK_TEARS_LAST:
        keep_all(content, file, loss == DISK_TEARS_LAST, seed);
        break;
    case DISK_MIXES_512:
    case DISK_GARBLES:
        mix(content, file, SECTOR, loss == DISK_GARBLES, seed);
        break;
    case DISK_MIXES_4096:
        mix(content, file, PAGE, false, seed);
        break;
    case DISK_REORDERS:
        reorder(content, file, seed);
        break;
    case DISK_LIES:
        lie(content, number, seed);
        break;
    case DISK_KEEPS_FLUSHED:
    default:
        break;
    }
}

/* ---- images -------------------------------------------------------------------------------- */

static int write_file(const char *directory, const char *name, const struct content *content)
{
    char path[sizeof(disk.directory) + NAME_BYTES];
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
    size_t kind = random_below(seed, 4);
    char name[NAME_BYTES];
    int r;

    if (kind == 0)
        return 0;
    (void)snprintf(name, sizeof(name), "%.*s-shm", (int)strlen(wal) - 4, wal);
    content_resize(&content, kind == 1 ? 0 : SHM_NOISE_BYTES);
    if (kind == 3)
        fill_noise(content.bytes, content.length, seed);
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
        return random_below(seed, disk.pending_names.count + 1);
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

int disk_image(size_t operations, enum disk_loss loss, uint64_t seed, const char *directory)
{
    static struct content content;
    struct names names;
    int r = 0;

    must(!disk.recording && operations >= disk.position && operations <= disk.count, "the order");
    while (disk.position < operations)
        advance_by(disk.position++);
    names = disk.names;
    for (size_t i = 0, count = lasting_names(loss, &seed); i < count; i++)
        apply_name(&names, pending_at(&disk.pending_names, i));
    for (unsigned i = 0; r == 0 && i < names.count; i++) {
        leave(&content, names.name[i].file, loss, &seed);
        r = write_file(directory, names.name[i].text, &content);
        if (r == 0 && is_wal(names.name[i].text))
            r = write_shm(directory, names.name[i].text, &seed);
    }
    return r;
}
